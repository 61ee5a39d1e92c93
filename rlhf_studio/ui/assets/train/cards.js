// What to train: the stage, and its recipe cards: a group of choices, one of which is a person's own model.
import { address } from "../shared/address.js";
import { each, el, pushButton } from "../shared/dom.js";
import { nodeByArrow, Segments } from "../shared/segments.js";

const OWN_TAGS = ["settings follow from the model", "so does the time"];

/** Recorded runs: each a button that opens one, a quiet one unless `looks`. Nothing where none are offered. */
export function recordedRuns({ recordings, looks }) {
  const button = ({ run, name }) => {
    const open = () => address.lead("live", { run });
    return pushButton(looks ? "rs-button rs-small" : "rs-link", name, open);
  };
  if (!recordings.length) return null;
  const node = el(
    "div",
    { class: "rs-watch-first rs-wrap" },
    el("span", {}, "Watch a recorded run:"),
    recordings.map(button),
  );
  node.classList.toggle("rs-help", !looks);
  return node;
}

export class Cards {
  /**
   * @param stages  [{name, title}] that have recipes, in their order
   * @param own     [{stage, name, title, summary}] of one's own model
   * @param here    names of the recipes that this person can start, where not all of them can be started
   * @param elsewhere  what the others need
   * @param onpick  called with the name of the card that a person chooses
   */
  constructor({ stages, recipes, own, here, elsewhere }, onpick) {
    this.own = own;
    this.recipes = recipes.filter(({ name }) => !own.some((one) => one.name === name));
    this.here = here;
    this.elsewhere = elsewhere;
    this.onpick = onpick;
    const options = stages.map(({ name, title }) => ({ value: name, label: title }));
    this.stages = new Segments({ "aria-label": "Stage" }, options, stages[0].name, (stage) => this.change(stage), {
      framed: true,
    });
    this.cards = el("div", { class: "rs-recipes", role: "radiogroup", "aria-label": "Recipe" });
    this.node = el("div", {}, el("div", { class: "rs-stages" }, this.stages.node), this.cards);
  }

  /** The cards of a stage: what starts at once, one's own, what else is bundled, then what is downloaded. */
  of(stage) {
    const mine = this.recipes.filter((recipe) => recipe.stage === stage);
    const own = this.own.filter((one) => one.stage === stage).map((one) => ({ ...one, tags: OWN_TAGS }));
    const bundled = mine.filter((recipe) => recipe.bundled);
    const all = [...bundled.slice(0, 1), ...own, ...bundled.slice(1), ...mine.filter((recipe) => !recipe.bundled)];
    return [...all.filter((card) => this.starts(card)), ...all.filter((card) => !this.starts(card))];
  }

  ownName(stage) {
    return this.own.find((one) => one.stage === stage)?.name;
  }

  starts({ name }) {
    return !this.here.length || this.here.includes(name);
  }

  /** Whoever has a model of their own in one stage has it in the next one, too. */
  change(stage) {
    const cards = this.of(stage);
    const own = this.ofOwn && cards.find((card) => card.name === this.ownName(stage));
    this.onpick((own || cards[0]).name);
  }

  show(chosen, stage) {
    if (this.ownName(stage)) this.ofOwn = chosen === this.ownName(stage);
    this.stages.show(stage);
    each(this.cards, this.of(stage), (recipe) => this.card(recipe, recipe.name === chosen));
  }

  card({ name, title, summary, tags }, chosen) {
    const elsewhere = !this.starts({ name });
    return el(
      "button",
      {
        type: "button",
        role: "radio",
        class: elsewhere ? "rs-recipe rs-elsewhere" : "rs-recipe",
        "data-recipe": name,
        "aria-checked": String(chosen),
        tabindex: chosen ? 0 : -1,
        onclick: () => this.onpick(name),
        onkeydown: (event) => this.move(event),
      },
      el("strong", {}, title),
      el("span", { class: "rs-recipe-summary" }, summary),
      el("span", { class: "rs-recipe-tags" }, tags.join(" \u00b7 ")),
      elsewhere ? el("span", { class: "rs-recipe-tags rs-recipe-needs" }, this.elsewhere) : null,
    );
  }

  move(event) {
    const next = nodeByArrow(event, [...this.cards.children]);
    if (!next) return;
    this.onpick(next.dataset.recipe);
    this.cards.querySelector('[aria-checked="true"]').focus();
  }
}
