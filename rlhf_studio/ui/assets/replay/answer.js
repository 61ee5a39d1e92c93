// One answer of a replay: its prompt, its tokens as they are at a step, its score, and the way to the next prompt.
import { el, setText, show } from "../shared/dom.js";
import { number, readable } from "../shared/format.js";
import { frameAt, nextOf } from "./sums.js";
import { ReplayTokens, explained, legendOf } from "./tokens.js";
import { bracketed, t } from "../shared/language.js";

const PROMPT = 300; // characters
const LIT = 900; // milliseconds for which an answer is marked that comes after several steps
const NEW = [{ boxShadow: "0 0 0 3px var(--rs-accent)" }, { boxShadow: "0 0 0 3px transparent" }];
const SHORT = 80; // characters of a prompt that stands in one line with its answer

export class ReplayAnswer {
  /** @param options  compact: small, of one prompt; hero: with words that are explained; calm: without motion */
  constructor({ answers, tokens: scale, steps }, { compact = false, hero = false, calm = false } = {}) {
    this.answers = answers.filter(({ frames }) => frames.length);
    this.steps = steps;
    this.calm = calm;
    this.place = 0;
    this.step = 0;
    this.hero = hero; // its words are few
    const most = Math.max(...this.answers.flatMap(({ frames }) => frames.map(({ tokens }) => tokens.length)));
    this.number = el("span", { class: "rs-replay-number", role: "status" });
    this.tokens = new ReplayTokens(most, scale, (text) => setText(this.number, text));
    this.prompt = el("span", { class: "rs-replay-prompt" });
    this.tokens.node.prepend(this.prompt);
    this.when = el("span", {});
    this.judged = ["score", "gold"].map((name) =>
      el(
        "span",
        { class: `rs-replay-${name}`, data: { name } },
        hero ? explained(name, t(name)) : t(name),
        hero && name === "gold" ? el("span", { class: "rs-replay-worth" }, " ", bracketed(t("true worth"))) : null,
        el("span", {}, ""),
      ),
    );
    this.rest = el("span", {});
    const turn = el(
      "button",
      { type: "button", class: "rs-replay-next", onclick: () => this.turn() },
      t("Next prompt"),
      " ",
      (this.count = el("span", {})),
    );
    show(turn, this.answers.length > 1 && !compact);
    this.node = el(
      "div",
      { class: "rs-replay-answer" },
      el("div", { class: "rs-replay-answer-head" }, this.when, this.judged, this.rest, turn),
      this.tokens.node,
      el("div", { class: "rs-replay-answer-foot" }, scale ? legendOf(scale, hero) : null, this.number),
    );
  }

  get frames() {
    return this.answers[this.place].frames;
  }

  /** Keep room for the longest answer to this prompt, so that nothing below moves. */
  reserve() {
    const { node } = this.tokens;
    const length = ({ tokens }) => tokens.reduce((sum, token) => sum + token.length, 0);
    const longest = this.frames.reduce((most, frame) => (length(frame) > length(most) ? frame : most));
    node.style.minHeight = "";
    this.tokens.show(longest);
    node.style.minHeight = `${node.offsetHeight}px`;
    this.show(this.step, true);
  }

  turn() {
    this.place = (this.place + 1) % this.answers.length;
    this.reserve();
  }

  show(step, anew = false) {
    this.step = step;
    const frame = frameAt(this.frames, step);
    if (frame === this.frame && !anew) return;
    this.frame = frame;
    this.tokens.show(frame);
    const next = nextOf(this.frames, frame, this.steps);
    const said = frame.step === 0 ? t("Answer before training") : t("Answer at step {step}", { step: frame.step });
    setText(
      this.when,
      next && !this.hero ? t("{said}; the next one is of step {step}", { said, step: next.step }) : said,
    );
    if (next && !anew && !this.calm) this.tokens.node.animate(NEW, LIT);
    for (const node of this.judged) {
      const { name } = node.dataset;
      show(node, Number.isFinite(frame[name]));
      setText(node.lastChild, ` ${number(frame[name])}`);
    }
    show(this.rest, Boolean(frame.left_out));
    setText(this.rest, frame.left_out ? t("{left_out} more tokens are not shown", { left_out: frame.left_out }) : "");
    const prompt = frame.prompt || this.answers[this.place].prompt;
    setText(this.prompt, readable(prompt, PROMPT));
    this.prompt.classList.toggle("rs-above", prompt.length > SHORT || prompt.includes("\n"));
    setText(this.count, `${this.place + 1}/${this.answers.length}`);
    this.tokens.node.setAttribute("aria-label", t("Answer at step {step}", { step: frame.step }));
  }
}
