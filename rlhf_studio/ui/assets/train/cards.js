// What to train: all recipes, folded, in groups that are named by what they teach. One card of a group is for a
// person's own model.
import { address } from "../shared/address.js";
import { el, elEach, pushButton, setText } from "../shared/dom.js";
import { t } from "../shared/language.js";

const OWN_TAGS = [t("settings follow from the model"), t("so does the time")];

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
    el("span", {}, t("Watch a recorded run:")),
    recordings.map(button),
  );
  node.classList.toggle("rs-help", !looks);
  return node;
}

/** What the recipes of a stage teach. */
const TEACHES = {
  ppo: t("Learn from a judge\u2019s scores: PPO"),
  sft: t("Learn from examples: supervised fine-tuning"),
  reward_model: t("Learn what people prefer: a reward model"),
  dpo: t("Learn from preferences without a judge: DPO"),
  evaluation: t("Compare models: evaluation"),
};

export class Cards {
  /**
   * @param stages  [{name, title}] that have recipes, in their order
   * @param own     [{stage, name, title, summary}] of one's own model
   * @param here    names of the recipes that this person can start, where not all of them can be started
   * @param elsewhere  what the others need
   * @param onpick  called with the name of the card that a person chooses
   */
  constructor({ stages, recipes, own, here, elsewhere, recordings, looks }, onpick) {
    this.own = own;
    this.recipes = recipes;
    this.here = here;
    this.elsewhere = elsewhere;
    this.onpick = onpick;
    this.title = el("b", {});
    this.cards = elEach("div", { class: "rs-recipe-groups" }, stages, (stage) => this.group(stage));
    if (!looks) this.cards.append(recordedRuns({ recordings, looks }) || "");
    this.node = el(
      "details",
      { class: "rs-more-recipes" },
      el("summary", { class: "rs-bare" }, this.title, el("span", {}, t("More recipes"))),
      this.cards,
    );
  }

  group({ name, title }) {
    return el(
      "section",
      { "aria-label": title },
      el("h3", {}, TEACHES[name] || title),
      elEach("div", { class: "rs-recipes" }, this.of(name), (recipe) => this.card(recipe)),
    );
  }

  /** The cards of a stage: what starts at once, one's own, what else is bundled, then what is downloaded. */
  of(stage) {
    const isOwn = ({ name }) => this.own.some((one) => one.name === name);
    const mine = this.recipes.filter((recipe) => recipe.stage === stage);
    const own = mine.filter(isOwn).map((one) => ({ ...one, tags: OWN_TAGS }));
    const [bundled, others] = [true, false].map((is) => mine.filter((one) => one.bundled === is && !isOwn(one)));
    const all = [...bundled.slice(0, 1), ...own, ...bundled.slice(1), ...others];
    return [...all.filter((card) => this.starts(card)), ...all.filter((card) => !this.starts(card))];
  }

  starts({ name }) {
    return !this.here.length || this.here.includes(name);
  }

  /** Mark the card that is chosen. */
  show(chosen) {
    setText(this.title, this.recipes.find(({ name }) => name === chosen)?.title || "");
    for (const card of this.cards.querySelectorAll(".rs-recipe"))
      card.setAttribute("aria-pressed", String(card.getAttribute("data-recipe") === chosen));
  }

  fold() {
    this.node.removeAttribute("open");
  }

  card({ name, title, summary, tags }) {
    const elsewhere = !this.starts({ name });
    return el(
      "button",
      {
        type: "button",
        class: elsewhere ? "rs-recipe rs-elsewhere" : "rs-recipe",
        "data-recipe": name,
        "aria-pressed": "false",
        onclick: () => this.onpick(name),
      },
      el("strong", {}, title),
      el("span", { class: "rs-recipe-summary" }, summary),
      el("span", { class: "rs-recipe-tags" }, tags.join(" \u00b7 ")),
      elsewhere ? el("span", { class: "rs-recipe-tags rs-recipe-needs" }, this.elsewhere) : null,
    );
  }
}
