// Tables that are pictures: a ledger with a token per column, and cells coloured by their numbers.
import { el } from "../shared/dom.js";
import { fixed, NONE } from "../shared/format.js";
import { shade } from "./tokens.js";
import { t } from "../shared/language.js";

const MOST_NAMES = 12; // of the columns of a compact picture

export const wide = (label, table) =>
  el("div", { class: "rs-learn-wide", tabindex: "0", role: "group", "aria-label": label }, table);

const said = (cell, digits, word) =>
  cell === null ? NONE : typeof cell === "string" ? word(cell) : fixed(cell, digits);

function head(columns, word, at) {
  const cells = columns.map((name, place) =>
    el("th", { scope: "col", class: place === at ? "rs-picture-at" : null }, word(name)),
  );
  return el("thead", {}, el("tr", {}, el("td", {}, ""), cells));
}

export function ledger(picture, width, word) {
  const rows = picture.rows.map(({ label, cells }) =>
    el(
      "tr",
      { class: label === picture.result ? "rs-picture-ledger-result" : null },
      el("th", { scope: "row" }, word(label)),
      cells.map((cell, place) =>
        el("td", { class: place === picture.at ? "rs-picture-at" : null }, said(cell, picture.digits, word)),
      ),
    ),
  );
  return wide(
    t("Ledger"),
    el("table", { class: "rs-picture-ledger" }, head(picture.columns, word, picture.at), el("tbody", {}, rows)),
  );
}

/** Many columns of narrow cells without numbers; some of the columns are named. */
function compact(picture, word) {
  const { columns, rows, size, at } = picture;
  const every = Math.ceil(columns.length / MOST_NAMES);
  const named = (place) => place === at || (place % every === 0 && Math.abs(place - (at ?? -every)) >= every);
  const mark = (place) => (place === at ? "rs-picture-at" : null);
  const cells = (row) =>
    row.cells.map((cell, place) =>
      el("td", {
        class: mark(place),
        style: { background: shade(cell, size) },
        title: `${word(row.label)}, ${word(columns[place])}: ${said(cell, picture.digits, word)}`,
      }),
    );
  const names = columns.map((name, place) =>
    el(
      "th",
      { scope: "col", class: mark(place) },
      el("span", { class: named(place) ? null : "rs-hidden" }, word(name)),
    ),
  );
  const lines = rows.map((row) => el("tr", {}, el("th", { scope: "row" }, word(row.label)), cells(row)));
  const head = el("thead", {}, el("tr", {}, el("td", {}), names));
  return el("table", { class: "rs-picture-heat rs-picture-compact" }, head, el("tbody", {}, lines));
}

export function heat(picture, width, word) {
  const unit = el("p", { class: "rs-learn-unit" }, word(picture.label));
  if (picture.compact) return [unit, wide(word(picture.label), compact(picture, word))];
  const rows = picture.rows.map(({ label, cells }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, word(label)),
      cells.map((cell) =>
        el("td", { style: { background: shade(cell, picture.size) } }, said(cell, picture.digits, word)),
      ),
    ),
  );
  return [
    unit,
    wide(
      word(picture.label),
      el("table", { class: "rs-picture-heat" }, head(picture.columns, word), el("tbody", {}, rows)),
    ),
  ];
}
