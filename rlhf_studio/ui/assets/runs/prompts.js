// The same watched prompt answered by each run, the newest answer coloured by token.
import { ColourChoice, answerNumbers, promptTurns } from "../shared/answers.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { lower, readable } from "../shared/format.js";
import { Legend, answerText, scaleOf, valuesOf } from "../shared/tokens.js";
import { runHead } from "./values.js";
import { t } from "../shared/language.js";

export class Prompts {
  /** @param ask  asks for the answers to the prompt of this place */
  constructor(ask) {
    this.ask = ask;
    this.place = 0;
    this.said = el("span", { class: "rs-muted" });
    this.prompt = el("p", { class: "rs-compare-prompt" });
    this.body = el("div", { class: "rs-sides" });
    this.legend = new Legend();
    const onchoice = () => this.drawAnswers();
    this.choice = new ColourChoice({ key: "compare.quantity", first: "kl", label: t("Colour answers by"), onchoice });
    this.foot = el("div", { class: "rs-answers-foot rs-flow" }, this.choice.node, this.legend.node);
    this.first = el("input", { type: "checkbox", onchange: () => this.drawAnswers() });
    this.node = el(
      "section",
      { class: "rs-panel rs-box", "aria-label": t("The same prompts"), hidden: true },
      el(
        "div",
        { class: "rs-panel-head rs-wrap" },
        el("h3", {}, t("The same prompts")),
        this.said,
        el("label", { class: "rs-check" }, this.first, t("First answers too")),
        promptTurns((by) => this.turn(by)),
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
    this.choice.offer(quantities);
    this.place = Math.min(this.place, prompts.length - 1);
    this.load();
  }

  turn(by) {
    this.place = (this.place + by + this.prompts.length) % this.prompts.length;
    this.load();
  }

  async load() {
    const ticket = (this.ticket = Symbol("prompt"));
    setText(this.said, t("{at} of {all}", { at: this.place + 1, all: this.prompts.length }));
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
    const { quantity } = this.choice;
    const shown = this.answers.flatMap(({ first, newest }) => (this.first.checked ? [first, newest] : [newest]));
    const values = shown.flatMap((answer) => (coloured(answer) ? valuesOf(tokensOf(answer), quantity.name) : []));
    const scale = scaleOf(values, quantity);
    const some = values.length > 0;
    show(this.foot, some);
    if (some)
      this.legend.update(
        quantity,
        values,
        t("{label} per {token}", { label: lower(quantity.label), token: t("token") }),
        scale,
      );
    fill(
      this.body,
      this.answers.map(({ first, newest }, run) =>
        el(
          "article",
          { class: "rs-compare-answer" },
          runHead(this.runs[run]),
          newest ? null : el("p", { class: "rs-hint" }, t("This run does not watch this prompt.")),
          this.first.checked && first && first.step !== newest.step ? this.answer(first, scale) : null,
          newest ? this.answer(newest, scale) : null,
        ),
      ),
    );
  }

  answer(answer, scale) {
    const said = { ...answer, tokens: coloured(answer) ? tokensOf(answer) : null };
    return el(
      "div",
      {},
      el(
        "p",
        {
          class: "rs-answer-text",
          tabindex: "0",
          role: "group",
          "aria-label": t("Answer at step {step}", { step: answer.step }),
        },
        answerText(said, this.choice.quantity, scale),
      ),
      answerNumbers([
        t("step {step}", { step: answer.step }),
        [t("score"), answer.score],
        [t("gold"), answer.gold],
        ["KL", answer.kl],
      ]),
    );
  }
}

const coloured = (answer) => Boolean(answer && answer.pieces.length && Object.keys(answer.arrays).length);
const tokensOf = ({ pieces, arrays }) => ({ response_pieces: pieces, arrays });
