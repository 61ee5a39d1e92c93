// The recipe cards: a group of choices, one of which is a person's own model.
import { el, fill } from "../shared/dom.js";
import { nodeByArrow } from "../shared/segments.js";

const OWN = {
  name: "own",
  title: "Your own model",
  summary: "Your model, prompts and reward: folders, files or Hugging Face ids.",
  tags: ["LoRA", "the time depends on the model"],
};

export class Cards {
  /** @param onpick called with the name of the card that a person chooses */
  constructor(recipes, onpick) {
    const bundled = recipes.filter((recipe) => recipe.bundled);
    this.recipes = [...bundled, OWN, ...recipes.filter((recipe) => !recipe.bundled)];
    this.onpick = onpick;
    this.node = el("div", { class: "rs-recipes", role: "radiogroup", "aria-label": "Recipe" });
  }

  show(chosen) {
    fill(
      this.node,
      this.recipes.map((recipe) => this.card(recipe, recipe.name === chosen)),
    );
  }

  card({ name, title, summary, tags }, chosen) {
    return el(
      "button",
      {
        type: "button",
        role: "radio",
        class: "rs-recipe",
        "data-recipe": name,
        "aria-checked": String(chosen),
        tabindex: chosen ? 0 : -1,
        onclick: () => this.onpick(name),
        onkeydown: (event) => this.move(event),
      },
      el("strong", {}, title),
      el("span", { class: "rs-recipe-summary" }, summary),
      el("span", { class: "rs-recipe-tags" }, tags.join(" \u00b7 ")),
    );
  }

  move(event) {
    const next = nodeByArrow(event, [...this.node.children]);
    if (!next) return;
    this.onpick(next.dataset.recipe);
    this.node.querySelector('[aria-checked="true"]').focus();
  }
}
