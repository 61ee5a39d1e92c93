// "Try it": the scores of the reward components for one text, before any run. A process of its own computes them;
// this page asks it how far it is.
import { bracketed, t } from "../shared/language.js";
import { figure, numberHead, rowHead, table, tableRow } from "../shared/table.js";
import { el, elEach, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { counted, number, readable } from "../shared/format.js";
import { NO_ANSWER } from "../shared/visit.js";
import { Scoring } from "./scoring.js";

const DIGITS = 3;

export class TryIt {
  /**
   * @param poll      of the page
   * @param operator  whether this person may score; others are told once, elsewhere on the page
   * @param ask       async ({op, ...}) -> {state, key, progress, result, error}
   * @param value     present value of a setting
   * @param reveal    shows a setting
   * @param prompts   async () -> some prompts of the data
   * @param kinds     the kinds of component there are: [{kind, takes_reference}]
   */
  constructor({ poll, operator, ask, value, reveal, prompts, kinds }) {
    this.scoring = new Scoring({ poll, ask, say: (text) => this.say(text) });
    this.value = value;
    this.reveal = reveal;
    this.prompts = prompts;
    this.comparing = kinds.filter((kind) => kind.takes_reference).map((kind) => kind.kind);
    this.node = el("section", { class: "rs-try", "aria-labelledby": "rs-try-title", hidden: !operator });
    const kept = memory.get("train.try", {});
    const another = pushButton("rs-quiet", t("Take one of the data"), () => this.another());
    this.prompt = this.text("prompt", t("Prompt"), kept.prompt, another);
    this.response = this.text("response", t("Response"), kept.response);
    this.reference = this.text("reference", t("Reference"), kept.reference);
    this.stopped = el("input", {
      id: "rs-try-stopped",
      type: "checkbox",
      role: "switch",
      class: "rs-switch",
      onchange: () => this.consider(),
    });
    this.stopped.checked = kept.stopped !== false;
    this.button = pushButton("rs-button", t("Score it"), () => this.start());
    this.cancel = el(
      "button",
      { type: "button", class: "rs-quiet", hidden: true, onclick: () => this.stop() },
      t("Cancel"),
    );
    this.status = el("p", { class: "rs-try-status", role: "status" });
    this.results = el("div", { class: "rs-try-results" });
    fill(
      this.node,
      el("h3", { id: "rs-try-title" }, t("Try it")),
      el(
        "p",
        { class: "rs-help" },
        t(
          "Score a text with these rewards, before any run. The prompt is written as the Data section " +
            "says, and the response follows as it is: a space between them belongs to one of the two.",
        ),
      ),
      el("div", { class: "rs-try-texts" }, this.prompt.node, this.response.node, this.reference.node),
      el(
        "div",
        { class: "rs-try-tools rs-flow" },
        this.button,
        this.cancel,
        el("label", { for: "rs-try-stopped" }, this.stopped, t("The response ended by itself")),
        this.status,
      ),
      this.results,
    );
    this.consider();
  }

  text(name, title, value = "", extra = null) {
    const id = `rs-try-${name}`;
    const control = el("textarea", {
      id,
      class: "rs-input",
      rows: 3,
      spellcheck: "false",
      maxlength: 50000,
      oninput: () => this.consider(),
    });
    control.value = value;
    return {
      control,
      node: el(
        "div",
        { class: "rs-field" },
        el("div", { class: "rs-try-label rs-middle" }, el("label", { for: id, class: "rs-label" }, title), extra),
        control,
      ),
    };
  }

  /** Put the next of the data's first prompts into the prompt. */
  async another() {
    const known = await this.prompts().catch((error) => {
      console.error("the prompts could not be read:", error);
      return [];
    });
    if (!known.length) return this.say(t("No prompt can be read; the Data section says why."), true);
    this.prompt.control.value = known[(known.indexOf(this.prompt.control.value) + 1) % known.length];
    this.say("");
    return this.consider();
  }

  /**
   * Settings or texts may have changed: show the reference if a reward reads it, and mark scores that are out of
   * date.
   */
  consider() {
    const components = this.value("reward.components") || [];
    const compared = components.some((component) => this.comparing.includes(component.kind));
    show(this.reference.node, compared || Boolean(this.value("data.reference_column")));
    const stale = Boolean(this.scored) && this.scored !== this.key();
    this.results.classList.toggle("rs-stale", stale);
    if (stale && !this.working) this.say(t("The settings or texts have changed since."));
    else if (this.scored && !this.working) this.say("");
  }

  /** All that the scores depend on. */
  key() {
    const shaping = [
      "components",
      "scaling",
      "score_clip",
      "length_penalty",
      "missing_eos_penalty",
      "missing_eos_mode",
    ].map((name) => this.value(`reward.${name}`));
    const written = ["chat_template", "prompt_format", "system_text"].map((name) => this.value(`data.${name}`));
    return JSON.stringify([
      shaping,
      written,
      this.value("model.policy"),
      this.value("generation.stop_token"),
      this.texts(),
    ]);
  }

  texts() {
    return {
      prompt: this.prompt.control.value,
      response: this.response.control.value,
      reference: this.reference.node.hidden ? null : this.reference.control.value,
      stopped: this.stopped.checked,
    };
  }

  async start() {
    if (this.working) return;
    memory.set("train.try", { ...this.texts(), reference: this.reference.control.value });
    const key = this.key();
    this.busy(true);
    this.say(t("Starting"));
    const answer = await this.scoring.run(this.texts());
    this.busy(false);
    if (answer) this.finish(answer, key);
    else this.say(NO_ANSWER, true);
  }

  async stop() {
    this.cancel.disabled = true;
    await this.scoring.cancel();
  }

  busy(working) {
    this.working = working;
    this.button.disabled = working;
    this.cancel.disabled = false;
    show(this.cancel, working);
    this.node.setAttribute("aria-busy", String(working));
  }

  say(text, wrong = false) {
    setText(this.status, text);
    this.status.classList.toggle("rs-problem", wrong);
  }

  finish(answer, key) {
    if (answer.state === "failed") {
      const problems = (answer.problems || []).map((problem) =>
        this.problem(problem.field, `${problem.message}${bracketed(problem.field)}`),
      );
      this.scored = null;
      this.say(answer.error, true);
      return fill(
        this.results,
        problems.length ? elEach("ul", { class: "rs-try-problems" }, problems, (item) => el("li", {}, item)) : null,
      );
    }
    this.scored = key;
    this.say("");
    this.draw(answer.result);
    return this.consider();
  }

  problem(field, cause) {
    return field ? pushButton("rs-try-problem", cause, () => this.reveal(field)) : el("span", {}, cause);
  }

  draw({ components, sum, final, tokens, notes }) {
    const rows = components.flatMap((row) => {
      const name = rowHead(row.name);
      if (row.error) return [[name, el("td", { colspan: 3 }, this.problem(row.field, row.error))]];
      const weight = figure(`\u00d7 ${number(row.weight, 2)}`);
      const part = (cells) => tableRow(cells, { class: "rs-try-member" });
      return [
        [name, figure(number(row.raw, DIGITS)), weight, figure(number(row.weighted, DIGITS))],
        ...Object.entries(row.members).map(([member, score]) =>
          part([rowHead(member), figure(number(score, DIGITS)), figure(), figure()]),
        ),
        ...row.texts.map((text) =>
          part([rowHead(t("It reads")), el("td", { colspan: 3, class: "rs-try-read" }, readable(text, 60000))]),
        ),
      ];
    });
    const total = (title, value) => [rowHead(title, { colspan: 3 }), figure(number(value, DIGITS))];
    const heads = [t("Component"), ...[t("Raw score"), t("Weight"), t("Weighted")].map((title) => numberHead(title))];
    const foot = [total(t("Sum"), sum), total(t("Final score, as PPO would see it"), final)];
    fill(
      this.results,
      table(heads, rows, { foot }),
      [
        ...(tokens === null ? [] : [t("The response has {tokens}.", { tokens: counted(tokens, "token") })]),
        ...notes,
      ].map((note) => el("p", { class: "rs-help" }, note)),
    );
  }
}
