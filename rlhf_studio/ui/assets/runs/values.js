// Values of settings, and the small parts that the pieces of the Compare view share.
import { el, svg } from "../shared/dom.js";
import { counted, decimals, number, readable } from "../shared/format.js";
import { t } from "../shared/language.js";
import { scrolling, table } from "../shared/table.js";

/** A setting's value as people read it. */
export function written(value) {
  if (value === null || value === undefined || value === "") return t("nothing");
  if (value === true) return t("on");
  if (value === false) return t("off");
  if (typeof value === "number") return String(Number(value.toPrecision(6)));
  return readable(typeof value === "object" ? JSON.stringify(value) : String(value), 400);
}

/**
 * Writes a metric's numbers with as many decimals as the sentence above has (`_digits` in analysis/compare/verdict.py):
 * as the ends of these runs need, or else the `others` that are given.
 */
export function figures(metric, runs, others = []) {
  const ends = runs.flatMap((run) => [run.first[metric], run.last[metric]]).filter(Number.isFinite);
  const size = (ends.length ? ends : others).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return (value) => number(value, decimals(size));
}

/** What the lengths of a run count, behind them: those of another run may count something else. */
export const countOf = (metric, run) => (metric === "tokens/response_length" ? ` ${t(run.unit)}` : "");

const COLOURS = 6;
/** How a line is drawn in the charts, and the same in the small line beside a run's name. */
const DASHES = [
  ["solid", null],
  ["dash", "6 3"],
  ["dot", "2 3"],
  ["dashdot", "8 3 2 3"],
];

/**
 * The colour and the strokes of a run, or of a mean of several, by its place among all lines. Neighbours differ in
 * both; 24 lines go by before two are alike.
 */
export const colourName = (place) => `run-${1 + (place % COLOURS)}`;
const strokes = (place) => DASHES[(place + Math.floor(place / COLOURS / 2)) % DASHES.length];
export const dashOf = (place) => strokes(place)[0];

/** Give each run a place for its colour, and behind them each group of several runs one for its mean, with its name. */
export function givePlaces(runs, groups) {
  for (const [place, run] of runs.entries()) run.place = place;
  const several = severalRuns(groups);
  for (const [number, group] of several.entries()) {
    const label = readable(runs[group.runs[0]].label, 200);
    const what = countedSeeds(group.runs.map((run) => runs[run].seed));
    const called =
      several.length > 1 ? t("Mean of {what}, as {label}", { what, label }) : t("Mean of {what}", { what });
    Object.assign(group, { place: runs.length + number, mean: called, unit: runs[group.runs[0]].unit });
  }
}

/** "2 seeds"; "3 runs of 2 seeds"; of a log there may be no seed. */
function countedSeeds(all) {
  const seeds = new Set(all);
  if (seeds.has(null)) return counted(all.length, "run");
  if (seeds.size === all.length) return counted(all.length, "seed");
  return t("{runs} of {seeds}", { runs: counted(all.length, "run"), seeds: counted(seeds.size, "seed") });
}

/**
 * The lines of a chart, which its reading and the legend name: {of, steps, values, thin}, where `of` is a run or the
 * group of a mean. A run whose group has a mean has a line of its own only where `single` ones are wanted.
 */
export function linesOf({ lines, bands }, runs, groups, single) {
  const banded = new Set(bands.map(({ group }) => group));
  const own = lines
    .map(({ run, steps, values }) => ({ of: runs[run], steps, values, thin: banded.has(runs[run].group) }))
    .filter(({ values, thin }) => values.length && (single || !thin));
  return [...own, ...bands.map(({ group, steps, mean }) => ({ of: groups[group], steps, values: mean, thin: false }))];
}

export const severalRuns = (groups) => groups.filter((group) => group.runs.length > 1);

/** The visibility of what stands for the line of a place, see showLines. */
export const lineShown = (place) => `var(--line-${place}, visible)`;

/** Show the small lines of these places below `node`, and hide all others: those of runs that no chart draws. */
export function showLines(node, runs, groups, places) {
  for (const { place } of [...runs, ...severalRuns(groups)])
    node.style.setProperty(`--line-${place}`, places.has(place) ? "visible" : "hidden");
}

export const swatch = (place) =>
  svg(
    "svg",
    {
      class: "rs-swatch",
      viewBox: "0 0 24 8",
      "aria-hidden": "true",
      style: { "--c": `var(--q-${colourName(place)})`, visibility: lineShown(place) },
    },
    svg("path", { d: "M0 4H24", "stroke-dasharray": strokes(place)[1] }),
  );

/** The line and the name of a run, or of a mean of several. */
export const runHead = ({ place, mean, label }) =>
  el("span", { class: "rs-run-head" }, swatch(place), readable(mean || label, 80));

/** A table in a box that scrolls by itself; see shared/table.js. */
export const compared = (heads, rows, label) =>
  scrolling("rs-compare-scroll", label, table(heads, rows, { class: "rs-compare-table" }));

/** Whether two runs differ in the seed alone. */
export const isTwin = (one, other) => Boolean(one.alike) && one.alike === other.alike && one.seed !== other.seed;

/**
 * The rows of the runs that those called `ids` can be compared with: of the same stage, those that differ in the seed
 * alone first, then the workspace's own before recordings, those of the same recipe first, then the newest.
 */
export function partners(rows, ids) {
  const first = rows.get(ids[0]);
  const other = (row) => Number(!isTwin(first, row));
  const rank = (row) => 4 * other(row) + 2 * Number(Boolean(row.recording)) + Number(row.recipe !== first.recipe);
  return [...rows.values()]
    .filter((row) => first && row.stage === first.stage && row.step > 0 && !ids.includes(row.id))
    .sort((one, other) => rank(one) - rank(other) || (other.started_at || 0) - (one.started_at || 0));
}
