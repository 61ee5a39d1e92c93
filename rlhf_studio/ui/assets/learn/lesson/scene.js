// One scene of a lesson: its text, its figure beside it, its controls, and the question before the result.
import { debounce, el, setText, show } from "../../shared/dom.js";
import { readable } from "../../shared/format.js";
import { control } from "./controls.js";
import { PictureView } from "../../pictures/view.js";
import { Prediction } from "./prediction.js";
import { blocks, inline, putSlot } from "./text.js";
import { t } from "../../shared/language.js";

const SAY_AFTER = 700; // milliseconds without a change, before a screen reader is told the numbers
const KEPT_SWEEPS = 12;
const PROMISE = t("Not measured yet. Press “Measure”: then this picture is drawn, and a question follows.");

export class Scene {
  /**
   * @param text  (name, blocks) of the lesson's text
   * @param lead  (words, lesson(name), ask(question), moved(values, seed), share(scene, values))
   */
  constructor(text, lead) {
    this.name = text.name;
    this.lead = lead;
    this.slots = [];
    this.pictures = new Map();
    this.labels = new Map();
    this.sweeps = new Map();
    this.word = (label) =>
      /^@[^@]/.test(label) ? (lead.words[label.slice(1)] ?? label.slice(1)) : readable(label.replace(/^@@/, "@"), 1000);
    this.reading = { ...lead, slot: (key, node) => this.slots.push([key, node]) };
    this.figure = el("div", { class: "rs-learn-figure" });
    this.said = el("p", { class: "rs-hidden", role: "status" });
    this.say = debounce(SAY_AFTER, () => setText(this.said, this.spoken()));
    this.waiting = []; // what an answer reveals
    this.cannot = el("p", { class: "rs-learn-why", role: "status", hidden: true });
    this.before = el("div", { class: "rs-learn-text" });
    this.after = el("div", { class: "rs-learn-text" });
    this.node = el(
      "section",
      { class: "rs-learn-scene", "data-scene": text.name },
      this.before,
      this.figure,
      this.after,
      this.said,
    );
    for (const block of text.blocks) this.add(block);
    for (const node of this.waiting) show(node, false);
    this.hold(true);
    this.figure.append(this.cannot);
    new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      this.catchUp();
    }).observe(this.node);
  }

  add(block) {
    const asked = Boolean(this.prediction);
    if (block.kind === "picture") {
      const view = new PictureView(inline(block.caption, this.reading), this.word);
      this.pictures.set(block.name, view);
      (asked ? this.after : this.figure).append(view.node); // a result stands where it is spoken of
      if (asked) this.waiting.push(view.node);
    } else if (block.kind === "controls") {
      this.panel = el("div", { class: "rs-learn-controls" });
      for (const { name, label } of block.items) this.labels.set(name, inline(label, this.reading));
      this.figure.append(this.panel);
    } else if (block.kind === "predict" && !asked) {
      this.prediction = new Prediction(block, this.reading, this.word, {
        reveal: () => this.reveal(true),
        again: () => this.drawAgain(),
      });
      this.after.append(this.prediction.node);
    } else {
      const [node] = block.kind === "predict" ? [this.second(block)] : blocks([block], this.reading);
      (this.figure.hasChildNodes() || asked ? this.after : this.before).append(node);
      if (asked) this.waiting.push(node);
    }
  }

  /** A further question of the scene; it hides nothing. */
  second(block) {
    this.more = [
      ...(this.more || []),
      new Prediction(block, this.reading, this.word, { reveal: () => {}, again: null }),
    ];
    return this.more.at(-1).node;
  }

  reveal(visible) {
    for (const node of this.waiting) show(node, visible);
    if (visible) for (const view of this.pictures.values()) view.redraw();
  }

  /** On paper every question has its answer, and what follows it is there. */
  print(begins) {
    const questions = [this.prediction, ...(this.more || [])].filter(Boolean);
    const open = Boolean(this.prediction && !this.prediction.explained);
    for (const question of questions) question.print(begins);
    if (open) this.reveal(begins);
  }

  /** What came with the lesson: it is there to be read, until the app has computed its own. */
  prepare(description) {
    if (!description?.shown) return;
    this.prepared = true;
    this.take(description);
    if (this.panel) this.panel.inert = true;
    this.node.classList.add("rs-learn-prepared");
    this.show(description.shown);
  }

  take({ controls }) {
    this.described = controls;
    // null: what the app takes where a reader has chosen nothing
    this.values = Object.fromEntries(
      this.described.map(({ name, start, made, shared, value }) => [name, !made ? start : shared ? value : null]),
    );
    this.controls = this.described.map((one) => this.made(one));
    this.panel?.replaceChildren(...this.controls.map(({ node }) => node));
  }

  /** The app has described the scene: its controls, and what it shows. An address may name other values. */
  async begin(description, { set = "", seed = undefined, everywhere = "" } = {}) {
    if (!description) return;
    this.slow = description.slow;
    this.take(description);
    if (this.panel) this.panel.inert = false;
    if (this.slow) this.offerMeasuring();
    if (!description.shown && !this.prepared) this.hold(true);
    const typed = this.described.filter(({ kind }) => kind === "typed");
    const named = valuesOf(set || everywhere, set ? this.described : typed);
    if (seed) await this.drawAgain(Number(seed));
    else if (named) await this.put({ ...this.values, ...named });
    else if (description.shown) this.show(description.shown);
    else if (!this.slow) await this.first();
  }

  /** The numbers of the start, where something had to be loaded for them; unless a control was moved meanwhile. */
  async first() {
    const asked = this.values;
    const shown = await this.compute();
    if (asked === this.values) this.show(shown);
  }

  made(described) {
    const made = control(described, this.labels.get(described.name) || [described.name], this.word, {
      changed: (value) => this.change(described.name, value),
      touched: () => this.sweep(described.name),
    });
    if (described.value !== undefined) made.put(described.value);
    return made;
  }

  /** Controls that depend on the run, as they are now: what they can be follows from the step and the response. */
  follow(described) {
    for (const one of described) {
      const at = this.controls.findIndex(({ name }) => name === one.name);
      const before = this.described[at];
      const now = { ...before, ...one };
      this.described[at] = now;
      if (now.shared) this.values = { ...this.values, [one.name]: one.value };
      if (JSON.stringify([before.values, before.start]) !== JSON.stringify([now.values, now.start])) {
        const { node } = this.controls[at];
        this.controls[at] = this.made(now);
        node.replaceWith(this.controls[at].node);
      } else this.controls[at].put(one.value);
    }
  }

  /** Show these values of the controls. */
  async put(values) {
    this.values = values;
    for (const one of this.controls) if (values[one.name] !== null) one.put(values[one.name]);
    if (!this.slow) this.show(await this.compute());
  }

  async change(name, value) {
    const of = this.described.find((one) => one.name === name);
    this.values = { ...this.values, [name]: of.own && value === of.start ? null : value };
    this.prediction?.reset(true);
    this.lead.moved(addressOf(this.values));
    if (of.shared) this.lead.share(this, { [name]: value });
    if (this.slow) return this.node.classList.add("rs-learn-stale");
    const sweep = this.sweeps.get(this.sweepKey(name));
    const known = sweep?.answers?.[sweep.values.indexOf(value)];
    if (!known) return this.ask();
    this.show(known);
    this.say();
    return undefined;
  }

  /** What the values show. One question at a time: while it is answered, only the latest change waits. */
  async ask() {
    this.behind = false;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    do {
      this.again = false;
      const asked = this.values;
      const shown = await this.compute();
      if (asked !== this.values) continue; // a later change has been asked for
      this.show(shown);
      this.say();
    } while (this.again);
    this.asking = false;
  }

  /** Another scene of the lesson has other values of what both have. */
  adopt(values) {
    const mine = this.described?.filter(({ name, shared }) => shared && name in values).map(({ name }) => name) || [];
    if (!mine.length) return;
    this.values = { ...this.values, ...Object.fromEntries(mine.map((name) => [name, values[name]])) };
    for (const one of this.controls) if (mine.includes(one.name)) one.put(values[one.name]);
    this.prediction?.reset(true);
    this.node.classList.add("rs-learn-stale");
    this.behind = true;
    this.catchUp();
  }

  /** A scene that nobody sees asks nothing: it waits until it is seen. */
  catchUp() {
    if (this.behind && this.seen) this.ask();
  }

  compute() {
    return this.lead.ask({ op: "compute", scene: this.name, values: this.values });
  }

  /** Ask for all values of a control at once, so that moving it needs no answers. */
  async sweep(name) {
    const key = this.sweepKey(name);
    if (this.slow || this.sweeps.has(key)) return;
    const { values, swept } = this.controls.find((one) => one.name === name);
    if (!swept) return;
    this.sweeps.set(key, { values });
    while (this.sweeps.size > KEPT_SWEEPS) this.sweeps.delete(this.sweeps.keys().next().value);
    const answers = await this.lead.ask({ op: "sweep", scene: this.name, control: name, values: this.values });
    if (answers) this.sweeps.set(key, { values, answers });
    else this.sweeps.delete(key);
  }

  sweepKey(name) {
    const others = Object.entries(this.values).filter(([other]) => other !== name);
    return JSON.stringify([name, others]);
  }

  /** Other values, drawn by the app, for the same question. */
  async drawAgain(seed = Math.floor(Math.random() * 1_000_000)) {
    const found = await this.lead.ask({ op: "draw", scene: this.name, seed, slow: this.slow });
    if (!found) return;
    this.values = found.values;
    for (const one of this.controls) one.put(found.values[one.name]);
    this.prediction?.reset(false);
    this.reveal(false);
    this.show(found.shown);
    this.say();
    const shared = this.described.filter((one) => one.shared).map(({ name }) => [name, found.values[name]]);
    if (shared.length) this.lead.share(this, Object.fromEntries(shared));
    this.lead.moved(shared.length ? addressOf(found.values) : "", shared.length ? undefined : seed);
  }

  /** A question about numbers that are not there yet is not asked. */
  hold(held) {
    for (const question of [this.prediction, ...(this.more || [])]) if (question) show(question.node, !held);
  }

  show(shown) {
    if (!shown) return;
    if (shown.controls) this.follow(shown.controls);
    this.node.classList.toggle("rs-learn-cannot", Boolean(shown.problem));
    show(this.cannot, Boolean(shown.problem));
    setText(this.cannot, shown.problem || "");
    this.node.classList.remove("rs-learn-stale");
    if (shown.problem) return;
    this.hold(false);
    if (!this.panel?.inert) this.node.classList.remove("rs-learn-prepared");
    this.shown = shown;
    for (const [key, node] of this.slots) {
      putSlot(node, this.word(shown.slots[key] ?? ""));
      node.classList.add("rs-learn-there");
    }
    for (const [name, picture] of Object.entries(shown.pictures)) this.pictures.get(name)?.put(picture);
    for (const question of [this.prediction, ...(this.more || [])]) question?.know(shown.slots);
  }

  spoken() {
    const told = [...this.node.querySelectorAll("p")].filter(
      (node) => node.offsetParent && node.querySelector(".rs-learn-slot"),
    );
    return told.map((node) => node.textContent).join(" ");
  }

  offerMeasuring() {
    for (const view of this.pictures.values()) view.promise(PROMISE);
    const state = el("span", { class: "rs-muted", role: "status" });
    const button = el("button", { type: "button", class: "rs-button rs-small rs-primary" }, t("Measure"));
    button.addEventListener("click", async () => {
      button.disabled = true;
      setText(state, t("Measuring. This takes some seconds."));
      this.show(await this.lead.ask({ op: "compute", scene: this.name, values: this.values, slow: true }));
      setText(state, "");
      button.disabled = false;
    });
    this.figure.append(el("div", { class: "rs-learn-measure rs-middle" }, button, state));
  }
}

const addressOf = (values) =>
  Object.entries(values)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}:${value}`)
    .join(",");

/** Values that an address names, those of the kinds that the controls have; null when there are none. */
function valuesOf(set, controls) {
  const named = Object.fromEntries(set.split(",").map((part) => part.split(":")));
  const found = controls.flatMap(({ name, kind, values }) =>
    (kind === "typed" && named[name] ? [named[name]] : values)
      .filter((value) => String(value) === named[name])
      .map((value) => [name, value]),
  );
  return found.length ? Object.fromEntries(found) : null;
}
