// The answer of a replay: a token for each place, which are made once and then say and colour what each step has.
import { el, elEach, setText } from "../shared/dom.js";
import { lower, number, readable } from "../shared/format.js";
import { strengthOf } from "./sums.js";

const LONGEST = 160; // characters of one token

/** What a token shows: spaces as they are, and what nobody would see by its name. */
const shownAs = (token) => (token === "" ? "\u2205" : readable(token, LONGEST).replaceAll("\n", "\u23ce\n"));

/** The number of a scale as people read it. */
const digitsOf = ({ limit }) => (limit < 0.1 ? 3 : limit < 10 ? 2 : 0);

export class ReplayTokens {
  /**
   * @param most   how many tokens the longest answer has
   * @param scale  label, centre and limit of the colours; null where tokens have no numbers
   * @param told   called with the number of the token under the pointer, as a text
   */
  constructor(most, scale, told) {
    this.scale = scale;
    this.frame = null;
    this.nodes = Array.from({ length: most }, () => el("span", { class: "rs-replay-token", hidden: true }, " "));
    this.node = el("p", { class: "rs-replay-tokens", tabindex: "0" }, this.nodes);
    this.node.classList.toggle("rs-plain", !scale);
    this.node.addEventListener("pointerover", ({ target }) => {
      const place = this.nodes.indexOf(target);
      if (scale && place >= 0) told(this.words(place));
    });
    this.node.addEventListener("pointerleave", () => told(""));
  }

  words(place) {
    const { tokens, values } = this.frame;
    const value = number(values[place], digitsOf(this.scale));
    return `\u201c${shownAs(tokens[place]).trim()}\u201d ${lower(this.scale.label)} ${value}`;
  }

  show(frame) {
    if (frame === this.frame) return;
    const before = this.frame ? this.frame.tokens.length : this.nodes.length;
    this.frame = frame;
    const { tokens, values, stopped } = frame;
    for (let place = 0; place < Math.max(before, tokens.length); place += 1) {
      const node = this.nodes[place];
      const there = place < tokens.length;
      if (node.hidden === there) node.hidden = !there;
      if (!there) continue;
      setText(node, shownAs(tokens[place]));
      node.classList.toggle("rs-replay-end", Boolean(stopped) && place === tokens.length - 1);
      if (!this.scale) continue;
      node.dataset.sign = values[place] < this.scale.centre ? "minus" : "plus";
      node.style.setProperty("--v", `${strengthOf(values[place], this.scale)}%`);
    }
  }
}

/** The scale of the colours with its numbers. */
export function legendOf(scale) {
  const { centre, limit, label } = scale;
  const marks = [-limit, -limit / 4, 0, limit / 4, limit].map((side) => centre + side);
  return el(
    "div",
    { class: "rs-replay-legend", role: "note", "aria-label": "Colour scale" },
    el(
      "div",
      {},
      el("div", { class: "rs-replay-scale" }),
      elEach("div", { class: "rs-replay-scale-marks" }, marks, (mark) => el("span", {}, number(mark, digitsOf(scale)))),
    ),
    el("span", {}, `${lower(label)} of each token`),
  );
}
