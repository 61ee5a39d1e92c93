// Before and now: the starting policy's answer beside the newest one to the same prompt, both coloured by token.
import { ColourChoice, answerNumbers, promptTurns } from "../shared/answers.js";
import { each, el, fill, redraw, setText, show } from "../shared/dom.js";
import { lower, number, readable } from "../shared/format.js";
import { Legend, answerText, scaleOf, valuesOf } from "../shared/tokens.js";
import { t } from "../shared/language.js";

const SHOWN = ["kl", "values", "entropy", "loss"];

export class Answers {
  constructor(fetch, quantities) {
    this.fetch = fetch;
    const onchoice = () => this.pair && this.draw(this.pair);
    this.choice = new ColourChoice({ key: "answers.quantity", first: "kl", label: t("Colour answers by"), onchoice });
    this.offer(quantities);
    this.note = el("span", { class: "rs-muted" });
    this.prompt = el("span", { class: "rs-pair-prompt" });
    this.place = el("span", { class: "rs-muted" });
    this.turns = promptTurns((by) => this.turn(by), this.place);
    this.body = el("div", { class: "rs-before rs-column" });
    this.legend = new Legend();
    this.all = el("details", { class: "rs-all-answers" }, el("summary", {}, t("All prompts")));
    this.list = el("div", { class: "rs-answer-list" });
    this.all.append(this.list);
    this.all.addEventListener("toggle", () => this.loadAll());
    this.node = el(
      "section",
      { class: "rs-panel rs-answers rs-box", "aria-label": t("Before and now"), hidden: true },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, t("Before and now")), this.note, this.turns),
      this.body,
      el("div", { class: "rs-answers-foot rs-flow" }, this.choice.node, this.legend.node),
      this.all,
    );
    this.reset();
  }

  /** The quantities that a run's stage has. */
  offer(quantities, all = quantities) {
    this.offered = all;
    this.choice.offer(quantities.filter(({ name }) => SHOWN.includes(name)));
  }

  get quantity() {
    return this.choice.quantity;
  }

  reset() {
    this.key = this.listKey = "";
    this.samples = [];
    this.sample = -1; // the first one
    this.pair = null;
    this.drawnAs = this.listedAs = "";
    show(this.node, false);
  }

  /** Called with all news: fetch again when a new answer can be there, for which `key` changes. */
  async follow(key) {
    if (!key || key === this.key) return;
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

  /** Let a person choose among the quantities that an answer has. */
  limit({ tokens }) {
    const has = ({ name }) => tokens && valuesOf(tokens, name).some(Number.isFinite);
    if (tokens && !this.choice.quantities.every(has)) this.offer(this.offered.filter(has), this.offered);
  }

  draw(pair) {
    this.pair = pair;
    this.limit(pair.now);
    const changed = pair.now.step > 0;
    setText(
      this.note,
      changed ? t("after step {step}", { step: pair.now.step }) : t("the next answers come during training"),
    );
    setText(this.prompt, readable(pair.prompt, 400));
    const at = this.samples.indexOf(pair.sample) + 1;
    setText(this.place, t("{at} of {all}", { at, all: this.samples.length }));
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
      return centre === (given?.centre ?? centre)
        ? []
        : [
            t("; {when}: {centre} everywhere", {
              when: when === "now" ? t("now") : t("before"),
              centre: number(centre),
            }),
          ];
    });
    return t("{label} per {token}", { label: lower(quantity.label), token: t("token") }) + still.join("");
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
  return el(
    "div",
    { class: base ? "rs-answer" : "rs-answer rs-was" },
    el("span", { class: "rs-answer-label" }, label === "now" ? t("now") : t("before")),
    el("p", { class: "rs-answer-text", tabindex: "0" }, answerText(item, quantity, given)),
    answerNumbers([
      ["score", item.score, "score", base?.score],
      ["gold", item.gold, "gold", base?.gold],
      ["KL", item.kl, "sample_kl"],
    ]),
  );
}
