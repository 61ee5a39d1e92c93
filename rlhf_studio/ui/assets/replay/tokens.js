// The answer of a replay: a token for each place, which are made once and then say and colour what each step has.
import { el, elEach } from "../shared/dom.js";
import { lower, number, readable, scaleDigits } from "../shared/format.js";
import { endOf, strengthOf } from "./sums.js";
import { t, tx } from "../shared/language.js";

const LONGEST = 160; // characters of one token

/** What a token shows: spaces as they are, and what nobody would see by its name. */
const shownAs = (token) => (token === "" ? "\u2205" : readable(token, LONGEST).replaceAll("\n", "\u23ce\n"));

export class ReplayTokens {
  /**
   * @param most   how many tokens the longest answer has
   * @param scale  label, centre and limit of the colours; null where tokens have no numbers
   * @param told   called with the number of the token under the pointer, as a text
   */
  constructor(most, scale, told) {
    this.scale = scale;
    this.frame = null;
    this.texts = new WeakMap(); // what the tokens of a frame show: a frame is shown more than once
    this.nodes = Array.from({ length: most }, () => el("span", { class: "rs-replay-token", hidden: true }, " "));
    this.shown = this.nodes.map(() => [" ", false, "", "0%"]);
    this.node = el("p", { class: "rs-replay-tokens", role: "group", tabindex: "0" }, this.nodes);
    this.node.classList.toggle("rs-plain", !scale);
    this.node.addEventListener("pointerover", ({ target }) => {
      const place = this.nodes.indexOf(target);
      if (scale && place >= 0) told(this.words(place));
    });
    this.node.addEventListener("pointerleave", () => told(""));
  }

  words(place) {
    const { tokens, values } = this.frame;
    const value = number(values[place], scaleDigits(this.scale));
    return `\u201c${shownAs(tokens[place]).trim()}\u201d ${lower(t(this.scale.label))} ${value}`;
  }

  /** Only what differs from the frame before is changed. */
  show(frame) {
    if (frame === this.frame) return;
    this.frame = frame;
    const { tokens, values } = frame;
    if (!this.texts.has(frame)) this.texts.set(frame, tokens.map(shownAs));
    const texts = this.texts.get(frame);
    const end = endOf(frame);
    this.nodes.forEach((node, place) => {
      const there = place < tokens.length;
      const before = this.shown[place];
      if (node.hidden === there) node.hidden = !there;
      if (!there) return;
      const ends = place === end;
      const now = [ends ? t("end") : texts[place], ends, ...this.lookOf(values[place])];
      this.shown[place] = now;
      if (now[0] !== before[0]) node.firstChild.data = now[0];
      if (now[1] !== before[1]) node.classList.toggle("rs-replay-end", ends);
      if (now[2] !== before[2]) node.dataset.sign = now[2];
      if (now[3] !== before[3]) node.style.setProperty("--v", now[3]);
    });
  }

  /** The side and the strength of a value's colour. */
  lookOf(value) {
    const { scale } = this;
    return scale ? [value < scale.centre ? "minus" : "plus", `${strengthOf(value, scale)}%`] : ["", "0%"];
  }
}

/** The scale of the colours with its numbers. */
/** A word with a tip, on pages that have tips (shared/tips.js). */
export const explained = (name, ...words) => el("span", { class: "rs-word", "data-term": name }, words);

const LIKELIER = t(": orange likelier, blue rarer");

export function legendOf(scale, hero = false) {
  const { centre, limit, label, quantity } = scale;
  const marks = [-limit, -limit / 4, 0, limit / 4, limit].map((side) => centre + side);
  return el(
    "div",
    { class: "rs-replay-legend", role: "note", "aria-label": t("Colour scale") },
    el(
      "div",
      {},
      el("div", { class: "rs-replay-scale" }),
      elEach("div", { class: "rs-replay-scale-marks" }, marks, (mark) =>
        el("span", {}, number(mark, scaleDigits(scale))),
      ),
    ),
    el(
      "span",
      {},
      hero && quantity === "advantages"
        ? [explained(quantity, lower(t(label))), LIKELIER]
        : tx("{quantity} of each token", { quantity: hero ? explained(quantity, lower(t(label))) : lower(t(label)) }),
    ),
  );
}
