// From series to the lines and axes of a chart of the Live page.
import { layout, lineOf, upright } from "../charts/plot.js";
import { term } from "../shared/tips.js";
import { smooth } from "./store.js";

const PATH_POINTS = 200;

/** Lines of a chart that have data now; reward components are added when there are at least two. */
export function linesOf(spec, store) {
  const lines = spec.lines.filter((line) => store.has(line.metric));
  if (!spec.extras) return lines;
  const parts = store.names().filter((name) => name.startsWith(spec.extras) && store.has(name));
  if (parts.length < 2) return lines;
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
  for (const line of linesOf(spec, store)) {
    if (hidden.has(line.metric)) continue;
    const { x, y } = pointsOf(spec, line, store, mode);
    const own = colour(line.colour);
    const look = { yaxis: line.axis === "right" ? "y2" : "y", dash: line.style === "soft" ? "dot" : "solid" };
    if (line.style === "stack") {
      traces.push(lineOf(x, y, own, { ...look, width: 0.5, stackgroup: "one", fillcolor: own }));
    } else if (spec.kind === "path") {
      traces.push(...pathTraces(x, y, weight, own, look));
    } else if (line.style === "sparse") {
      const known = y.filter((value) => value !== null).length;
      const mode = 2 * known > y.length ? "lines" : "lines+markers";
      traces.push(lineOf(x, y, own, { ...look, mode, connectgaps: true }));
    } else if (line.style === "steps") {
      const steps = lineOf(x, y, own, look);
      traces.push({ ...steps, line: { ...steps.line, shape: "hv" } });
    } else if (weight > 0 && y.length > 2) {
      traces.push(lineOf(x, y, own, { ...look, width: 1, opacity: 0.28 }));
      traces.push(lineOf(x, smooth(y, weight), own, { ...look, width: 1.9 }));
    } else traces.push(lineOf(x, y, own, look));
  }
  const targets = (spec.target && settings?.[`${spec.target}s`]) || [];
  if (targets.length && traces.length)
    traces.push(targetTrace(targets, traces[0].x, (step) => store.toAxis(step, mode), colour));
  return traces;
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
  const drawn = lineOf([...begun, last], [...values, values.at(-1)], colour("target"), { width: 1.2, dash: "dash" });
  return { ...drawn, mode: "lines", line: { ...drawn.line, shape: "hv" }, meta: { target: true } };
}

/** The pale band of a healthy run, for the first line on the left axis that has one. */
function bandOf(spec, lines, hidden, colour) {
  if (spec.kind !== "lines") return [];
  for (const line of lines.filter((item) => item.axis === "left" && !hidden.has(item.metric))) {
    const { healthy_low: low, healthy_high: high } = term(line.metric);
    if (low === null || high === null) continue;
    const factor = line.percent ? 100 : 1;
    const edges = { xref: "paper", x0: 0, x1: 1, yref: "y", y0: low * factor, y1: high * factor };
    return [{ type: "rect", ...edges, layer: "below", line: { width: 0 }, fillcolor: colour("band") }];
  }
  return [];
}

/**
 * Options for an automatic range that follows the lines; without them Plotly would also make room for the band of the
 * usual range. An axis covers at least `least`, so that differences that are only rounding do not fill the picture.
 */
function rangeOptions(traces, side, fromZero, least) {
  const values = traces
    .filter((trace) => trace.yaxis === side && !trace.stackgroup && !trace.meta?.target)
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

export function layoutOf(spec, store, traces, { mode, hidden, colour, revision, datarevision, marks }) {
  const lines = linesOf(spec, store);
  const right = lines.filter((line) => line.axis === "right" && !hidden.has(line.metric));
  const path = spec.kind === "path";
  const range = (side) => {
    if (spec.log && side === "left") return { type: "log" }; // which Plotly's own range fits
    const fromZero = spec.zero === side || spec.zero === "both";
    return {
      rangemode: fromZero ? "tozero" : "normal",
      ...rangeOptions(traces, side === "left" ? "y" : "y2", fromZero, side === "left" ? spec.least : 0),
    };
  };
  const whole = !path && mode === "step" && store.lastStep <= 6; // no half steps
  return layout(colour, {
    margin: { r: 44 },
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
      ...bandOf(spec, lines, hidden, colour),
      ...(path ? [] : marks).map((mark) => upright(store.toAxis(mark.step, mode), colour("mark"), "dot")),
    ],
  });
}
