// Before and now: the starting policy's answer beside the newest one to the same prompt, both coloured by token.
import { each, el, fill, memory, redraw, setText, show } from "../shared/dom.js";
import { lower, number, readable, signed } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { Legend, colouredTokens, scaleOf, valuesOf } from "../shared/tokens.js";

const SHOWN = ["kl", "values", "entropy", "loss"];

export class Answers {
  constructor(fetch, quantities) {
    this.fetch = fetch;
    this.quantities = quantities.filter((quantity) => SHOWN.includes(quantity.name));
    const kept = memory.get("answers.quantity", "kl");
    this.quantity = this.quantities.find((quantity) => quantity.name === kept) || this.quantities[0];
    this.buildChoice();
    this.note = el("span", { class: "rs-muted" });
    this.prompt = el("span", { class: "rs-pair-prompt" });
    this.place = el("span", { class: "rs-muted" });
    const turn = (by, label, text) =>
      el(
        "button",
        { type: "button", class: "rs-button rs-small", "aria-label": label, onclick: () => this.turn(by) },
        text,
      );
    this.turns = el(
      "span",
      { class: "rs-turns" },
      turn(-1, "Previous prompt", "‹"),
      this.place,
      turn(1, "Next prompt", "next prompt ›"),
    );
    this.body = el("div", { class: "rs-before rs-column" });
    this.legend = new Legend();
    this.all = el("details", { class: "rs-all-answers" }, el("summary", {}, "All prompts"));
    this.list = el("div", { class: "rs-answer-list" });
    this.all.append(this.list);
    this.all.addEventListener("toggle", () => this.loadAll());
    this.node = el(
      "section",
      { class: "rs-panel rs-answers rs-box", "aria-label": "Before and now", hidden: true },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, "Before and now"), this.note, this.turns),
      this.body,
      el("div", { class: "rs-answers-foot" }, this.choice.node, this.legend.node),
      this.all,
    );
    this.reset();
  }

  buildChoice() {
    const options = this.quantities.map(({ name, label }) => ({ value: name, label, term: name }));
    this.choice = new Segments({ "aria-label": "Colour answers by" }, options, this.quantity.name, (name) =>
      this.colour(name),
    );
  }

  /** The quantities that a run's stage has. */
  offer(quantities, all = quantities) {
    this.offered = all;
    const before = this.choice.node;
    this.quantities = quantities.filter((quantity) => SHOWN.includes(quantity.name));
    this.quantity = this.quantities.find(({ name }) => name === this.quantity.name) || this.quantities[0];
    this.quantity ||= { name: "", label: "", scale: "sequential", noise: 0 };
    this.buildChoice();
    before.replaceWith(this.choice.node);
  }

  reset() {
    this.key = this.listKey = "";
    this.samples = [];
    this.sample = -1; // the first one
    this.pair = null;
    this.drawnAs = this.listedAs = "";
    show(this.node, false);
  }

  /** Fetch again when a new answer can be there: `key` changes with it. */
  async update(key) {
    if (key === this.key) return;
    const before = this.key;
    this.key = key;
    if (!(await this.load()) && this.key === key) this.key = before;
  }

  turn(by) {
    const { samples } = this;
    this.sample = samples[(samples.indexOf(this.sample) + by + samples.length) % samples.length];
    this.load();
  }

  /** Whether it could be fetched, or another question has taken its place. */
  async load() {
    const ticket = (this.ticket = Symbol("answer"));
    const reply = await this.fetch({ kind: "answer", sample: this.sample });
    if (ticket !== this.ticket) return true;
    if (!reply || reply.problem) return false;
    this.samples = reply.samples;
    show(this.node, this.samples.length > 0);
    if (this.samples.length) {
      this.sample = reply.sample;
      this.draw(reply);
      this.loadAll();
    }
    return true;
  }

  colour(name) {
    this.quantity = this.quantities.find((quantity) => quantity.name === name);
    memory.set("answers.quantity", name);
    if (this.pair) this.draw(this.pair);
  }

  /** Let a person choose among the quantities that an answer has. */
  limit({ tokens }) {
    const has = ({ name }) => tokens && valuesOf(tokens, name).some(Number.isFinite);
    if (this.offered && tokens && !this.quantities.every(has)) this.offer(this.offered.filter(has), this.offered);
  }

  draw(pair) {
    this.pair = pair;
    this.limit(pair.now);
    const changed = pair.now.step > 0;
    setText(this.note, changed ? `after step ${pair.now.step}` : "the next answers come during training");
    setText(this.prompt, readable(pair.prompt, 400));
    setText(this.place, `${this.samples.indexOf(pair.sample) + 1} of ${this.samples.length}`);
    const given = pair.scales[this.quantity.name];
    const coloured = Boolean(pair.now.tokens);
    show(this.choice.node, coloured);
    show(this.legend.node, coloured);
    const content = JSON.stringify([pair, this.quantity.name]);
    if (this.drawnAs === content) return;
    this.drawnAs = content;
    redraw(this.body, this.turns.lastChild, () =>
      fill(
        this.body,
        el("p", {}, this.prompt),
        answer("before", pair.before, null, this.quantity, given),
        changed ? answer("now", pair.now, pair.before, this.quantity, given) : null,
      ),
    );
    if (!coloured) return;
    const values = [pair.before, pair.now].flatMap(({ tokens }) =>
      tokens ? valuesOf(tokens, this.quantity.name) : [],
    );
    this.legend.update(this.quantity, values, this.unit(pair, given), scaleOf(values, this.quantity, given));
  }

  /** What the colours stand for, and which answer has none because its value is the same everywhere. */
  unit(pair, given) {
    const { quantity } = this;
    const still = ["before", "now"].flatMap((when) => {
      const values = pair[when].tokens ? valuesOf(pair[when].tokens, quantity.name) : [];
      const { centre } = scaleOf(values, quantity, given);
      return centre === (given?.centre ?? centre) ? [] : [`; ${when}: ${number(centre)} everywhere`];
    });
    return `${lower(quantity.label)} per token${still.join("")}`;
  }

  /** The texts of all prompts, while a person has them open. */
  async loadAll() {
    if (!this.all.open || this.listKey === this.key) return;
    const { key } = this;
    const reply = await this.fetch({ kind: "watched" });
    if (!reply || reply.problem || this.key !== key) return;
    this.listKey = key;
    const content = JSON.stringify(reply.rows);
    if (this.listedAs === content) return;
    this.listedAs = content;
    redraw(this.list, this.all.firstChild, () => each(this.list, reply.rows, (row) => pairOf(row, this.quantity)));
  }
}

/** The texts of one prompt's two answers. */
function pairOf(row, quantity) {
  return el(
    "article",
    { class: "rs-pair rs-column" },
    el("p", { class: "rs-pair-prompt" }, readable(row.prompt)),
    answer("before", row.before, null, quantity, null),
    row.now.step > 0 ? answer("now", row.now, row.before, quantity, null) : null,
  );
}

function answer(label, item, base, quantity, given) {
  const text = item.tokens
    ? colouredTokens(item.tokens, quantity, given, item.stopped)
    : item.response
      ? readable(item.response)
      : el("em", {}, "(empty)");
  return el(
    "div",
    { class: base ? "rs-answer" : "rs-answer rs-was" },
    el("span", { class: "rs-answer-label" }, label),
    el("p", { class: "rs-answer-text", tabindex: "0" }, text),
    el(
      "span",
      { class: "rs-answer-numbers" },
      item.score === null ? null : fact("score", "score", item.score, base?.score),
      item.gold === null ? null : fact("gold", "gold", item.gold, base?.gold),
      item.kl === null || item.kl === undefined ? null : fact("KL", "sample_kl", item.kl, null),
    ),
  );
}

function fact(name, term, value, base) {
  const change = Number.isFinite(value) && Number.isFinite(base) ? value - base : null;
  return el(
    "span",
    { "data-term": term },
    `${name} `,
    el("b", {}, number(value)),
    change === null
      ? null
      : el("em", { class: change > 0 ? "rs-up" : change < 0 ? "rs-down" : null }, ` ${signed(change)}`),
  );
}
