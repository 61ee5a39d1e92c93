// The settings that are being edited, and what they started from.
import { memory } from "../shared/dom.js";
import { shortName } from "../shared/format.js";
import { parseNumber, same } from "./form.js";
import { t } from "../shared/language.js";

/** What belongs to a model of one's own: the card of the next stage begins with it. */
const OF_THE_MODEL = ["model.policy", "model.revision", "data.chat_template"];
const NO_NAMES = new Set(["model", "policy"]); // as in outlook.py
const MOST_TEXT = 5000; // characters of a value in an address

export const NO_FORM = t("There is no form for this stage; the command line takes its settings as a file.");

/** The kinds of reward component that there are: those of the form that has components. */
export const kindsOf = ({ forms }) => Object.values(forms).find((form) => form.components.length).components;

/** The settings that are being edited, beside those of the recipe they started from. */
export class State {
  /** @param own  of each stage the recipe of one's own model: {stage, name, blank (what a person must give), keeps} */
  constructor(recipes, own, onchange) {
    this.recipes = recipes;
    this.onchange = onchange;
    this.own = new Map(own.map((one) => [one.name, one]));
    this.fitted = new Map(); // own card -> what fits the model and the data: setting -> {value, why, guess}
    this.typed = new Map(); // in this visit: own card -> the values that it was left with
    this.given = new Map(); // own card -> the model that it began with
    this.model = {}; // of the own card that was left last
    const kept = memory.get("train", null);
    const first = recipes.find((recipe) => recipe.stage === kept?.stage) || recipes[0];
    this.card = this.has(kept?.card) ? kept.card : first.name;
    if (kept?.fitted) this.fitted.set(this.card, kept.fitted);
    this.basisValues = this.basisOf(this.card);
    this.origin = kept?.origin || null; // the run that the settings came from, as {run, name}
    this.brought = kept?.brought || []; // settings that came with a file or a run: chosen, whatever their value
    // settings that this version does not know are dropped, new ones take the recipe's value
    const there = Object.entries(kept?.values || {}).filter(([name]) => name in this.basisValues);
    this.values = { ...structuredClone(this.basisValues), ...Object.fromEntries(there) };
  }

  /** Whether there is a card of this name. */
  has(card) {
    return this.recipes.some((recipe) => recipe.name === card);
  }

  /** The recipe behind the chosen card. */
  get recipe() {
    return this.recipeOf(this.card);
  }

  /** The stage of the settings. */
  get stage() {
    return this.recipe.stage;
  }

  /** The name of a run of one's own model that nobody has named: the model's, or its card's where that says nothing. */
  get ownName() {
    const name = shortName(this.value("model.policy"), "");
    return NO_NAMES.has(name.toLowerCase()) ? this.own.get(this.card).title : name;
  }

  recipeOf(card) {
    return this.recipes.find((recipe) => recipe.name === card) || this.recipes[0];
  }

  valuesOf(card) {
    const { values } = this.recipeOf(card);
    const own = this.own.get(card);
    if (!own) return values;
    return { ...structuredClone(values), ...structuredClone(own.blank) };
  }

  /** What a card begins with, with what fits the model and the data that were named on it. */
  basisOf(card) {
    const fitted = Object.entries(this.fitted.get(card) || {}).map(([name, { value }]) => [name, value]);
    return { ...this.valuesOf(card), ...Object.fromEntries(fitted) };
  }

  /** Whether settings of this card follow from the model and the data. */
  get fits() {
    return this.own.has(this.card) && !this.origin;
  }

  /** Take over what fits, but for settings that the person has chosen. Gives whether anything is another value now. */
  fit(fitted) {
    const { chosen } = this;
    this.fitted.set(this.card, { ...fitted, ...this.fittedOf(chosen) });
    this.basisValues = this.basisOf(this.card);
    const follows = Object.entries(this.basisValues).filter(([name]) => !chosen.includes(name));
    const others = follows.filter(([name, value]) => !same(value, this.values[name]));
    if (others.length) this.values = { ...this.values, ...structuredClone(Object.fromEntries(others)) };
    return others.length > 0;
  }

  /** The settings that the person has chosen: those that differ, and those that came with a file or a run. */
  get chosen() {
    return [...new Set([...this.brought, ...this.differing])];
  }

  /** What was said to fit some settings. */
  fittedOf(names) {
    const fitted = Object.entries(this.fitted.get(this.card) || {});
    return Object.fromEntries(fitted.filter(([name]) => names.includes(name)));
  }

  /**
   * A card's values with some that an address names as texts: {values, unknown}, the names that it has not.
   * A name such as reward.components.0.model reaches into the list of reward components; reward.components.0.kind
   * puts a component of that kind there, as `kinds` (the form's) begins it.
   */
  withTexts(card, texts, kinds = []) {
    const values = structuredClone(this.valuesOf(card));
    const unknown = [];
    for (const [name, text] of texts) {
      const [, place, key] = /^reward\.components\.(\d)\.(\w+)$/.exec(name) || [];
      const components = key && values["reward.components"];
      if (components?.length === 0 && kinds.length) components.push(structuredClone(kinds[0].defaults));
      const holder = key ? components?.[Number(place)] : values;
      const own = key || name;
      const begun = key === "kind" && kinds.find(({ kind }) => kind === text);
      if (holder && begun) values["reward.components"][Number(place)] = structuredClone(begun.defaults);
      else if (
        holder &&
        key !== "kind" &&
        Object.hasOwn(holder, own) &&
        typeof holder[own] !== "object" &&
        text.length <= MOST_TEXT
      )
        holder[own] = likeOld(holder[own], text);
      else unknown.push(name.slice(0, 80));
    }
    return { values, unknown };
  }

  /** Why a setting's value fits: {why, guess}; nothing for one that does not follow from the model. */
  why(name) {
    return this.fits ? this.fitted.get(this.card)?.[name] : undefined;
  }

  value(name) {
    return this.values[name];
  }

  basis(name) {
    return this.basisValues[name];
  }

  set(name, value) {
    this.values = { ...this.values, [name]: value };
    this.changed();
  }

  /** Keep what is on one's own card, while the page is open. */
  keep() {
    if (!this.own.has(this.card)) return;
    this.typed.set(this.card, this.values);
    const fitted = this.fitted.get(this.card) || {}; // these follow from the model again, on another card
    const own = OF_THE_MODEL.filter((name) => !(name in fitted) || this.chosen.includes(name));
    this.model = Object.fromEntries(own.map((name) => [name, this.values[name]]));
  }

  /**
   * What one's own card is opened with: what was typed on it in this visit, and the model of the own card that was left
   * last where no other one was typed. Nothing for a recipe's card.
   */
  ownValues(card) {
    if (!this.own.has(card)) return undefined;
    this.keep();
    const basis = this.basisOf(card);
    const typed = this.typed.get(card) || basis;
    const given = this.given.get(card) || basis;
    const follows = ([name, value]) => name in basis && value !== undefined && same(typed[name], given[name]);
    const model = Object.fromEntries(Object.entries(this.model).filter(follows));
    this.given.set(card, { ...given, ...model });
    return { ...structuredClone(typed), ...model };
  }

  /** @param brought  the settings that come with a file; all of a run's do */
  choose(card, values, origin = null, brought = []) {
    this.keep();
    this.card = card;
    this.origin = origin;
    this.basisValues = this.basisOf(card);
    this.values = { ...structuredClone(this.basisValues), ...(values || {}) };
    this.brought = origin ? Object.keys(this.values) : brought;
    this.changed();
  }

  /** The run that the settings came from, with what the server told of it; null for none. */
  originWith(told) {
    return this.origin && { ...this.origin, ...told };
  }

  /** From now on the settings are nobody's. */
  forget() {
    this.origin = null;
    this.changed();
  }

  changed() {
    const { card, stage, values, origin, brought } = this;
    memory.set("train", { card, stage, values, origin, brought, fitted: this.fitted.get(card) });
    this.onchange();
  }

  /** What stays when settings are undone: the name; of one's own card also the model, the data and the rewards. */
  get keeps() {
    return ["name", ...(this.own.get(this.card)?.keeps || [])];
  }

  get keptValues() {
    return Object.fromEntries(this.keeps.map((name) => [name, this.values[name]]));
  }

  get differing() {
    return Object.keys(this.basisValues).filter((name) => !same(this.values[name], this.basisValues[name]));
  }
}

/** A text as a value of the kind that a setting has. */
function likeOld(old, text) {
  if (typeof old === "boolean") return text === "true";
  return typeof old === "number" ? parseNumber(text) : text;
}

/**
 * What a link to this page, or another page, wants the form to hold: {recipe, texts: [[setting, text]]}, or null.
 * It is asked once: the address is as before then, and so is the memory.
 */
export function askedFor() {
  const asked = memory.get("train.recipe", null);
  if (asked) {
    memory.set("train.recipe", null);
    return { recipe: asked.recipe, texts: Object.entries(asked.values) };
  }
  const query = new URLSearchParams(location.search);
  const recipe = query.get("recipe");
  if (recipe === null || (query.get("tab") || "train") !== "train") return null;
  const texts = [...query].filter(([name]) => name.includes("."));
  for (const [name] of [["recipe"], ...texts]) query.delete(name);
  history.replaceState(history.state, "", `${location.pathname}?${query}${location.hash}`);
  return { recipe, texts };
}
