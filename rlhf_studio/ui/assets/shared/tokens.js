// A response as coloured tokens: spans in a listbox, colours by CSS variables, text only as text nodes.
import { markPointed } from "../classroom/pointing.js";
import { each, el, fill, show } from "./dom.js";
import { lower, number, pieces, readable, scaleDigits, spoken } from "./format.js";
import { t } from "./language.js";

const CHUNK = 400;
const TOKEN_CHARACTERS = 160;

const OF_A_CRITIC = ["values", "returns", "deltas", "whitened_advantages"];

/** Whether a run with these settings has a quantity: without a critic there are no values, for one. */
export const isKnown = (name, settings) => (settings?.advantage ?? "gae") === "gae" || !OF_A_CRITIC.includes(name);

/** The numbers of one quantity for each token. Missing arrays give nulls. */
export const valuesOf = ({ arrays, response_pieces: pieces }, name) => arrays[name] || pieces.map(() => null);

/** The largest absolute value, for a scale from -size to size; 1 when none is larger than `noise`. */
export function extent(values, noise = 0) {
  const size = Math.max(0, ...values.filter((value) => value !== null).map(Math.abs));
  return size > noise ? size : 1;
}

/** Whether a response has one and the same value everywhere, such as the 0 of a value head that has not learned yet. */
const isFlat = (known, noise) =>
  known.length > 0 &&
  Math.max(...known) - Math.min(...known) <= noise &&
  (known.length > 1 || Math.abs(known[0]) <= noise);

/**
 * The scale of a quantity's colours: {centre, limit}. `given` is one that more responses share, e.g. all of a step;
 * without it the values are their own scale. Colours around a mean say where a response differs from it, so one that
 * has the same value everywhere is its own centre: it gets no colour.
 */
export function scaleOf(values, { noise, centred }, given = null) {
  const known = values.filter(Number.isFinite);
  const flat = centred && isFlat(known, noise);
  if (given) return { centre: flat ? known[0] : given.centre, limit: given.limit > noise ? given.limit : 1 };
  const centre = centred && known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : 0;
  return {
    centre,
    limit: extent(
      known.map((value) => value - centre),
      noise,
    ),
  };
}

/**
 * How strong the colour of a value is, 0 to 100; 0 for noise. The square root keeps small values visible beside one
 * large one, and the marks of the legend follow it.
 */
function strength(value, { centre, limit }, { scale, noise }) {
  if (!Number.isFinite(value)) return 0;
  if (scale === "flag") return value > 0 ? 70 : 0;
  const distance = Math.abs(value - centre);
  return distance <= noise ? 0 : 100 * Math.sqrt(Math.min(1, distance / limit));
}

/** Give a token's node the colour of its value. */
function tint(node, value, scale, quantity) {
  node.style.setProperty("--v", `${strength(value, scale, quantity).toFixed(1)}%`);
  node.dataset.sign = value < scale.centre ? "minus" : "plus";
}

/** Tokens that are only looked at: coloured text without choice. `given` as in scaleOf(). */
function colouredTokens(tokens, quantity, given, stopped) {
  const values = valuesOf(tokens, quantity.name);
  const scale = scaleOf(values, quantity, given);
  const last = tokens.response_pieces.length - 1;
  const nodes = tokens.response_pieces.map((text, index) => {
    const body =
      stopped && index === last ? [el("span", { class: "rs-eos" }, "⟂ ", tokenContent(text))] : tokenContent(text);
    const tip = inWords(quantity, values[index], 3);
    const node = el("span", { class: "rs-tinted", "data-tip": tip }, el("span", { class: "rs-token-text" }, body));
    tint(node, values[index], scale, quantity);
    return node;
  });
  return el(
    "span",
    { class: "rs-tinted-tokens", data: { scale: quantity.scale } },
    nodes.flatMap((node) => [node, el("wbr")]),
  );
}

/** What an answer says: coloured by a quantity where the numbers of its tokens are known. `scale` as in scaleOf(). */
export function answerText({ tokens, response, stopped }, quantity, scale) {
  if (tokens) return colouredTokens(tokens, quantity, scale, stopped);
  return response ? readable(response) : el("em", {}, t("(empty)"));
}

/** A token's value as a text: "advantage 0.512", "clipped". */
export function inWords({ scale, label }, value, digits) {
  if (scale === "flag") return value === null ? t("not known") : value > 0 ? t("clipped") : t("not clipped");
  return label && `${lower(label)} ${number(value, digits)}`;
}

/** The visible form of a token: text with glyphs for what cannot be seen. */
export function tokenContent(text) {
  if (text === "") return [el("span", { class: "rs-glyph" }, "∅")];
  const { parts, rest } = pieces(text, TOKEN_CHARACTERS);
  const nodes = parts.map((part) =>
    part.kind === "text"
      ? part.text
      : el("span", { class: part.kind === "code" ? "rs-glyph rs-code" : "rs-glyph" }, part.text),
  );
  if (rest > 0) nodes.push(el("span", { class: "rs-glyph rs-code" }, t("+{rest} characters", { rest })));
  return nodes;
}

export class TokenView {
  constructor(onpick, onhover) {
    this.onpick = onpick;
    this.prompt = el("span", { class: "rs-tokens-prompt" });
    this.list = el("div", {
      class: "rs-tokens",
      role: "listbox",
      "aria-orientation": "horizontal",
      "aria-label": t("Tokens of the response"),
    });
    this.node = el("div", { class: "rs-tokens-box" }, this.prompt, this.list);
    this.nodes = [];
    this.round = 0;
    const index = (event) => {
      const node = event.target.closest("[data-index]");
      return node ? Number(node.dataset.index) : null;
    };
    this.list.addEventListener("click", (event) => index(event) !== null && onpick(index(event)));
    this.list.addEventListener("pointerover", (event) => onhover(index(event)));
    this.list.addEventListener("pointerleave", () => onhover(null));
  }

  /** Show a new response. Long ones are built in pieces so that the page stays responsive. */
  set(sample, one = "token") {
    const { tokens } = sample;
    this.sample = sample;
    this.one = one === "word" ? t("Word") : t("Token");
    this.nodes = [];
    [this.pinned, this.pointed] = [null, null];
    const round = (this.round += 1);
    fill(
      this.prompt,
      tokens.prompt_pieces.length ? tokens.prompt_pieces.flatMap((piece) => tokenContent(piece)) : [sample.prompt],
    );
    fill(this.list);
    const build = (from) => {
      if (round !== this.round) return;
      const to = Math.min(tokens.response_pieces.length, from + CHUNK);
      for (let index = from; index < to; index += 1) this.list.append(...this.tokenNodes(index));
      this.paint(from, to);
      if (to < tokens.response_pieces.length) (window.requestIdleCallback || setTimeout)(() => build(to));
      else this.list.append(...this.ending());
      this.point(this.pointed);
    };
    build(0);
  }

  tokenNodes(index) {
    const { tokens, stopped } = this.sample;
    const text = tokens.response_pieces[index];
    const end = stopped && index === tokens.response_pieces.length - 1;
    const clipped = tokens.arrays.clipped?.[index] > 0;
    const attributes = { role: "option", tabindex: "-1", "data-index": index, "aria-selected": "false" };
    const body = end ? [el("span", { class: "rs-eos" }, "⟂ ", tokenContent(text))] : tokenContent(text);
    const node = el(
      "span",
      { ...attributes, class: clipped ? "rs-token rs-clipped" : "rs-token" },
      el("span", { class: "rs-token-text" }, body),
    );
    this.nodes.push(node);
    return [node, el(text.endsWith("\n") && !end ? "br" : "wbr")]; // lines break between tokens
  }

  ending() {
    const { sample } = this;
    const { tokens } = sample;
    const marks =
      sample.stopped !== false
        ? []
        : [
            el(
              "span",
              { class: "rs-chip", "data-tip": t("The response reached the length limit before it ended.") },
              t("cut at the limit"),
            ),
          ];
    const score = () =>
      el(
        "span",
        { class: "rs-chip rs-chip-score", "data-term": "score" },
        t("score {score}", { score: number(sample.score) }),
      );
    return [...marks, ...(sample.score === null && !tokens.arrays.rewards ? [] : [score()])];
  }

  /** Colour by another quantity; `given` as in scaleOf(). */
  colour(quantity, given = null) {
    this.quantity = quantity;
    if (!this.sample) return;
    this.values = valuesOf(this.sample.tokens, quantity.name);
    this.scale = scaleOf(this.values, quantity, given);
    this.list.dataset.scale = quantity.scale;
    this.paint(0, this.nodes.length);
  }

  paint(from, to) {
    if (!this.quantity || !this.values) return;
    for (let index = from; index < to; index += 1) {
      const node = this.nodes[index];
      const value = this.values[index];
      tint(node, value, this.scale, this.quantity);
      const words = inWords(this.quantity, value, 3);
      node.setAttribute(
        "aria-label",
        `${this.one} ${index + 1} “${spoken(this.sample.tokens.response_pieces[index])}”, ${words}`,
      );
      if (this.numbers)
        node.dataset.number =
          this.quantity.scale === "flag" ? (value > 0 ? "yes" : "") : number(value, this.scale.limit < 0.1 ? 3 : 2);
    }
  }

  showNumbers(on) {
    this.numbers = on;
    this.list.classList.toggle("rs-with-numbers", on);
    this.paint(0, this.nodes.length);
  }

  /** Mark a token; `auto` marks one that the page chose by itself. */
  pin(index, auto, focus) {
    const old = this.nodes[this.pinned];
    if (old) {
      old.setAttribute("aria-selected", "false");
      old.classList.remove("rs-suggested");
      old.tabIndex = -1;
    }
    this.pinned = index;
    const node = this.nodes[index];
    if (!node) return;
    node.setAttribute("aria-selected", "true");
    node.classList.toggle("rs-suggested", auto);
    node.tabIndex = 0;
    if (focus) node.focus({ preventScroll: false });
  }

  /** Mark the token that a teacher points at; null for none. */
  point(index) {
    this.pointed = index;
    markPointed(this.list, this.nodes[index] ?? null);
  }

  hover(index) {
    for (const node of this.list.querySelectorAll(".rs-hover")) node.classList.remove("rs-hover");
    if (index !== null) this.nodes[index]?.classList.add("rs-hover");
  }
}

/** The colour scale with its numbers. */
export class Legend {
  constructor() {
    this.bar = el("div", { class: "rs-scale-bar" });
    this.ticks = el("div", { class: "rs-scale-ticks" });
    this.text = el("span");
    this.scale = el("div", { class: "rs-scale-main" }, this.bar, this.ticks);
    this.node = el(
      "div",
      { class: "rs-scale rs-middle", role: "note", "aria-label": t("Colour scale") },
      this.scale,
      this.text,
    );
  }

  /** `scale` is what the tokens are coloured by. */
  update(quantity, values, unit, scale) {
    this.node.dataset.scale = quantity.scale;
    const plain = values.every((value) => !Number.isFinite(value) || Math.abs(value - scale.centre) <= quantity.noise);
    show(this.scale, quantity.scale !== "flag" && !plain);
    if (quantity.scale === "flag") {
      const count = values.filter((value) => value > 0).length;
      fill(this.text, t("{count} of {length} tokens clipped", { count, length: values.length }));
      return;
    }
    if (plain) {
      fill(
        this.text,
        values.every((value) => value === null)
          ? t("Not known yet, so no token is coloured.")
          : t("All are {centre}, so no token has a colour.", { centre: number(scale.centre) }),
      );
      return;
    }
    const { centre, limit } = scale;
    const sides = quantity.scale === "sequential" ? [0, limit / 4, limit] : [-limit, -limit / 4, 0, limit / 4, limit];
    const marks = sides.map((side) => centre + side);
    each(this.ticks, marks, (mark) => el("span", {}, number(mark, scaleDigits(scale))));
    fill(this.text, unit);
  }
}
