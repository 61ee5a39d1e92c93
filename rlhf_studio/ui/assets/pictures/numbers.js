// The numbers of any picture as a table: for who cannot see it, or wants to copy them.
import { fixed, NONE, number } from "../shared/format.js";
import { table } from "../shared/table.js";

const cell = (value, digits) =>
  value === null || value === undefined
    ? NONE
    : typeof value === "number"
      ? digits === undefined
        ? number(value, 4)
        : fixed(value, digits)
      : value;

const listed = (heads, rows, digits) =>
  table(
    heads,
    rows.map((row) => row.map((value) => cell(value, digits))),
  );

const points = (list, picture, word) =>
  listed(
    ["", word(picture.x), word(picture.y)],
    list.flatMap((series) => series.x.map((value, place) => [word(series.label), value, series.y[place]])),
  );

const grid = (picture, word) =>
  listed(
    ["", ...picture.columns.map(word)],
    picture.rows.map(({ label, cells }) => [
      word(label),
      ...cells.map((one) => (typeof one === "string" ? word(one) : one)),
    ]),
    picture.digits,
  );

const KINDS = {
  tokens: (picture, word) =>
    listed(
      ["", word(picture.label), ""],
      picture.items.map((item) => [word(item.text), item.value, word(item.note)]),
      picture.digits,
    ),
  bars: (picture, word) =>
    listed(
      ["", ...picture.series.map(word)],
      picture.items.map((item) => [word(item.label), ...item.values]),
      picture.digits,
    ),
  line: (picture, word) => points(picture.series, picture, word),
  plane: (picture, word) => points(picture.points, picture, word),
  ledger: grid,
  heat: grid,
  flow: (picture, word) =>
    listed(
      ["", ""],
      picture.boxes.map((box) => [word(box.label), box.to.map(word).join(", ")]),
    ),
};

export const numbersOf = (picture, word) => KINDS[picture.kind](picture, word);
