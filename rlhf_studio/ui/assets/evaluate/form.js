// The form of a new evaluation: who answers, which prompts, how often.
import { each, el, fill, labelled, pushButton, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";

const text = (placeholder = "") => el("input", { class: "rs-input", type: "text", placeholder, spellcheck: "false" });
const whole = (value, min, max) => el("input", { class: "rs-input", type: "number", value, min, max, step: 1 });

export class Form {
  /** @param begin  given the form's values; gives `problem`, a line for each mistake, and the `fields` to blame */
  constructor({ begin }) {
    this.begin = begin;
    this.policies = [];
    this.offered = []; // those that the form began with
    this.rows = "";
    this.run = el("select", { class: "rs-input", "aria-label": t("Run"), onchange: () => this.setSteps() });
    this.which = el("select", { class: "rs-input", "aria-label": t("Which policy of the run") });
    this.none = el(
      "p",
      { class: "rs-help", hidden: true },
      t("No run here has kept a policy yet: train one first, or name a model."),
    );
    this.other = text(t("folder, hub id or .jsonl file"));
    this.list = el("ol", { class: "rs-evaluate-policies", "aria-label": t("Policies") });
    this.fields = {
      file: text(t("what the first run held out")),
      prompts: whole(64, 0, 100000),
      samples: whole(1, 1, 64),
      seed: whole(0, 0, 2147483647),
      temperature: el("input", {
        class: "rs-input",
        type: "number",
        min: 0.01,
        max: 10,
        step: 0.05,
        placeholder: t("the run's own"),
      }),
      judge: text(t("none")),
      reward: text(t("the first run's own rewards")),
      text: text(t("none")),
      name: text(t("evaluation")),
    };
    this.greedy = el("input", { type: "checkbox" });
    this.problem = el("ul", { class: "rs-problem rs-evaluate-problems", role: "alert", hidden: true });
    this.button = el("button", { type: "submit", class: "rs-button rs-primary" }, t("Start evaluation"));
    this.node = el(
      "form",
      { class: "rs-evaluate-form", onsubmit: (event) => this.send(event) },
      this.who(),
      this.how(),
    );
    this.drawList();
  }

  who() {
    const add = (action) => pushButton("rs-button rs-small", t("Add"), action);
    return el(
      "fieldset",
      {},
      el("legend", { class: "rs-label" }, t("Who answers")),
      el(
        "div",
        { class: "rs-evaluate-add" },
        this.run,
        this.which,
        add(() => this.add(`${this.run.value}@${this.which.value}`)),
      ),
      el(
        "div",
        { class: "rs-evaluate-add rs-evaluate-other" },
        this.other,
        add(() => this.addOther()),
      ),
      this.none,
      this.list,
      el("p", { class: "rs-help" }, t("The others are compared with the first.")),
    );
  }

  how() {
    const { file, prompts, samples, seed, temperature, judge, reward, text: held, name } = this.fields;
    return el(
      "fieldset",
      {},
      el("legend", { class: "rs-label" }, t("What they answer, and who judges")),
      el(
        "div",
        { class: "rs-evaluate-fields" },
        labelled(t("Prompts"), file, t("A file or dataset of prompts.")),
        labelled(t("How many"), prompts, t("0 takes all of them.")),
        labelled(t("Answers per prompt"), samples, t("Two or more also show how well the reward orders them.")),
        labelled(t("Seed"), seed, t("Every policy gets the same random numbers.")),
        labelled(t("Temperature"), temperature),
        labelled(
          t("Judge"),
          judge,
          t("A reward model, a rule such as lexicon (sentiment words), or FILE.py, not used in training."),
        ),
        labelled(t("Reward"), reward, t("Named as a judge is; scores the answers instead of the run's rewards.")),
        labelled(t("Held-out text"), held, t("A file of texts: shows what training made a policy forget.")),
        labelled(t("Name"), name),
      ),
      el("label", { class: "rs-check" }, this.greedy, " ", t("Greedy: always the likeliest token")),
      this.problem,
      el("div", { class: "rs-evaluate-buttons" }, this.button),
    );
  }

  /** Runs that have kept policies. The form begins with `ends`, the run that the page offers, else with the newest. */
  setRuns(runs, ends) {
    const rows = JSON.stringify([ends?.id, ...runs.map(({ id, name, steps }) => [id, name, steps])]);
    if (rows === this.rows) return;
    const before = this.run.value;
    this.rows = rows;
    this.runs = runs;
    each(this.run, runs, ({ id, name }) => el("option", { value: id }, name));
    const first = ends?.id ?? runs[0]?.id ?? "";
    this.run.value = runs.some(({ id }) => id === before) ? before : first;
    show(this.run.parentNode, runs.length > 0);
    show(this.none, !runs.length);
    this.setSteps();
    if (!runs.length || this.policies.join() !== this.offered.join()) return; // a person has chosen others
    const { steps } = runs.find(({ id }) => id === first);
    this.policies = [`${first}@start`, `${first}@${steps.at(-1)}`];
    this.offered = [...this.policies];
    this.drawList();
  }

  setSteps() {
    const run = this.runs?.find(({ id }) => id === this.run.value);
    const steps = run ? [...run.steps].reverse() : [];
    fill(
      this.which,
      steps.map((step) => el("option", { value: step }, t("step {step}", { step }))),
      el("option", { value: "start" }, t("as it began")),
      el("option", { value: "all" }, t("all of them")),
    );
  }

  nameOf(line) {
    const [id, which] = line.split("@");
    const run = this.runs?.find((one) => one.id === id);
    if (!run) return line;
    const what =
      which === "start"
        ? t("as it began")
        : which === "all"
          ? t("the start and all that was kept")
          : t("step {step}", { step: which });
    return `${run.name}, ${what}`;
  }

  add(line) {
    if (line && !this.policies.includes(line)) this.policies.push(line);
    this.drawList();
  }

  addOther() {
    this.add(this.other.value.trim());
    this.other.value = "";
  }

  drawList() {
    const remove = (line) => {
      this.policies = this.policies.filter((one) => one !== line);
      this.drawList();
    };
    fill(
      this.list,
      this.policies.map((line) =>
        el(
          "li",
          {},
          el("span", {}, this.nameOf(line)),
          el(
            "button",
            {
              type: "button",
              class: "rs-quiet",
              "aria-label": t("Remove {line}", { line: this.nameOf(line) }),
              onclick: () => remove(line),
            },
            t("Remove"),
          ),
        ),
      ),
      this.policies.length ? null : el("li", { class: "rs-help" }, t("Nobody yet: add a policy.")),
    );
  }

  tell({ problem, fields = [] }) {
    const lines = problem ? problem.split("\n") : [];
    each(this.problem, lines, (line) => el("li", {}, line));
    show(this.problem, lines.length > 0);
    for (const [name, input] of Object.entries({ ...this.fields, policies: this.other })) {
      if (fields.includes(name)) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
    this.node.querySelector("[aria-invalid]")?.focus();
  }

  async send(event) {
    event.preventDefault();
    if (this.asking) return;
    if (this.other.value.trim()) this.addOther();
    const number = (input) => (input.value === "" ? null : Number(input.value));
    const { file, prompts, samples, seed, temperature, judge, reward, text: held, name } = this.fields;
    this.asking = this.button.disabled = true;
    setText(this.button, t("Checking\u2026"));
    const reply = await this.begin({
      policies: this.policies.join("\n"),
      file: file.value,
      prompts: number(prompts),
      samples: number(samples),
      seed: number(seed),
      temperature: number(temperature),
      greedy: this.greedy.checked,
      judge: judge.value,
      reward: reward.value,
      text: held.value,
      name: name.value,
    });
    this.asking = this.button.disabled = false;
    setText(this.button, t("Start evaluation"));
    this.tell(reply);
  }
}
