// Answers to one prompt, beside each other, with their numbers and colours: the same on every page that shows them.
import { el, memory, show } from "./dom.js";
import { number, signed } from "./format.js";
import { Segments } from "./segments.js";
import { t } from "./language.js";

const NOTHING = { name: "", label: "", scale: "sequential", noise: 0 };

/** Answers beside each other; below each other where there is no room. */
export const sideBySide = (...cards) => el("div", { class: "rs-sides" }, ...cards);

/**
 * One of several answers.
 * @param name      who has given it, or the letter that stands for them
 * @param text      what it says, as text or nodes
 * @param settings  `label` for who hears the page, `attributes` and `tag` where the card is something to press, and
 *                  `more`: nodes below the text
 */
export const answerCard = (name, text, { label = "", tag = "article", attributes = {}, more = null } = {}) =>
  el(
    tag,
    { class: "rs-answer-card", "aria-label": label || null, ...attributes },
    el("h4", {}, name),
    el("div", { class: "rs-said" }, text),
    more,
  );

/**
 * The numbers of an answer; those that it does not have are left out.
 * @param facts  [[name, value, term, base]]: `term` names an entry of the glossary, `base` is what the value is
 *               compared with; a text instead stands there as it is
 */
export const answerNumbers = (facts) =>
  el(
    "span",
    { class: "rs-answer-numbers rs-wrap" },
    facts.map((fact) => (Array.isArray(fact) ? numberOf(...fact) : el("span", {}, fact))),
  );

function numberOf(name, value, term = null, base = null) {
  if (value === null || value === undefined) return null;
  const change = Number.isFinite(value) && Number.isFinite(base) ? value - base : null;
  const look = change > 0 ? "rs-up" : change < 0 ? "rs-down" : null;
  return el(
    "span",
    { "data-term": term },
    `${t(name)} `,
    el("b", {}, number(value)),
    change === null ? null : el("em", { class: look }, ` ${signed(change)}`),
  );
}

/** By which quantity tokens are coloured: a person chooses, and this tab remembers it. */
export class ColourChoice {
  /**
   * @param key       under which the choice is remembered
   * @param first     the quantity before a person has chosen one
   * @param onchoice  called with the quantity that was chosen
   * @param keyed     whether the page's keys 1 to 9 choose as well
   */
  constructor({ key, first, label, onchoice, keyed = false }) {
    this.key = key;
    this.first = first;
    this.label = label;
    this.onchoice = onchoice;
    this.keyed = keyed;
    this.quantities = [];
    this.build();
  }

  /** Let a person choose among these quantities. */
  offer(quantities) {
    const names = (list) => list.map(({ name }) => name).join();
    if (names(quantities) === names(this.quantities)) return;
    this.quantities = quantities;
    this.build();
  }

  build() {
    const before = this.node;
    const kept = memory.get(this.key, this.first);
    this.quantity = this.quantities.find(({ name }) => name === kept) || this.quantities[0] || NOTHING;
    const options = this.quantities.map(({ name, label }, place) => ({
      value: name,
      label,
      term: name,
      ...(this.keyed ? { key: String(place + 1) } : {}),
    }));
    this.segments = new Segments({ "aria-label": this.label }, options, this.quantity.name, (name) =>
      this.choose(name),
    );
    this.node = this.segments.node;
    show(this.node, this.quantities.length > 0);
    before?.replaceWith(this.node);
  }

  /** Whether there is a quantity of this name. */
  choose(name) {
    const chosen = this.quantities.find((quantity) => quantity.name === name);
    if (!chosen) return false;
    this.quantity = chosen;
    memory.set(this.key, name);
    this.segments.show(name);
    this.onchoice(chosen);
    return true;
  }
}

/** The buttons that lead from prompt to prompt, around `place`. */
export function promptTurns(turn, place = null) {
  const button = (by, label, text) =>
    el("button", { type: "button", class: "rs-button rs-small", "aria-label": label, onclick: () => turn(by) }, text);
  return el(
    "span",
    { class: "rs-turns" },
    button(-1, t("Previous prompt"), "\u2039"),
    place,
    button(1, t("Next prompt"), t("next prompt \u203a")),
  );
}
