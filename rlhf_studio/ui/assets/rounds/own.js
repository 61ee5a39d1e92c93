// The form for a question of the teacher's own.
import { el, elEach, labelled, show } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { Segments } from "../shared/segments.js";

const LONGEST = 400;
const STEPS = 20;

const EXAMPLE = t("For example:\n  Higher\n  Lower\n  About the same");

const numberField = (value) => el("input", { class: "rs-input", type: "number", step: "any", value });

export class OwnQuestion {
  /** @param values  what was typed before, as `values` gives it */
  constructor({ metrics, runs }, values = null) {
    this.metrics = metrics;
    this.text = el("textarea", { class: "rs-input", rows: 2, maxlength: LONGEST });
    this.options = el("textarea", { class: "rs-input", rows: 4, placeholder: EXAMPLE });
    this.right = el("input", { class: "rs-input", type: "number", min: 1, max: 6 });
    this.metric = elEach("select", { class: "rs-input" }, metrics, ({ name, label }) =>
      el("option", { value: name }, label),
    );
    this.last = numberField(STEPS);
    this.low = numberField(0);
    this.high = numberField(1);
    const names = runs.map(({ run, name }) => el("option", { value: run }, name));
    this.run = el("select", { class: "rs-input" }, el("option", { value: "" }, t("Choose it later")), names);
    this.metric.addEventListener("change", () => this.reach());
    const kinds = [
      { value: "options", label: t("Options") },
      { value: "curve", label: t("A curve to draw") },
    ];
    this.kind = "options";
    const choice = new Segments({ "aria-label": t("How they answer") }, kinds, this.kind, (kind) => {
      this.kind = kind;
      this.update();
    });
    this.choices = el(
      "div",
      {},
      labelled(t("Options, one on each line"), this.options),
      labelled(t("Number of the right one (leave it empty if there is none)"), this.right),
    );
    this.drawing = el(
      "div",
      {},
      labelled(t("What is drawn"), this.metric),
      el(
        "div",
        { class: "rs-class-row" },
        labelled(t("Last step"), this.last),
        labelled(t("Lowest"), this.low),
        labelled(t("Highest"), this.high),
      ),
      labelled(t("The run that answers"), this.run),
    );
    this.node = el(
      "div",
      { class: "rs-class-own" },
      labelled(t("Question"), this.text),
      choice.node,
      this.choices,
      this.drawing,
    );
    this.reach();
    if (values) {
      this.fields.forEach((one, place) => (one.value = values.typed[place]));
      choice.choose(values.kind);
    }
    this.update();
  }

  get fields() {
    return [this.text, this.options, this.right, this.metric, this.last, this.low, this.high, this.run];
  }

  /** All that was typed and chosen. */
  get values() {
    return { kind: this.kind, typed: this.fields.map((one) => one.value) };
  }

  reach() {
    const { low, high } = this.metrics.find(({ name }) => name === this.metric.value);
    [this.low.value, this.high.value] = [low, high];
  }

  update() {
    show(this.choices, this.kind === "options");
    show(this.drawing, this.kind === "curve");
  }

  /** As the server takes it. */
  get question() {
    const text = this.text.value;
    if (this.kind === "options") {
      const options = this.options.value.split("\n").filter((line) => line.trim());
      return { text, options, ...(this.right.value ? { right: Number(this.right.value) - 1 } : {}) };
    }
    const [last, low, high] = [this.last, this.low, this.high].map((one) => Number(one.value));
    return { text, draw: this.metric.value, last, low, high, run: this.run.value };
  }
}
