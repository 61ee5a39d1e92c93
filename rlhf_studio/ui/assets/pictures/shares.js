// Shares as bars from 0 to 100 %, each with its 95 % interval and a mark, such as the half.
import { el, elEach } from "../shared/dom.js";
import { percent } from "../shared/format.js";
import { t } from "../shared/language.js";

/** `low` to `high` in words; empty where there is no interval. */
export const between = (low, high) =>
  Number.isFinite(low) && Number.isFinite(high)
    ? t("{low} to {high}", { low: percent(low, 0), high: percent(high, 0) })
    : "";

const at = (share) => `${100 * Math.min(1, Math.max(0, share))}%`;

function bar({ share, low, high }, mark) {
  const range = between(low, high);
  return el(
    "span",
    {
      class: "rs-share-bar",
      role: "img",
      "aria-label": `${percent(share, 0)}${range && t(", from {range}", { range })}`,
    },
    el("i", { class: "rs-share-fill", style: { width: at(share) } }),
    mark === null ? null : el("i", { class: "rs-share-mark", style: { left: at(mark) } }),
    range ? el("i", { class: "rs-share-whisker", style: { left: at(low), width: at(high - low) } }) : null,
  );
}

/**
 * `rows` are {name, share, low, high, note}; `low` and `high` are left out where there is no interval.
 * @param mark  the share that the bars are to be compared with; null for none
 */
export const shares = (rows, mark = 0.5) =>
  elEach("ul", { class: "rs-share-list" }, rows, (row) =>
    el(
      "li",
      {},
      el("span", { class: "rs-share-name" }, row.name),
      bar(row, mark),
      el(
        "span",
        { class: "rs-share-figures" },
        el("b", {}, percent(row.share, 0)),
        el("span", {}, between(row.low, row.high)),
        row.note ? el("span", { class: "rs-help" }, row.note) : null,
      ),
    ),
  );
