// Tables, and the box in which what is wide scrolls by itself.
import { el } from "./dom.js";

const isCell = (content) => content instanceof HTMLTableCellElement;

/** The name of a column; `words` at the right where it is one of numbers. */
export const head = (words, properties) => el("th", { scope: "col", ...properties }, words);
export const numberHead = (words, properties) => head(words, { class: "rs-number", ...properties });
/** The name of a row. */
export const rowHead = (words, properties) => el("th", { scope: "row", ...properties }, words);
/** A cell with a number. */
export const figure = (...words) => el("td", { class: "rs-number" }, words);

/** A row; what is no cell yet becomes one. */
export const tableRow = (cells, properties) =>
  el(
    "tr",
    properties,
    cells.map((content) => (content === null || isCell(content) ? content : el("td", {}, content))),
  );

/**
 * A table. `heads` are the names of its columns, or cells; `rows` are rows, or lists of what they hold; `caption` and
 * `foot` (rows again) may be left out, and `properties` are those of the table.
 * @param {Object<string, any>} more
 */
export function table(heads, rows, more = {}) {
  const { caption, foot, ...properties } = more;
  const made = (list) => list.map((one) => (Array.isArray(one) ? tableRow(one) : one));
  const names = heads.map((content) => (content === null || isCell(content) ? content : head(content)));
  return el(
    "table",
    properties,
    caption ? el("caption", {}, caption) : null,
    heads.length ? el("thead", {}, tableRow(names)) : null,
    el("tbody", {}, made(rows)),
    foot ? el("tfoot", {}, made(foot)) : null,
  );
}

/** A box that scrolls sideways; it can be reached with the keyboard, and `label` says what is in it. */
export const scrolling = (look, label, ...content) =>
  el("div", { class: look, tabindex: "0", role: "region", "aria-label": label }, content);
