// What the table of runs calls a model, and how Compare writes figures.
import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.navigator ??= /** @type {any} */ ({ language: "en" });
globalThis.document = /** @type {any} */ ({ documentElement: { dataset: {} } });
const { COLUMNS } = await import("../../rlhf_studio/ui/assets/runs/columns.js");
const { colourName, dashOf, figures, givePlaces, isTwin, linesOf, partners } =
  await import("../../rlhf_studio/ui/assets/runs/values.js");

test("models whose folders are called alike are told apart by the folders around them", () => {
  const { value } = COLUMNS.find(({ key }) => key === "model");
  const names = {
    "Qwen/Qwen3-0.6B": "qwen3-0.6b",
    "bundled/world-policy": "world-policy",
    "/home/me/tries/second/model/": "second/model",
    "/ws/runs/own/checkpoints/step-000020/policy": "own/checkpoints/step-000020/policy",
    "C:\\models\\small\\checkpoint-100": "small/checkpoint-100",
    "/model": "model",
    "": "–",
  };
  for (const [model, name] of Object.entries(names)) assert.equal(value({ model }), name);
});

test("24 lines go by before two have the same colour and strokes, and neighbours share neither", () => {
  const looks = Array.from({ length: 24 }, (_, place) => [colourName(place), dashOf(place)]);
  assert.equal(new Set(looks.map(String)).size, 24);
  for (const [place, [colour, dash]] of looks.slice(1).entries())
    assert.ok(looks[place][0] !== colour && looks[place][1] !== dash, `line ${place}`);
});

test("a metric's figures have as many decimals as its runs need, all the same", () => {
  const runs = [{ first: { kl: 0.0123, score: -0.875 }, last: { kl: 0.064, score: 0.03125 } }];
  assert.deepEqual([0.0123, 0.064].map(figures("kl", runs)), ["0.012", "0.064"]);
  assert.deepEqual([-0.875, 0.03125].map(figures("score", runs)), ["\u22120.88", "0.03"]);
  assert.equal(figures("other", runs, [1234.5])(1234.5), "1,235");
});

test("a chart has a line for the mean of seeds, and for each of them where it is wanted or where there is no mean", () => {
  const run = (seed, group) => ({ seed, group, label: `seed ${seed}`, unit: "tokens", last: {} });
  const [runs, groups] = [
    [run(0, 0), run(1, 0), run(0, 1)],
    [{ runs: [0, 1] }, { runs: [2] }],
  ];
  givePlaces(runs, groups);
  const lines = [0, 1, 2].map((number) => ({ run: number, steps: [1], values: [number] }));
  const bands = [{ group: 0, steps: [1], mean: [0.5], low: [0], high: [1] }];
  const places = (curve, single) => linesOf(curve, runs, groups, single).map(({ of }) => of.place);
  assert.deepEqual(places({ lines, bands }, false), [2, 3]);
  assert.deepEqual(places({ lines, bands }, true), [0, 1, 2, 3]);
  assert.deepEqual(places({ lines, bands: [] }, false), [0, 1, 2]);
});

test("runs that differ in the seed alone are offered first", () => {
  const row = (id, alike, seed, more = {}) => ({ id, alike, seed, stage: "ppo", recipe: "world", step: 1, ...more });
  const rows = [row("own", "x", 0), row("newer", "y", 0, { started_at: 9 }), row("twin", "x", 1), row("again", "x", 0)];
  const ids = partners(new Map(rows.map((one) => [one.id, one])), ["own"]).map(({ id }) => id);
  assert.deepEqual(ids, ["twin", "newer", "again"]);
  assert.ok(!isTwin(row("a", "", 0), row("b", "", 1))); // of settings that are not all known nobody can say so
});

test("runs of one name are told apart in a menu by their settings, else by when they started", async () => {
  const { toldApart } = await import("../../rlhf_studio/ui/assets/shared/format.js");
  const runs = [
    { name: "a", apart: "seed 1", created_at: 1 },
    { name: "a", apart: "", created_at: 2 },
    { name: "b", apart: "", created_at: 3 },
  ];
  const [byItsSeed, byItsStart, alone] = toldApart(runs).map(({ name }) => name);
  assert.equal(byItsSeed, "a (seed 1)");
  assert.match(byItsStart, /^a, started /);
  assert.equal(alone, "b");
});
