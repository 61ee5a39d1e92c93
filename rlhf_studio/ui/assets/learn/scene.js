// One scene of a lesson: its text, its figure beside it, its controls, and the question before the result.
import { debounce, el, setText, show } from "../shared/dom.js";
import { control } from "./controls.js";
import { PictureView } from "../pictures/view.js";
import { Prediction } from "./prediction.js";
import { blocks, inline } from "./text.js";

const SAY_AFTER = 700; // milliseconds without a change, before a screen reader is told the numbers
const KEPT_SWEEPS = 12;

export class Scene {
  /**
   * @param text  {name, blocks} of the lesson's text
   * @param lead  {words, lesson(name), ask(question), moved(values, seed)}
   */
  constructor(text, lead) {
    Object.assign(this, {
      name: text.name,
      lead,
      slots: [],
      pictures: new Map(),
      labels: new Map(),
      sweeps: new Map(),
    });
    this.word = (label) => (label.startsWith("@") ? (lead.words[label.slice(1)] ?? label.slice(1)) : label);
    this.reading = { ...lead, slot: (key, node) => this.slots.push([key, node]) };
    this.figure = el("div", { class: "rs-learn-figure" });
    this.said = el("p", { class: "rs-hidden", role: "status" });
    this.say = debounce(SAY_AFTER, () => setText(this.said, this.spoken()));
    this.waiting = []; // what an answer reveals
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

  /** The app has described the scene: its controls, and what it shows. An address may name other values. */
  async begin(description, { set = "", seed } = {}) {
    if (!description) return;
    this.slow = description.slow;
    this.values = Object.fromEntries(description.controls.map(({ name, start }) => [name, start]));
    this.controls = description.controls.map((one) =>
      control(one, this.labels.get(one.name) || [one.name], this.word, {
        changed: (value) => this.change(one.name, value),
        touched: () => this.sweep(one.name),
      }),
    );
    this.panel?.replaceChildren(...this.controls.map(({ node }) => node));
    if (this.slow) this.offerMeasuring();
    if (!description.shown) this.hold(true);
    const named = valuesOf(set, description.controls);
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

  /** Show these values of the controls. */
  async put(values) {
    this.values = values;
    for (const one of this.controls) one.put(values[one.name]);
    if (!this.slow) this.show(await this.compute());
  }

  async change(name, value) {
    this.values = { ...this.values, [name]: value };
    this.prediction?.reset(true);
    this.lead.moved(addressOf(this.values));
    if (this.slow) return this.node.classList.add("rs-learn-stale");
    const sweep = this.sweeps.get(this.sweepKey(name));
    const known = sweep?.answers?.[sweep.values.indexOf(value)];
    const asked = this.values;
    const shown = known || (await this.compute());
    if (asked !== this.values) return undefined; // a later change has been asked for
    this.show(shown);
    this.say();
    return undefined;
  }

  compute() {
    return this.lead.ask({ op: "compute", scene: this.name, values: this.values });
  }

  /** Ask for all values of a control at once, so that moving it needs no answers. */
  async sweep(name) {
    const key = this.sweepKey(name);
    if (this.slow || this.sweeps.has(key)) return;
    const { values } = this.controls.find((one) => one.name === name);
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
    this.lead.moved("", seed);
  }

  /** A question about numbers that are not there yet is not asked. */
  hold(held) {
    for (const question of [this.prediction, ...(this.more || [])]) if (question) show(question.node, !held);
  }

  show(shown) {
    if (!shown) return;
    this.hold(false);
    this.shown = shown;
    for (const [key, node] of this.slots) {
      setText(node, this.word(shown.slots[key] ?? ""));
      node.classList.add("rs-learn-there");
    }
    for (const [name, picture] of Object.entries(shown.pictures)) this.pictures.get(name)?.put(picture);
    for (const question of [this.prediction, ...(this.more || [])]) question?.know(shown.slots);
    this.node.classList.remove("rs-learn-stale");
  }

  spoken() {
    const told = [...this.node.querySelectorAll("p")].filter(
      (node) => node.offsetParent && node.querySelector(".rs-learn-slot"),
    );
    return told.map((node) => node.textContent).join(" ");
  }

  offerMeasuring() {
    const state = el("span", { class: "rs-muted", role: "status" });
    const button = el("button", { type: "button", class: "rs-button rs-small rs-primary" }, "Measure");
    button.addEventListener("click", async () => {
      button.disabled = true;
      setText(state, "Measuring. This takes some seconds.");
      this.show(await this.lead.ask({ op: "compute", scene: this.name, values: this.values, slow: true }));
      setText(state, "");
      button.disabled = false;
    });
    this.figure.append(el("div", { class: "rs-learn-measure" }, button, state));
  }
}

const addressOf = (values) =>
  Object.entries(values)
    .map(([name, value]) => `${name}:${value}`)
    .join(",");

/** Values that an address names, those of the kinds that the controls have; null when there are none. */
function valuesOf(set, controls) {
  const named = Object.fromEntries(set.split(",").map((part) => part.split(":")));
  const found = controls.flatMap(({ name, values }) =>
    values.filter((value) => String(value) === named[name]).map((value) => [name, value]),
  );
  return found.length ? Object.fromEntries(found) : null;
}
