// The settings that are being edited, and what they started from.
import { memory } from "../shared/dom.js";
import { same } from "./form.js";

const OWN_START = "world-lora"; // a recipe

/** The settings that are being edited, beside those of the recipe they started from. */
export class State {
  constructor(recipes, ownModel, onchange) {
    Object.assign(this, { recipes, ownModel, onchange });
    const kept = memory.get("train", null);
    this.card =
      recipes.some((recipe) => recipe.name === kept?.card) || kept?.card === "own" ? kept.card : recipes[0].name;
    this.basisValues = this.valuesOf(this.card);
    this.origin = kept?.origin || null; // the run that the settings came from, as {run, name}
    // settings that this version does not know are dropped, new ones take the recipe's value
    const known = Object.entries(kept?.values || {}).filter(([name]) => name in this.basisValues);
    this.values = { ...structuredClone(this.basisValues), ...(kept ? Object.fromEntries(known) : {}) };
  }

  /** What one's own model starts from: the recipe that trains adapters. */
  get ownStart() {
    return this.recipes.find((recipe) => recipe.name === OWN_START) || this.recipes[0];
  }

  /** The recipe behind the chosen card. */
  get recipe() {
    return this.recipes.find((recipe) => recipe.name === this.card) || this.ownStart;
  }

  valuesOf(card) {
    const recipe = this.recipes.find((known) => known.name === card);
    if (recipe) return recipe.values;
    const values = structuredClone(this.ownStart.values);
    const components = values["reward.components"].map((item) =>
      item.kind === "reward_model" ? { ...item, name: "", model: "" } : item,
    );
    return { ...values, ...this.ownModel, "reward.components": components };
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

  choose(card, values, origin = null) {
    this.card = card;
    this.origin = origin;
    this.basisValues = this.valuesOf(card);
    this.values = { ...structuredClone(this.basisValues), ...(values || {}) };
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
    memory.set("train", { card: this.card, values: this.values, origin: this.origin });
    this.onchange();
  }

  get differing() {
    return Object.keys(this.basisValues).filter((name) => !same(this.values[name], this.basisValues[name]));
  }
}
