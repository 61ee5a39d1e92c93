// A reward model on its held-out pairs: the findings in words, and the texts that it gets most wrong. The drawings are
// on the page of the run.
import { el, elEach } from "../shared/dom.js";
import { integer, number, percent, readable } from "../shared/format.js";
import { t } from "../shared/language.js";

const WORST = 6;

/** A folded panel. `report` is RewardReport of analysis/reward_model/report.py. */
export function measuredPanel(report) {
  const { accuracy } = report.fit;
  return el(
    "details",
    { class: "rs-playground-details rs-measured" },
    el(
      "summary",
      {},
      el("b", {}, t("How good is it")),
      el(
        "span",
        { class: "rs-muted" },
        " ",
        t("{share} of {pairs} held-out pairs", { share: percent(accuracy.share, 0), pairs: integer(accuracy.pairs) }),
      ),
    ),
    elEach("ul", { class: "rs-measured-words" }, report.words, (sentence) => el("li", {}, sentence)),
    worst(report.wrong),
  );
}

function worst(pairs) {
  if (!pairs.length) return null;
  const side = (name, score, text) =>
    el("p", {}, el("span", { class: "rs-muted" }, `${name} ${number(score)} `), text ? readable(text, 600) : null);
  return el(
    "section",
    { class: "rs-measured-worst" },
    el("h4", {}, t("Most wrong")),
    pairs.slice(0, WORST).map(({ number: row, probability, chosen, rejected, texts }) =>
      el(
        "article",
        {},
        el(
          "p",
          { class: "rs-muted" },
          t("Row {row}: gives {probability} to what people chose", {
            row: integer(row),
            probability: percent(probability, 1),
          }),
          texts ? el("span", {}, t(". Prompt: {text}", { text: readable(texts[0], 300) })) : null,
        ),
        side(t("Chosen"), chosen, texts?.[1]),
        side(t("Rejected"), rejected, texts?.[2]),
      ),
    ),
  );
}
