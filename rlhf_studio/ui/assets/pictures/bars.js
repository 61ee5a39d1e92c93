// Horizontal bars from 0, one or several for each label.
import { scale } from "../charts/axes.js";
import { keys } from "../charts/keys.js";
import { el } from "../shared/dom.js";
import { fixed, NONE } from "../shared/format.js";

const COLOURS = ["var(--q-score)", "var(--q-part-2)", "var(--q-part-3)", "var(--q-part-4)"];
const colourOf = (place) => COLOURS[place % COLOURS.length];

export function bars(picture, width, word) {
  const at = scale([Math.min(picture.low, 0), Math.max(picture.high, 0)], [0, 100]);
  const bar = (value, place) => {
    const [from, to] = [at(0), Math.max(0, Math.min(100, at(value ?? 0)))];
    const style = {
      left: `${Math.min(from, to)}%`,
      width: `${Math.abs(to - from)}%`,
      background: colourOf(place),
    };
    return el(
      "div",
      { class: "rs-picture-bar" },
      el(
        "div",
        { class: "rs-picture-bar-track" },
        el("i", { class: "rs-picture-bar-zero", style: { left: `${from}%` } }),
        el("i", { class: "rs-picture-bar-fill", style }),
      ),
      el("span", { class: "rs-picture-bar-value" }, value === null ? NONE : fixed(value, picture.digits)),
    );
  };
  const rows = picture.items.map((item) =>
    el(
      "li",
      { class: item.mark ? "rs-picture-bar-row rs-picture-bar-marked" : "rs-picture-bar-row" },
      el("span", { class: "rs-picture-bar-label" }, word(item.label)),
      el("div", { class: "rs-picture-bar-group" }, item.values.map(bar)),
    ),
  );
  const colours = picture.series.map((name, place) => ({ label: word(name), colour: colourOf(place) }));
  return [
    el("p", { class: "rs-learn-unit" }, word(picture.label)),
    el("ul", { class: "rs-picture-bars" }, rows),
    colours.length > 1 ? keys(colours) : null,
  ];
}
