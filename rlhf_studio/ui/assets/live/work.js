// Samples and inspector together: which step, response and token are shown, what is fetched, and the keys.
import { el, setText, show } from "../shared/dom.js";
import { Inspector } from "../shared/inspector.js";
import { SampleTable, StepPicker } from "./samples.js";

const TYPING = new Set(["INPUT", "TEXTAREA", "SELECT"]);

/**
 * What a person has chosen is `choice` = {step, sample, token}. With step null the page follows the newest step; with
 * sample null it shows the first row; with token null the inspector chooses one. Choosing a row or a token keeps its
 * step.
 */
export class WorkArea {
  constructor({ quantities, fetch, onchoice }) {
    this.fetch = fetch;
    this.onchoice = onchoice;
    this.choice = { step: null, sample: null, token: null };
    this.shown = { step: null, sample: null, epoch: -1 };
    this.epoch = -1;
    this.picker = new StepPicker((step) => this.chooseStep(step));
    this.table = new SampleTable((sample) => this.chooseSample(sample));
    this.inspector = new Inspector(quantities, (index, focus) => this.chooseToken(index, focus !== false));
    this.hint = el("p", { class: "rs-hint", hidden: true });
    const panel = el(
      "section",
      { class: "rs-panel rs-samples", "aria-label": "Samples" },
      this.picker.node,
      this.hint,
      this.table.node,
    );
    this.node = el("div", { class: "rs-work" }, panel, this.inspector.node);
    this.node.addEventListener("keydown", (event) => this.onkey(event, true));
  }

  reset(choice) {
    this.choice = { step: null, sample: null, token: null, ...choice };
    this.shown = { step: null, sample: null, epoch: -1 };
    this.table.set([]);
    this.table.choose(null);
    this.inspector.say("Choose a response on the left.");
  }

  /** News from a poll: which steps have samples, and the run's settings. */
  update({ ranges, epoch, settings, alive }) {
    this.settings = settings;
    this.alive = alive;
    if (ranges) this.picker.set(ranges);
    if (epoch !== this.epoch && this.epoch >= 0 && this.choice.step !== null && !this.picker.has(this.choice.step))
      this.choice = { step: null, sample: null, token: null };
    this.epoch = epoch;
    show(this.node, this.picker.count > 0);
    this.refresh();
  }

  /** The step to show now. */
  wanted() {
    const { step } = this.choice;
    return step !== null && this.picker.has(step) ? step : this.picker.newest();
  }

  async refresh() {
    const step = this.wanted();
    this.picker.update(step, this.choice.step, this.alive);
    if (step === null) return;
    if (step !== this.shown.step || this.shown.epoch !== this.epoch) await this.loadStep(step);
    else await this.showSample();
  }

  async loadStep(step) {
    const ticket = (this.stepTicket = Symbol("step"));
    const { epoch } = this;
    const reply = await this.fetch({ kind: "samples", step });
    if (ticket !== this.stepTicket || step !== this.wanted()) return;
    if (!reply || reply.problem) {
      setText(
        this.hint,
        reply?.problem || "The samples of this step could not be fetched; trying again with the next news.",
      );
      show(this.hint, true);
      return;
    }
    show(this.hint, false);
    this.shown = { step, sample: null, epoch };
    this.table.set(reply.rows);
    await this.showSample();
  }

  async showSample() {
    const order = this.table.order();
    const { sample } = this.choice;
    const wanted = sample !== null && order.includes(sample) ? sample : order[0];
    if (wanted === undefined) return this.inspector.say("No responses were recorded at this step.");
    this.table.choose(wanted);
    if (this.shown.sample === wanted) return undefined;
    const ticket = (this.sampleTicket = Symbol("sample"));
    const { step } = this.shown;
    const reply = await this.fetch({ kind: "tokens", step, sample: wanted });
    if (ticket !== this.sampleTicket || this.shown.step !== step) return undefined;
    if (!reply || reply.problem)
      return this.inspector.say(reply?.problem || "The tokens could not be fetched; trying again with the next news.");
    this.shown.sample = wanted;
    this.inspector.set(reply, this.choice.token, this.settings);
    if (this.focusToken) this.inspector.pin(this.choice.token, true);
    this.focusToken = false;
    return undefined;
  }

  chooseStep(step) {
    this.choice = { step, sample: null, token: null };
    this.changed();
  }

  chooseSample(sample) {
    this.choice = { step: this.shown.step, sample, token: null };
    this.changed();
  }

  chooseToken(token, focus) {
    this.choice = { step: this.shown.step, sample: this.shown.sample, token };
    this.inspector.pin(token, focus);
    this.changed();
  }

  changed() {
    this.onchoice(this.choice);
    this.refresh();
  }

  /** `inside`: the focus is in this area, so arrow keys may be taken; elsewhere they scroll the page. */
  onkey(event, inside) {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || this.node.hidden) return;
    const range = event.target.type === "range";
    if (TYPING.has(event.target.tagName) && event.target.type !== "checkbox" && !range) return;
    const arrows = inside && !range;
    const actions = {
      "[": () => this.stepBy(-1),
      "]": () => this.stepBy(1),
      ArrowLeft: arrows && (() => this.inspector.move(-1)),
      ArrowRight: arrows && (() => this.inspector.move(1)),
      ArrowUp: arrows && (() => this.table.move(-1)),
      ArrowDown: arrows && (() => this.table.move(1)),
      Home: arrows && (() => this.inspector.edge(false)),
      End: arrows && (() => this.inspector.edge(true)),
    };
    const quantity = /^[1-9]$/.test(event.key) ? this.inspector.quantities[Number(event.key) - 1] : null;
    const enter = inside && (event.key === "Enter" || event.key === " ") && event.target.matches("[role=option]");
    const action = quantity
      ? () => this.inspector.choose(quantity.name)
      : enter
        ? () => event.target.click()
        : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  stepBy(by) {
    const step = this.shown.step ?? this.wanted();
    if (step !== null) this.chooseStep(this.picker.neighbour(step, by));
  }
}
