// The gallery: small experiments as cards. It is loaded when somebody opens it.
import { address } from "../shared/address.js";
import { el, fill } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { pageLink } from "../shared/links.js";
import { stageLink } from "../shared/next_stage.js";
import { scrolling, table } from "../shared/table.js";
import { copyButton } from "../shared/take.js";
import { PictureView } from "../pictures/view.js";

const INTRODUCTION = t(
  "Small experiments on the tiny world, each with its question and what came of it, also where nothing did. " +
    "One tiny policy and one grammar: an answer here is not yet an answer for a large model.",
);

export class Gallery {
  /** @param page  (article, need(name, question, wanted), mark(...)) */
  constructor(page) {
    this.page = page;
    this.open = false;
  }

  /** Show the cards, and lead to the one that the address names. */
  async go({ show = "" }) {
    if (!this.open) {
      this.open = true;
      const reply = await this.page.need("learn_gallery", {}, () => this.open);
      if (!this.open) return;
      this.draw(reply.cards);
    }
    this.page.article.querySelector(`[data-card="${CSS.escape(show)}"]`)?.scrollIntoView({ block: "start" });
  }

  leave() {
    this.open = false;
  }

  draw(cards) {
    fill(
      this.page.article,
      el("h2", { class: "rs-learn-title" }, t("Gallery")),
      el("p", { class: "rs-learn-text" }, INTRODUCTION),
      el("div", { class: "rs-gallery" }, cards.map(card)),
    );
  }
}

/** An experiment. */
function card({ name, question, answer, picture, caption, notes, ...further }) {
  const view = new PictureView(caption, (label) => label);
  view.put({ kind: picture.kind, ...picture.data });
  return el(
    "section",
    { class: "rs-gallery-card rs-box", data: { card: name } },
    el("h3", {}, question),
    el("p", { class: "rs-gallery-answer" }, answer),
    view.node,
    notes.map((note) => el("p", { class: "rs-muted" }, note)),
    figures(further),
    ways(further),
  );
}

/**
 * Where the experiment can be made in the app, and where there is more of it.
 * @param {Record<string, any>} card
 */
function ways({ starts, more, more_text }) {
  const { tab, ...params } = more;
  return el(
    "div",
    { class: "rs-gallery-ways rs-wrap" },
    starts.map((one) => stageLink(one, () => address.lead("train", {}), "rs-button rs-small")),
    more_text && pageLink(more_text, tab, params, "rs-button rs-small"),
  );
}

/**
 * The verdicts, and the command that makes the numbers again.
 * @param {Record<string, any>} card
 */
function figures({ head, rows, command, takes }) {
  const code = el("code", {}, command);
  return el(
    "details",
    {},
    el("summary", {}, t("Figures and command")),
    rows.length > 0 && scrolling("rs-learn-wide", t("Outcomes"), table(head, rows)),
    el("p", { class: "rs-muted" }, t("Make these numbers again: {takes}", { takes })),
    el(
      "div",
      { class: "rs-gallery-command rs-wrap" },
      code,
      copyButton(() => command, code),
    ),
  );
}
