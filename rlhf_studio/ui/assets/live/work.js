// Samples and inspector together: which step, response and token are shown, what is fetched, and the keys.
import { address } from "../shared/address.js";
import { el, setText, show } from "../shared/dom.js";
import { microscopeAddress } from "../shared/handover.js";
import { Inspector, InspectorPlace } from "../shared/inspector.js";
import { SampleTable, StepPicker } from "./samples.js";
import { t } from "../shared/language.js";

/** The token where a phrase begins in a response, the last time where it ends responses; null when it is not there. */
function tokenOf(pieces, { text, place }) {
  const whole = pieces.join("");
  const at = place === "ending" ? whole.lastIndexOf(text.trim()) : whole.indexOf(text.trim());
  if (at < 0) return null;
  let end = 0;
  return pieces.findIndex((piece) => (end += piece.length) > at);
}

const whole = (text) => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : null);

/** How many of the responses that a step was made of are on record, and of how many the tokens are. */
function countOf(rows, batch) {
  const [count, whole] = [rows.length, rows.filter(({ recorded }) => recorded).length];
  if (count < batch) return t("{count} of {batch} responses are recorded.", { count, batch });
  return whole && whole < count ? t("{count} responses, {whole} of them with tokens.", { count, whole }) : "";
}

/** What the parameters of an address choose. */
export const choiceOf = ({ step, sample, token }) => ({
  step: whole(step),
  sample: whole(sample),
  token: whole(token),
});

/** Whether a question to the class stands above the page: then no address opens a sheet over it, only a click. */
const asked = () => document.querySelector(".rs-class-card:not([hidden])") !== null;

const TYPING = new Set(["INPUT", "TEXTAREA", "SELECT"]);

/**
 * What a person has chosen is `choice` = {step, sample, token}. With step null the page follows the newest step; with
 * sample null it shows the first row; with token null the inspector chooses one. Choosing a row or a token keeps its
 * step. While the pointer or the focus is on the samples or the inspector, the step that is shown stays.
 *
 * A run that waits between two phases of a step has a `scratch`: what that step holds so far. It is shown in the place
 * of the newest step.
 */
export class WorkArea {
  constructor({ page, fetch, onchoice }) {
    this.fetch = fetch;
    this.onchoice = onchoice;
    this.choice = { step: null, sample: null, token: null };
    this.shown = { step: null, sample: null, epoch: -1 };
    this.epoch = -1;
    this.picker = new StepPicker((step) => this.chooseStep(step));
    this.table = new SampleTable((sample, picked) => this.chooseSample(sample, picked));
    this.inspector = new Inspector(
      page.quantities,
      page.card,
      (index, focus) => this.chooseToken(index, focus !== false),
      () => this.fetch({ kind: "scales" }),
      (sample, name) => this.microscope(sample, name),
    );
    this.place = new InspectorPlace(this.inspector, () => this.leaveToken());
    this.opens = false; // whether the inspector is wanted as soon as the response is there
    this.hint = el("p", { class: "rs-hint", hidden: true });
    this.count = el("b", {});
    const panel = el(
      "section",
      { class: "rs-panel rs-samples rs-box", "aria-label": t("Samples") },
      this.picker.node,
      el("p", { class: "rs-samples-hint" }, this.count, " ", el("span", {}, t("Choose a response to look into it."))),
      this.hint,
      this.table.node,
    );
    this.node = el("div", { class: "rs-work" }, panel, this.place.node);
    this.node.addEventListener("keydown", (event) => this.onkey(event, true));
    this.pointed = false;
    for (const part of [this.table.node, this.inspector.node]) {
      part.addEventListener("pointerenter", (event) => (this.pointed = event.pointerType === "mouse"));
      part.addEventListener("pointerleave", () => {
        this.pointed = false;
        this.refresh();
      });
      part.addEventListener("focusout", () => setTimeout(() => this.refresh()));
    }
  }

  /** The way to a response's own lesson, where a critic gave it the numbers that the lesson is about. */
  microscope({ step, sample }, name) {
    const { run } = address.params("live");
    if (!run || this.settings?.advantage !== "gae" || this.scratch?.step === step) return null;
    const { token } = this.choice;
    return el("a", { class: "rs-link", href: microscopeAddress(run, { step, sample, token }) }, name);
  }

  reset(choice) {
    this.failed = new Set(); // of scratch, samples and tokens: those whose last question got no answer
    this.choice = { step: null, sample: null, token: null, ...choice };
    this.want(this.choice.token !== null, true);
    this.shown = { step: null, sample: null, epoch: -1 };
    this.scratch = null;
    this.waiting = "";
    this.inspector.compare("");
    this.table.set([]);
    this.table.choose(null);
    this.inspector.say(t("Choose a response among the samples."));
  }

  /**
   * News from a poll: which steps have samples, and the run's settings.
   *
   * @param unit     what lengths count: tokens or words
   * @param samples  what `samples` of the newest step would be answered, where it came along; see `followed`
   * @param waiting  changes with every pause, empty while the run does not wait: a step may then hold something
   */
  update({ ranges, samples, epoch, settings, unit, alive, waiting }) {
    this.settings = settings;
    this.table.unit = this.inspector.unit = unit;
    this.brought = samples ? { ...samples, epoch } : null;
    if (waiting !== this.waiting) this.look(waiting);
    this.alive = alive;
    if (ranges) this.picker.set(ranges);
    if (epoch !== this.epoch && this.epoch >= 0 && this.choice.step !== null && !this.picker.has(this.choice.step))
      this.choice = { step: null, sample: null, token: null };
    this.epoch = epoch;
    show(this.node, this.picker.count > 0 || Boolean(this.scratch));
    this.refresh();
  }

  /** Fetch what the step that waits holds. */
  async look(waiting) {
    this.waiting = waiting;
    const reply = waiting ? await this.fetch({ kind: "scratch", sample: this.choice.sample ?? -1 }) : null;
    if (this.waiting !== waiting) return;
    if (waiting) this.answered("scratch", reply);
    if (this.scratch || reply?.phase) this.shown = { step: null, sample: null, epoch: -1 };
    this.scratch = reply?.phase ? reply : null;
    show(this.node, this.picker.count > 0 || Boolean(this.scratch));
    this.refresh();
  }

  /** One scale for the run where steps can be compared: when it is over, and once a person has chosen a step. */
  compare() {
    const { step } = this.choice;
    const asked = this.shown.step !== null && (step !== null || !this.alive);
    this.inspector.compare(asked && !this.scratch ? `${this.epoch} ${this.alive}` : "");
  }

  showScratch() {
    const { scratch } = this;
    const { step } = scratch;
    setText(this.picker.title, t("Step {step}, not complete", { step }));
    if (this.drawn === scratch && this.shown.step === step) return;
    this.drawn = scratch;
    this.stepTicket = this.sampleTicket = null; // what was asked for before comes too late
    this.shown = { step, sample: scratch.chosen.sample, epoch: -1 };
    this.scales = scratch.scales;
    this.table.set(scratch.rows);
    setText(this.count, "");
    this.table.choose(scratch.chosen.sample);
    this.inspector.set(scratch.chosen, this.choice.token, this.settings, this.scales, true);
    setText(this.hint, t("Step {step} waits: {done}. You see what is known so far.", { step, done: scratch.done }));
    show(this.hint, true);
  }

  /** The step to show now. */
  wanted() {
    const { step } = this.choice;
    if (step !== null && this.picker.has(step)) return step;
    const { shown } = this;
    return this.held() && shown.epoch === this.epoch && this.picker.has(shown.step) ? shown.step : this.picker.newest();
  }

  /** Whether somebody is at the samples or the inspector just now. */
  held() {
    const focused = [this.table.node, this.inspector.node].some((part) => part.contains(document.activeElement));
    return this.shown.step !== null && (this.pointed || focused);
  }

  /** Part of a poll: which step is shown (-1: none), so that the next one comes along; empty where it is not wanted. */
  followed() {
    const { step, sample } = this.choice;
    if (step !== null || sample !== null || this.scratch || this.held()) return {};
    return { follows: this.shown.epoch === this.epoch ? (this.shown.step ?? -1) : -1 };
  }

  async refresh() {
    const step = this.wanted();
    const newest = this.picker.newest();
    this.picker.update(step, this.choice.step, this.alive, step < newest ? newest : null);
    if (this.scratch && this.choice.step === null) {
      this.showScratch();
      return;
    }
    if (step === null) return;
    if (step !== this.shown.step || this.shown.epoch !== this.epoch) await this.loadStep(step);
    else await this.showSample();
  }

  /** An answer of the app without news: what could not be fetched is asked for again. */
  retry() {
    if (this.failed.delete("scratch")) this.look(this.waiting);
    const others = this.failed.size;
    this.failed.clear();
    if (others) this.refresh();
  }

  /** Whether a question was answered; one that was not is asked again. */
  answered(question, reply) {
    const answered = Boolean(reply && !reply.problem);
    if (answered) this.failed.delete(question);
    else this.failed.add(question);
    return answered;
  }

  async loadStep(step) {
    const ticket = (this.stepTicket = Symbol("step"));
    const { epoch } = this;
    const sample = this.choice.sample ?? -1;
    const { brought } = this;
    const here = sample < 0 && brought?.step === step && brought.epoch === epoch;
    const reply = here ? brought : await this.fetch({ kind: "samples", step, sample });
    if (ticket !== this.stepTicket || step !== this.wanted()) return;
    if (!this.answered("samples", reply)) {
      setText(
        this.hint,
        reply?.problem || t("The samples of this step could not be fetched; trying again with the next news."),
      );
      show(this.hint, true);
      return;
    }
    show(this.hint, false);
    this.shown = { step, sample: null, epoch };
    this.scales = reply.scales;
    const plain = Boolean(reply.pairs && !reply.chosen?.tokens);
    this.table.set(reply.rows, reply.pairs, plain);
    setText(this.count, reply.pairs ? "" : countOf(reply.rows, this.settings?.batch_size));
    this.node.classList.toggle("rs-plain", plain);
    await this.showSample(reply.chosen);
  }

  /** @param fetched  the tokens that came with the table: the ones to show, unless rows are sorted in another order */
  async showSample(fetched = null) {
    const order = this.table.order();
    const { sample } = this.choice;
    const wanted = sample !== null && order.includes(sample) ? sample : this.table.first();
    if (wanted === undefined) return this.inspector.say(t("No responses were recorded at this step."));
    this.table.choose(wanted);
    if (this.shown.sample === wanted) return this.openWanted();
    const ticket = (this.sampleTicket = Symbol("sample"));
    const { step } = this.shown;
    const reply = fetched?.sample === wanted ? fetched : await this.fetch({ kind: "tokens", step, sample: wanted });
    if (ticket !== this.sampleTicket || this.shown.step !== step) return undefined;
    if (!this.answered("tokens", reply))
      return this.inspector.say(
        reply?.problem || t("The tokens could not be fetched; trying again with the next news."),
      );
    this.shown.sample = wanted;
    this.findPhrase(reply);
    this.inspector.set(reply, this.choice.token, this.settings, this.scales);
    this.openWanted();
    if (this.focusToken) this.inspector.pin(this.choice.token, true);
    this.focusToken = false;
    return undefined;
  }

  /** Show a step; null goes on to the newest one. */
  chooseStep(step) {
    if (step === null) this.shown = { step: null, sample: null, epoch: -1 };
    this.choice = { step, sample: null, token: null };
    this.changed();
  }

  /** Show a place that something else on the page points at; a `phrase` {text, place} is looked for in the response. */
  go({ step, sample = null, token = null, phrase = null }) {
    this.want(sample !== null);
    this.choice = { step: this.picker.has(step) ? step : this.shown.step, sample, token };
    this.phrase = phrase;
    if (this.shown.sample === sample && this.shown.step === this.choice.step && token !== null) {
      this.inspector.pin(token, false);
    } else this.shown.sample = null;
    return this.changed();
  }

  /** Show again what was chosen at another time. */
  restore(choice) {
    this.choice = choice;
    this.want(choice.token !== null, true);
    this.shown = { step: null, sample: null, epoch: -1 };
    return this.changed();
  }

  /** The token where the phrase that was asked for begins becomes the chosen one. */
  findPhrase({ tokens }) {
    const found = this.phrase && tokens ? tokenOf(tokens.response_pieces, this.phrase) : null;
    this.phrase = null;
    if (found === null) return;
    this.choice = { step: this.shown.step, sample: this.shown.sample, token: found };
    this.onchoice(this.choice);
  }

  /** The chosen step: none while the step that is shown is not complete. */
  get ownStep() {
    return this.scratch && this.choice.step === null ? null : this.shown.step;
  }

  chooseSample(sample, picked) {
    this.opens = picked;
    this.choice = { step: this.ownStep, sample, token: null };
    if (this.ownStep === null && this.scratch) this.look(this.waiting);
    this.changed();
  }

  chooseToken(token, focus) {
    this.choice = { step: this.ownStep, sample: this.shown.sample, token };
    this.inspector.pin(token, focus);
    this.changed();
  }

  /**
   * Whether the inspector is wanted of what is shown next; where it stands beside the samples it is there anyway.
   * `byAddress`: nobody clicked. A question to the class may come before it opens.
   */
  want(opens, byAddress = false) {
    this.opens = opens;
    this.byAddress = byAddress;
    if (!opens) this.place.close();
  }

  openWanted() {
    const opens = this.opens && !(this.byAddress && asked());
    if (opens && !this.node.classList.contains("rs-plain")) this.place.open();
    this.opens = false;
  }

  /** The sheet was closed: no token is chosen any more. */
  leaveToken() {
    if (this.choice.token === null) return;
    this.choice = { ...this.choice, token: null };
    this.changed();
  }

  changed() {
    this.onchoice(this.choice);
    this.compare();
    return this.refresh();
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
