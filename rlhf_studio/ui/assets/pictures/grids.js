// Tables that are pictures: a ledger with a token per column, and cells coloured by their numbers.
import { el } from "../shared/dom.js";
import { fixed, NONE } from "../shared/format.js";
import { shade } from "./tokens.js";

const wide = (label, table) =>
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
    "Ledger",
    el("table", { class: "rs-picture-ledger" }, head(picture.columns, word, picture.at), el("tbody", {}, rows)),
  );
}

export function heat(picture, width, word) {
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
    el("p", { class: "rs-learn-unit" }, word(picture.label)),
    wide(
      word(picture.label),
      el("table", { class: "rs-picture-heat" }, head(picture.columns, word), el("tbody", {}, rows)),
    ),
  ];
}
