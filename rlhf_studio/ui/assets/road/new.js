// The form of a new road: one's own model and files, or the bundled world.
import { each, el, fill, labelled, pushButton, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { NO_ANSWER } from "../shared/visit.js";
import { colon, t } from "../shared/language.js";

const OWN = "own";
const FIELDS = {
  policy: [t("Model"), t("folder, hub id or run"), t("The one that learns. Required.")],
  demonstrations: [t("Demonstrations"), t("file or dataset"), t("Good answers, for fine-tuning. Empty: left out.")],
  pairs: [t("Pairs"), t("file or dataset"), t("Two answers, one of them better: a reward model learns from them.")],
  prompts: [t("Prompts"), t("file or dataset"), t("What PPO practises on; some are held out for the comparison.")],
  reward: [
    t("Reward"),
    t("trained on your pairs"),
    t("In place of one trained on pairs: a rule such as lexicon (sentiment words), a Python file, or a reward model."),
  ],
  judge: [
    t("Judge"),
    t("the reward itself"),
    t("Compares the end with the start. Best of another origin than the reward."),
  ],
};

const LENGTHS = {
  small: t("Small: 12,000 reviews, 1,500 pairs, 12 steps of PPO"),
  full: t("Full: 110,000 reviews, 8,000 pairs, 30 steps of PPO"),
};

export class NewRoad {
  /**
   * @param look    given the form's values; gives `rows`, one for each part, or `problems` with the fields to blame
   * @param begin   given what to begin; the same, or `road`
   * @param chosen  called when a person chooses own files or the world
   */
  constructor({ look, begin, chosen }) {
    this.look = look;
    this.chosen = chosen;
    this.begin = begin;
    this.asked = 0;
    this.starting = this.under = false;
    const text = (placeholder) =>
      el("input", {
        class: "rs-input",
        type: "text",
        placeholder,
        spellcheck: "false",
        onchange: () => this.changed(),
      });
    this.fields = Object.fromEntries(
      Object.entries(FIELDS).map(([name, [, placeholder]]) => [name, text(placeholder)]),
    );
    this.fields.minutes = el("input", {
      class: "rs-input",
      type: "number",
      min: 0,
      max: 100000,
      placeholder: t("no limit"),
      onchange: () => this.changed(),
    });
    this.anyway = el("input", { type: "checkbox" });
    this.length = el(
      "select",
      { class: "rs-input", id: "rs-road-length" },
      Object.entries(LENGTHS).map(([value, label]) => el("option", { value }, label)),
    );
    this.rounds = el("select", { class: "rs-input", id: "rs-road-rounds" });
    this.problems = el("ul", { class: "rs-road-problems", role: "alert", hidden: true });
    this.plan = el("div", { "aria-live": "polite" });
    this.startOwn = el("button", { type: "submit", class: "rs-button rs-primary" }, t("Start"));
    this.startWorld = pushButton("rs-button rs-primary", t("Run all on the world"), () => this.beginWorld());
    this.which = new Segments(
      { "aria-label": t("What the road is for") },
      [
        { value: OWN, label: t("Your own files") },
        { value: "world", label: t("The bundled world") },
      ],
      OWN,
      (value) => {
        this.choose(value);
        this.chosen();
      },
    );
    this.own = this.ownForm();
    this.world = this.worldForm();
    this.node = el(
      "section",
      { class: "rs-road-new rs-box", "aria-label": t("New road") },
      this.which.node,
      this.own,
      this.world,
    );
    this.choose(OWN);
  }

  ownForm() {
    const field = (name) => labelled(FIELDS[name][0], this.fields[name], FIELDS[name][2]);
    return el(
      "form",
      { onsubmit: (event) => this.beginOwn(event) },
      el(
        "div",
        { class: "rs-road-fields" },
        Object.keys(FIELDS).map(field),
        labelled(t("Minutes"), this.fields.minutes, t("For the whole, divided over the parts.")),
      ),
      this.problems,
      this.plan,
      el(
        "div",
        { class: "rs-road-tools" },
        this.startOwn,
        el("label", { class: "rs-road-small rs-middle" }, this.anyway, t("Go on after a part that was not worth it")),
      ),
    );
  }

  worldForm() {
    const rounds = el("label", { class: "rs-label", for: "rs-road-rounds" }, t("Rounds"));
    const help = t("Each round samples new pairs, trains the reward model on them and goes on with PPO.");
    return el(
      "div",
      { class: "rs-road-tools" },
      this.startWorld,
      el("label", { class: "rs-label", for: "rs-road-length" }, t("Length")),
      this.length,
      rounds,
      this.rounds,
      el("p", { class: "rs-help" }, help),
    );
  }

  choose(value) {
    this.isOwn = value === OWN;
    show(this.own, value === OWN);
    show(this.world, value !== OWN);
  }

  /** @param under  whether a road is under way: nothing else can start */
  draw({ under, most, secondary }) {
    this.under = under;
    this.busy(this.starting);
    for (const button of [this.startOwn, this.startWorld]) {
      button.title = under ? t("A road is under way: wait for its end, or stop it first.") : "";
      button.classList.toggle("rs-primary", !secondary);
    }
    if (this.rounds.options.length) return;
    for (let n = 1; n <= most; n += 1) this.rounds.append(el("option", { value: n }, String(n)));
  }

  get values() {
    const values = Object.fromEntries(Object.entries(this.fields).map(([name, input]) => [name, input.value.trim()]));
    return { ...values, minutes: Number(values.minutes) || 0, anyway: this.anyway.checked };
  }

  async changed() {
    this.blame([]);
    const values = this.values;
    if (!this.fields.policy.value.trim()) return void fill(this.plan);
    this.asked += 1;
    const asked = this.asked;
    fill(this.plan, el("p", { class: "rs-help" }, t("Looking at your model and files …")));
    const reply = await this.look(values).catch(() => ({ problems: [{ field: "", text: NO_ANSWER }] }));
    if (asked !== this.asked) return;
    this.blame(reply.problems || []);
    this.drawPlan(reply.rows || []);
  }

  blame(problems) {
    for (const input of Object.values(this.fields)) input.removeAttribute("aria-invalid");
    for (const { field } of problems) this.fields[field]?.setAttribute("aria-invalid", "true");
    const named = (field) => (field ? colon(FIELDS[field]?.[0] || t("Minutes"), "") : "");
    each(this.problems, problems, ({ field, text }) => el("li", {}, `${named(field)}${text}`));
    show(this.problems, problems.length > 0);
  }

  drawPlan(rows) {
    if (!rows.length) return void fill(this.plan);
    fill(
      this.plan,
      el("h3", {}, t("What will be done")),
      el(
        "ol",
        { class: "rs-road-plan" },
        rows.map((row) => this.row(row)),
      ),
    );
  }

  row({ title, state, text, time, memory, fitted = [], warnings = [] }) {
    const needs = [time && t("Time: {time}", { time }), memory && t("memory: {memory}", { memory })]
      .filter(Boolean)
      .join("; ");
    return el(
      "li",
      { data: { state } },
      el("h4", {}, title),
      el("p", {}, state === "skipped" ? t("Left out. {text}", { text }) : text),
      needs && el("p", { class: "rs-help" }, `${needs}.`),
      warnings.map((warning) => el("p", { class: "rs-problem" }, warning)),
      fitted.length > 0 &&
        el(
          "details",
          {},
          el(
            "summary",
            { class: "rs-help" },
            t("{settings} from your model and file", { settings: counted(fitted.length, "setting") }),
          ),
          el(
            "ul",
            { class: "rs-road-fitted" },
            fitted.map((line) => el("li", {}, line)),
          ),
        ),
    );
  }

  beginOwn(event) {
    event.preventDefault();
    return this.send({ own: this.values });
  }

  /** The whole road through the world with what is chosen; at first the small one, in one round. */
  beginWorld() {
    return this.send({ rounds: Number(this.rounds.value) || 1, small: this.length.value === "small" });
  }

  async send(wish) {
    if (this.starting || this.under) return;
    this.asked += 1; // an answer to an earlier question comes too late
    this.busy(true);
    setText(this.startOwn, t("Starting …"));
    const reply = await this.begin(wish);
    setText(this.startOwn, t("Start"));
    this.busy(false);
    this.blame(reply?.problems || []);
  }

  busy(starting) {
    this.starting = starting;
    for (const button of [this.startOwn, this.startWorld])
      button.setAttribute("aria-disabled", String(Boolean(starting || this.under))); // not disabled: the focus stays
  }
}
