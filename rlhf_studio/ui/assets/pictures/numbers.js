// The numbers of any picture as a table: for who cannot see it, or wants to copy them.
import { el, elEach } from "../shared/dom.js";
import { fixed, NONE, number } from "../shared/format.js";

const cell = (value, digits) =>
  value === null || value === undefined
    ? NONE
    : typeof value === "number"
      ? digits === undefined
        ? number(value, 4)
        : fixed(value, digits)
      : value;

function table(head, rows, digits) {
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      elEach("tr", {}, head, (name) => el("th", { scope: "col" }, name)),
    ),
    elEach("tbody", {}, rows, (row) => elEach("tr", {}, row, (value) => el("td", {}, cell(value, digits)))),
  );
}

const points = (list, picture, word) =>
  table(
    ["", word(picture.x), word(picture.y)],
    list.flatMap((series) => series.x.map((value, place) => [word(series.label), value, series.y[place]])),
  );

const grid = (picture, word) =>
  table(
    ["", ...picture.columns.map(word)],
    picture.rows.map(({ label, cells }) => [
      word(label),
      ...cells.map((one) => (typeof one === "string" ? word(one) : one)),
    ]),
    picture.digits,
  );

const KINDS = {
  tokens: (picture, word) =>
    table(
      ["", word(picture.label), ""],
      picture.items.map((item) => [word(item.text), item.value, word(item.note)]),
      picture.digits,
    ),
  bars: (picture, word) =>
    table(
      ["", ...picture.series.map(word)],
      picture.items.map((item) => [word(item.label), ...item.values]),
      picture.digits,
    ),
  line: (picture, word) => points(picture.series, picture, word),
  plane: (picture, word) => points(picture.points, picture, word),
  ledger: grid,
  heat: grid,
  flow: (picture, word) =>
    table(
      ["", ""],
      picture.boxes.map((box) => [word(box.label), box.to.map(word).join(", ")]),
    ),
};

export const numbersOf = (picture, word) => KINDS[picture.kind](picture, word);
