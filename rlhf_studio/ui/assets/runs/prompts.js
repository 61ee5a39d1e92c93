// The same watched prompt answered by each run, the newest answer coloured by token.
import { each, el, fill, memory, setText, show } from "../shared/dom.js";
import { lower, number, readable } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { Legend, colouredTokens, scaleOf, valuesOf } from "../shared/tokens.js";
import { runHead } from "./values.js";

export class Prompts {
  /** @param ask  asks for the answers to the prompt of this place */
  constructor(ask) {
    this.ask = ask;
    this.place = 0;
    this.said = el("span", { class: "rs-muted" });
    this.prompt = el("p", { class: "rs-compare-prompt" });
    this.body = el("div", { class: "rs-compare-answers" });
    this.foot = el("div", { class: "rs-answers-foot" });
    this.legend = new Legend();
    this.first = el("input", { type: "checkbox", onchange: () => this.drawAnswers() });
    const turn = (by, label, text) =>
      el(
        "button",
        { type: "button", class: "rs-button rs-small", "aria-label": label, onclick: () => this.turn(by) },
        text,
      );
    this.node = el(
      "section",
      { class: "rs-panel rs-box", "aria-label": "The same prompts", hidden: true },
      el(
        "div",
        { class: "rs-panel-head rs-wrap" },
        el("h3", {}, "The same prompts"),
        this.said,
        el("label", { class: "rs-check" }, this.first, "First answers too"),
        el(
          "span",
          { class: "rs-turns" },
          turn(-1, "Previous prompt", "\u2039"),
          turn(1, "Next prompt", "next prompt \u203a"),
        ),
      ),
      this.prompt,
      this.body,
      this.foot,
    );
  }

  draw({ runs, prompts, quantities }) {
    this.runs = runs;
    this.prompts = prompts;
    show(this.node, prompts.length > 0);
    if (!prompts.length) return;
    if (!this.choice) {
      const kept = memory.get("compare.quantity", "kl");
      this.quantities = quantities;
      this.quantity = quantities.find(({ name }) => name === kept) || quantities[0];
      const options = quantities.map(({ name, label }) => ({ value: name, label, term: name }));
      this.choice = new Segments({ "aria-label": "Colour answers by" }, options, this.quantity.name, (name) =>
        this.colour(name),
      );
      fill(this.foot, this.choice.node, this.legend.node);
    }
    this.place = Math.min(this.place, prompts.length - 1);
    this.load();
  }

  colour(name) {
    this.quantity = this.quantities.find((quantity) => quantity.name === name);
    memory.set("compare.quantity", name);
    this.drawAnswers();
  }

  turn(by) {
    this.place = (this.place + by + this.prompts.length) % this.prompts.length;
    this.load();
  }

  async load() {
    const ticket = (this.ticket = Symbol("prompt"));
    setText(this.said, `${this.place + 1} of ${this.prompts.length}`);
    setText(this.prompt, readable(this.prompts[this.place], 600));
    const reply = await this.ask(this.place);
    if (ticket !== this.ticket) return;
    if (reply.problem) {
      fill(this.body, el("p", { class: "rs-problem" }, reply.problem));
      return;
    }
    this.answers = reply.answers;
    this.drawAnswers();
  }

  drawAnswers() {
    if (!this.answers) return;
    const shown = this.answers.flatMap(({ first, newest }) => (this.first.checked ? [first, newest] : [newest]));
    const values = shown.flatMap((answer) => (coloured(answer) ? valuesOf(tokensOf(answer), this.quantity.name) : []));
    const scale = scaleOf(values, this.quantity);
    const some = values.length > 0;
    show(this.foot, some);
    if (some) this.legend.update(this.quantity, values, `${lower(this.quantity.label)} per token`, scale);
    each(this.body, this.answers, ({ first, newest }, run) =>
      el(
        "article",
        { class: "rs-compare-answer" },
        runHead(this.runs[run]),
        newest ? null : el("p", { class: "rs-hint" }, "This run does not watch this prompt."),
        this.first.checked && first && first.step !== newest.step ? this.answer(first, scale) : null,
        newest ? this.answer(newest, scale) : null,
      ),
    );
  }

  answer(answer, scale) {
    const text = coloured(answer)
      ? colouredTokens(tokensOf(answer), this.quantity, scale, answer.stopped)
      : answer.response
        ? readable(answer.response)
        : el("em", {}, "(empty)");
    const figures = [
      ["score", answer.score],
      ["gold", answer.gold],
      ["KL", answer.kl],
    ].filter(([, value]) => value !== null);
    return el(
      "div",
      {},
      el(
        "p",
        { class: "rs-answer-text", tabindex: "0", role: "group", "aria-label": `Answer at step ${answer.step}` },
        text,
      ),
      el(
        "p",
        { class: "rs-help" },
        [`step ${answer.step}`, ...figures.map(([name, value]) => `${name} ${number(value)}`)].join(" \u00b7 "),
      ),
    );
  }
}

const coloured = (answer) => Boolean(answer && answer.pieces.length && Object.keys(answer.arrays).length);
const tokensOf = ({ pieces, arrays }) => ({ response_pieces: pieces, arrays });
