// What charts are made of, where no browser is needed: paths, scales, and what Plotly is given.
import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.localStorage = /** @type {any} */ ({ getItem: () => null });
const node = { setAttribute() {}, append() {} };
globalThis.document = /** @type {any} */ ({ createElement: () => node });
globalThis.window = /** @type {any} */ ({ matchMedia: () => ({ matches: false }) });
const { apart, pathOf, scale } = await import("../../rlhf_studio/ui/assets/charts/axes.js");
const { across, band, between, layout, lineOf } = await import("../../rlhf_studio/ui/assets/charts/plot.js");
const { linesOf } = await import("../../rlhf_studio/ui/assets/live/traces.js");

test("a path has a gap where there is no point", () => {
  assert.equal(pathOf([[0, 1], [2.5, 3], null, [4, 5], [6, 7]]), "M0.0 1.0L2.5 3.0M4.0 5.0L6.0 7.0");
});

test("a scale turns around where the page counts from the top, and a range of nothing lies at its beginning", () => {
  const y = scale([10, 20], [100, 0]);
  assert.deepEqual([y(10), y(15), y(20)], [100, 50, 0]);
  assert.equal(scale([3, 3], [7, 9])(3), 7);
});

test("words at two dots keep apart, in the order of the dots", () => {
  assert.deepEqual(apart([50, 40], 16), [53, 37]);
  assert.deepEqual(apart([10, 40], 16), [10, 40]);
});

test("one or two points are drawn as dots too, and no line has words", () => {
  assert.equal(lineOf([1, 2], [3, 4], "#4f46e5").mode, "lines+markers");
  const long = lineOf([1, 2, 3], [4, 5, 6], "#4f46e5", { dash: "dot", opacity: 0.5 });
  assert.deepEqual([long.mode, long.line.dash, long.opacity, long.hoverinfo], ["lines", "dot", 0.5, "skip"]);
  assert.ok(!("name" in long) && !("text" in long));
});

test("a band is filled between its edges, at a fifth of its colour", () => {
  const [low, high] = band([1, 2], [0, 0], [1, 1], "#4f46e5");
  assert.deepEqual([low.y, high.y, high.fill, high.fillcolor], [[0, 0], [1, 1], "tonexty", "#4f46e533"]);
});

test("the area between two lines goes round each part of which both are known", () => {
  const { x, y, fill, line } = between([1, 2, 3, 4, 5], [5, 6, 7, 8, 9], [1, 2, null, 3, 4], "#b45309");
  assert.deepEqual(x, [1, 2, 2, 1, null, 4, 5, 5, 4, null]);
  assert.deepEqual(y, [5, 6, 2, 1, null, 8, 9, 4, 3, null]);
  assert.deepEqual([fill, line.width], ["toself", 0]);
});

test("what never changes is thinner than what does", () => {
  const moving = lineOf([1, 2, 3], [4, 5, 6], "#4f46e5").line.width;
  const still = [
    lineOf([1, 2, 3], [0.1, 0.1, 0.1], "#4f46e5"),
    lineOf([1, 2, 3], [null, 2, 2], "#4f46e5"),
    across(1, "#888888"),
  ];
  for (const { line } of still) assert.ok(line.width < moving);
});

test("axes have the theme's colours and the words that they are given; a second axis only where one is asked for", () => {
  const colour = (name) => `colour of ${name}`;
  const plain = layout(colour, {});
  assert.deepEqual([plain.yaxis.gridcolor, plain.font.color], ["colour of grid", "colour of tick"]);
  assert.ok(!("yaxis2" in plain) && plain.dragmode === "zoom");
  const two = layout(colour, { names: { x: "KL", y: "score" }, yaxis2: { visible: true }, zoom: false });
  assert.deepEqual([two.xaxis.title.text, two.yaxis.title.text, two.yaxis2.side], ["KL", "score", "right"]);
  assert.equal(two.dragmode, false);
});

test("one part of the reward alone is drawn in others' records, and only where it is not the score itself", () => {
  const spec = { extras: "reward/", lines: [{ metric: "objective/scores", axis: "left" }] };
  const store = (part) => {
    const series = { "objective/scores": [0.5, 1], "reward/acc": part };
    return { has: (name) => name in series, names: () => Object.keys(series), get: (name) => ({ y: series[name] }) };
  };
  const drawn = (part, settings) => linesOf(spec, store(part), settings).map(({ metric }) => metric);
  assert.deepEqual(drawn([0, 1], { fewest_parts: 1 }), ["objective/scores", "reward/acc"]);
  assert.deepEqual(drawn([0.5, 1], { fewest_parts: 1 }), ["objective/scores"]);
  assert.deepEqual(drawn([0, 1], { fewest_parts: 2 }), ["objective/scores"]);
});
