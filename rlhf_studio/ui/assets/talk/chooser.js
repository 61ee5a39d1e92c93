// Which policy answers on one side: a run, and its start or one of its checkpoints.
import { el, fill } from "../shared/dom.js";
import { readable } from "../shared/format.js";

const START = "start";

export class Chooser {
  /**
   * @param title     of the side
   * @param policies  async function that gives what the server knows of a run, or null
   * @param onchange  called when another policy was chosen
   */
  constructor(title, policies, onchange) {
    Object.assign(this, { title, policies, onchange, known: null });
    const id = `rs-talk-${title.toLowerCase()}`;
    this.run = el("select", { class: "rs-input", id, onchange: () => this.open(this.run.value, null, true) });
    this.step = el("select", {
      class: "rs-input",
      "aria-label": `${title}: step`,
      onchange: () => onchange(),
    });
    this.node = el(
      "div",
      { class: "rs-talk-side" },
      el("label", { class: "rs-label", for: id }, title),
      this.run,
      this.step,
    );
  }

  /** The runs that can be chosen; the chosen one stays chosen. */
  setRuns(runs) {
    const chosen = this.run.value;
    fill(
      this.run,
      runs.map(({ id, name }) => el("option", { value: id }, readable(name, 80))),
    );
    if (runs.some((run) => run.id === chosen)) this.run.value = chosen;
  }

  /** @param wanted "start", "newest", or null: the newest, or the start where it was chosen */
  async open(run, wanted, told = false) {
    const before = wanted || (this.step.value === START ? START : "newest");
    this.run.value = run;
    const known = await this.policies(run);
    if (!known || this.run.value !== run) return;
    this.known = known;
    const { steps } = known;
    const label = (step) => `Step ${step}${step === steps.at(-1) ? " (newest)" : ""}`;
    fill(
      this.step,
      el("option", { value: START }, "Start (step 0)"),
      steps.map((step) => el("option", { value: String(step) }, label(step))),
    );
    this.step.value = before === START || !steps.length ? START : String(steps.at(-1));
    if (told) this.onchange();
  }

  /** What is sent to the server. */
  get side() {
    return { run: this.run.value, step: this.step.value === START ? null : Number(this.step.value) };
  }

  /** What the policy is called above its answer. */
  name(alone) {
    const step = this.step.value === START ? "Start" : `Step ${this.step.value}`;
    return alone ? step : `${step} · ${this.run.selectedOptions[0]?.textContent ?? ""}`;
  }
}
