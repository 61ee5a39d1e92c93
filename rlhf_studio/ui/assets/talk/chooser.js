// Which policy answers on one side: a run, and its start or one of its checkpoints.
import { each, el, fill } from "../shared/dom.js";
import { readable, toldApart } from "../shared/format.js";
import { t, tp } from "../shared/language.js";

const START = "start";

export class Chooser {
  /**
   * @param title     of the side
   * @param policies  async function that gives what the server knows of a run, or null
   * @param onchange  called when another policy was chosen
   */
  constructor(title, policies, onchange) {
    this.title = title;
    this.policies = policies;
    this.onchange = onchange;
    this.known = null;
    this.shown = "";
    this.opening = Promise.resolve();
    const id = `rs-talk-${title.toLowerCase()}`;
    this.run = el("select", { class: "rs-input", id, onchange: () => this.open(this.run.value, null, true) });
    this.step = el("select", {
      class: "rs-input",
      "aria-label": t("{title}: step", { title }),
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
    each(this.run, toldApart(runs), ({ id, name, broken }) => {
      const called = readable(name, 80);
      return el("option", { value: id }, broken ? `${called} \u00b7 ${t(broken)}` : called);
    });
    if (runs.some((run) => run.id === chosen)) this.run.value = chosen;
  }

  /** @param wanted "start", "newest", or null: the chosen step stays; in another run it is its newest or its start */
  open(run, wanted, told = false) {
    this.run.value = run;
    this.opening = this.load(run, wanted, told);
    return this.opening;
  }

  /** Whether the teacher has chosen. */
  fix(on) {
    this.run.disabled = this.step.disabled = on;
  }

  /** Whether the checkpoints of the chosen run are known. */
  get isReady() {
    return this.known !== null && this.shown === this.run.value;
  }

  async load(run, wanted, told) {
    const known = await this.policies(run);
    if (!known || this.run.value !== run) return;
    const { steps } = known;
    const chosen = this.step.value; // read only now: it may have been chosen while the server was asked
    const start = wanted ? wanted === START : chosen === START;
    const stays = !wanted && this.shown === run && steps.includes(Number(chosen));
    this.known = known;
    this.shown = run;
    const label = (step) => (step === steps.at(-1) ? t("Step {step} (newest)", { step }) : t("Step {step}", { step }));
    fill(
      this.step,
      el("option", { value: START }, t("Start (step 0)")),
      steps.map((step) => el("option", { value: String(step) }, label(step))),
    );
    if (start || !steps.length) this.step.value = START;
    else this.step.value = stays ? chosen : String(steps.at(-1));
    if (told) this.onchange();
  }

  /** What is sent to the server. */
  get side() {
    return { run: this.run.value, step: this.step.value === START ? null : Number(this.step.value) };
  }

  /** What the policy is called above its answer. */
  name(alone) {
    const step = this.step.value === START ? tp("step", "Start") : t("Step {step}", { step: this.step.value });
    return alone ? step : `${step} · ${this.run.selectedOptions[0]?.textContent ?? ""}`;
  }
}
