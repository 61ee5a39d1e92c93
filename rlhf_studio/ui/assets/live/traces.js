// From series to the lines and axes of a chart of the Live page.
import { across, between, layout, lineOf, upright } from "../charts/plot.js";
import { term } from "../shared/tips.js";
import { smooth } from "./store.js";

const PATH_POINTS = 200;
const LONG = 1e5; // from here on a number at an axis is written short, such as 120k

/** Whether both sides of a chart are numbers of one scale, so that all of its lines have the left axis. */
export const isShared = (spec, settings) => Boolean(spec.shares && settings?.one_scale);

/** Whether two metrics have the same value at every step. */
function isSame(store, one, other) {
  const [mine, theirs] = [one, other].map((metric) => (store.has(metric) ? store.get(metric).y : []));
  return mine.length === theirs.length && mine.every((value, index) => value === theirs[index]);
}

/** Lines of a chart that have data now; with reward components, where they say more than the score does. */
export function linesOf(spec, store, settings) {
  const shared = isShared(spec, settings) ? { axis: "left" } : {};
  const lines = spec.lines.filter((line) => store.has(line.metric)).map((line) => ({ ...line, ...shared }));
  if (!spec.extras) return lines;
  const parts = store.names().filter((name) => name.startsWith(spec.extras) && store.has(name));
  if (parts.length < (settings?.fewest_parts ?? 2)) return lines;
  if (parts.length === 1 && isSame(store, parts[0], spec.lines[0].metric)) return lines;
  const added = parts.map((metric, index) => ({
    metric,
    axis: "left",
    style: "soft",
    percent: false,
    colour: `part-${1 + (index % 4)}`,
  }));
  return [...lines, ...added];
}

function pointsOf(spec, line, store, mode) {
  const { x: steps, y: raw } = store.get(line.metric);
  const y = line.percent ? raw.map((value) => (value === null ? null : 100 * value)) : raw;
  if (spec.kind !== "path") return { x: store.axis(line.metric, mode), y };
  return { x: steps.map((step) => store.at(spec.x_metric, step)), y };
}

/** One or two traces per line: the raw values, and over them the smoothed ones. */
export function tracesOf(spec, store, { mode, weight, hidden, colour, settings }) {
  const traces = [];
  for (const line of linesOf(spec, store, settings)) {
    if (hidden.has(line.metric)) continue;
    const { x, y } = pointsOf(spec, line, store, mode);
    const own = colour(line.colour);
    const dash = line.style === "soft" || line.style === "asked" ? "dot" : "solid";
    const look = { yaxis: line.axis === "right" ? "y2" : "y", dash };
    if (line.style === "stack") {
      traces.push(lineOf(x, y, own, { ...look, width: 0.5, stackgroup: "one", fillcolor: own }));
    } else if (spec.kind === "path") {
      traces.push(...pathTraces(x, y, weight, own, look));
    } else if (line.style === "sparse") {
      const known = y.filter((value) => value !== null).length;
      const mode = 2 * known > y.length ? "lines" : "lines+markers";
      traces.push(lineOf(x, y, own, { ...look, mode, connectgaps: true }));
    } else if (line.style === "steps") {
      const steps = lineOf(x, y, own, { ...look, width: 1 });
      traces.push({ ...steps, line: { ...steps.line, shape: "hv" } });
    } else if (weight > 0 && y.length > 2) {
      traces.push(lineOf(x, y, own, { ...look, width: 1, opacity: 0.28 }));
      traces.push(lineOf(x, smooth(y, weight), own, { ...look, width: 1.9 }));
    } else traces.push(lineOf(x, y, own, look));
  }
  if (isShared(spec, settings) && spec.kind === "lines")
    traces.push(...gapOf(spec, store, mode, weight, hidden, colour));
  const targets = (spec.target && settings?.[`${spec.target}s`]) || [];
  if (targets.length && traces.length)
    traces.push(targetTrace(targets, traces[0].x, (step) => store.toAxis(step, mode), colour));
  return traces;
}

/** The area between the first two lines, such as score and gold, at the steps that both have. */
function gapOf(spec, store, mode, weight, hidden, colour) {
  const [one, other] = spec.lines;
  if (!other || [one, other].some(({ metric }) => hidden.has(metric) || !store.has(metric))) return [];
  const drawn = ({ metric }) => {
    const { x, y } = store.get(metric);
    return { x, y: weight > 0 && y.length > 2 ? smooth(y, weight) : y };
  };
  const [upper, lower] = [drawn(one), drawn(other)];
  const same = upper.x.length === lower.x.length && upper.x.at(-1) === lower.x.at(-1);
  const places = same ? null : new Map(lower.x.map((step, place) => [step, lower.y[place]]));
  const beside = places ? upper.x.map((step) => places.get(step) ?? null) : lower.y;
  return [between(store.axis(one.metric, mode), upper.y, beside, colour(other.colour))];
}

/** At most PATH_POINTS values: a path of thousands of noisy points would be a blot, so equal chunks are averaged. */
function means(values) {
  const size = Math.ceil(values.length / PATH_POINTS);
  if (size <= 1) return values;
  const chunks = [];
  for (let from = 0; from < values.length; from += size) {
    const chunk = values.slice(from, from + size);
    chunks.push(chunk.reduce((sum, value) => sum + value, 0) / chunk.length);
  }
  return chunks;
}

function pathTraces(x, y, weight, colour, look) {
  const both = x.map((_, index) => index).filter((index) => x[index] !== null && y[index] !== null);
  const [xs, ys] = [x, y].map((values) =>
    means(
      smooth(
        both.map((index) => values[index]),
        weight,
      ),
    ),
  );
  const dots = (size) => ({ marker: { color: colour, size } });
  return [
    lineOf(xs, ys, colour, { ...look, ...dots(3.5), mode: "lines+markers", width: 1, opacity: 0.75 }),
    lineOf(xs.slice(-1), ys.slice(-1), colour, { ...look, ...dots(9), mode: "markers" }),
  ];
}

/** `targets` are (first step, value). No limit: the axis makes room for the lines alone. */
function targetTrace(targets, x, toAxis, colour) {
  const last = x[x.length - 1];
  const begun = targets.map(([step]) => Math.min(Math.max(toAxis(step), x[0]), last));
  const values = targets.map(([, value]) => value);
  const drawn = lineOf([...begun, last], [...values, values.at(-1)], colour("target"), { width: 1, dash: "dash" });
  return { ...drawn, mode: "lines", line: { ...drawn.line, shape: "hv" }, meta: { aside: true } };
}

/**
 * What healthy runs have, {low, high} in the axis' unit, of the first line on the left axis of which that is known; and
 * the `edges` that are drawn: not a 0 at which the axis begins anyway.
 */
export function usualOf(spec, lines, hidden) {
  if (spec.kind !== "lines") return null;
  for (const line of lines.filter((item) => item.axis === "left" && !hidden.has(item.metric))) {
    const { healthy_low: low, healthy_high: high } = term(line.metric);
    if (low === null || high === null) continue;
    const [from, to] = [low, high].map((edge) => Number(((line.percent ? 100 : 1) * edge).toPrecision(6)));
    const begins = from === 0 && (spec.zero === "left" || spec.zero === "both");
    return { low: from, high: to, edges: begins ? [to] : [from, to] };
  }
  return null;
}

/**
 * Options for an automatic range that follows the lines; without them Plotly would also make room for the edges of
 * the usual range. An axis covers at least `least`, so that differences that are only rounding do not fill the picture.
 */
function rangeOptions(traces, side, fromZero, least) {
  const values = traces
    .filter((trace) => trace.yaxis === side && !trace.stackgroup && !trace.meta?.aside)
    .flatMap((trace) => trace.y.filter(Number.isFinite));
  if (!values.length) return {};
  const [low, high] = values.reduce(
    (edge, value) => [Math.min(edge[0], value), Math.max(edge[1], value)],
    [Infinity, -Infinity],
  );
  const missing = (least - (high - low)) / (fromZero ? 1 : 2); // an axis from 0 can grow at its upper end alone
  const pad = Math.max(0.08 * (high - low || Math.abs(high) || 1), missing);
  const [bottom, top] = [fromZero ? Math.min(0, low - 0.04 * (high - low)) : low - pad, high + pad];
  return {
    autorangeoptions: { clipmin: bottom, clipmax: top, ...(high - low < least ? { include: [bottom, top] } : {}) },
  };
}

export function layoutOf(spec, store, traces, options) {
  const { mode, hidden, colour, revision, datarevision, marks, settings } = options;
  const lines = linesOf(spec, store, settings);
  const usual = usualOf(spec, lines, hidden);
  const right = lines.filter((line) => line.axis === "right" && !hidden.has(line.metric));
  const path = spec.kind === "path";
  const range = (side) => {
    if (spec.log && side === "left") return { type: "log" }; // which Plotly's own range fits
    const fromZero = spec.zero === side || spec.zero === "both";
    const own = traces.filter(({ yaxis }) => yaxis === (side === "left" ? "y" : "y2"));
    const long = own.some(({ y }) => y.some((value) => Math.abs(value) >= LONG));
    return {
      ...(long ? { tickformat: "~s" } : {}),
      rangemode: fromZero ? "tozero" : "normal",
      ...rangeOptions(traces, side === "left" ? "y" : "y2", fromZero, side === "left" ? spec.least : 0),
    };
  };
  const whole = !path && mode === "step" && store.lastStep <= 6; // no half steps
  return layout(colour, {
    margin: { r: path || mode === "step" ? 44 : 64 }, // for the second axis, and for the word beside the last step
    datarevision, // the series' arrays grow in place, which Plotly would not notice
    uirevision: `${revision}:${path ? "path" : mode}`,
    xaxis: whole ? { dtick: 1 } : {},
    yaxis: range("left"),
    yaxis2: {
      ...range("right"),
      tickmode: "auto",
      visible: right.length > 0,
      tickfont: { color: right.length === 1 ? colour(right[0].colour) : colour("tick") },
    },
    shapes: [
      ...(usual?.edges ?? []).map((edge) => across(edge, colour("tick"))),
      ...(path ? [] : marks).map((mark) => upright(store.toAxis(mark.step, mode), colour("mark"), "dot")),
    ],
  });
}
