// From series to Plotly's traces and layout. Plotly reads <b>, <a href> and %{...} in every text it is given. So it
// gets no text that a person or a model wrote: our own legend shows names and values.
import { smooth } from "./store.js";
import { textSize } from "../shared/lasting.js";
import { term } from "../shared/tips.js";

const MARGIN = { l: 40, r: 40, t: 8, b: 20 };
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
    const few = y.length <= 2;
    const base = {
      type: "scatter",
      x,
      y,
      mode: few ? "lines+markers" : "lines",
      yaxis: line.axis === "right" ? "y2" : "y",
      hoverinfo: "skip",
      showlegend: false,
      line: { color: colour(line.colour), width: 1.6, dash: line.style === "soft" ? "dot" : "solid" },
      marker: { color: colour(line.colour), size: 5 },
    };
    if (line.style === "stack") {
      traces.push({
        ...base,
        stackgroup: "one",
        line: { color: colour(line.colour), width: 0.5 },
        fillcolor: colour(line.colour),
      });
    } else if (spec.kind === "path") {
      traces.push(...pathTraces(base, x, y, weight));
    } else if (line.style === "sparse") {
      const known = y.filter((value) => value !== null).length;
      traces.push({ ...base, connectgaps: true, mode: 2 * known > y.length ? "lines" : "lines+markers" });
    } else if (line.style === "steps") {
      traces.push({ ...base, line: { ...base.line, shape: "hv" } });
    } else if (weight > 0 && !few) {
      traces.push({ ...base, opacity: 0.28, line: { ...base.line, width: 1 } });
      traces.push({ ...base, y: smooth(y, weight), line: { ...base.line, width: 1.9 } });
    } else traces.push(base);
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

function pathTraces(base, x, y, weight) {
  const held = x.map((value, index) => value !== null && y[index] !== null);
  const xs = means(
    smooth(
      x.filter((_, index) => held[index]),
      weight,
    ),
  );
  const ys = means(
    smooth(
      y.filter((_, index) => held[index]),
      weight,
    ),
  );
  const dots = { ...base, x: xs, y: ys, mode: "lines+markers", line: { ...base.line, width: 1 } };
  const last = {
    ...base,
    x: xs.slice(-1),
    y: ys.slice(-1),
    mode: "markers",
    marker: { color: base.line.color, size: 9 },
  };
  return [{ ...dots, opacity: 0.75, marker: { color: base.line.color, size: 3.5 } }, last];
}

/** `targets` are (first step, value). No limit: the axis makes room for the lines alone. */
function targetTrace(targets, x, toAxis, colour) {
  const last = x[x.length - 1];
  const begun = targets.map(([step]) => Math.max(toAxis(step), x[0])).map((at) => Math.min(at, last));
  const values = targets.map(([, value]) => value);
  const line = { color: colour("target"), width: 1.2, dash: "dash" };
  return {
    type: "scatter",
    yaxis: "y",
    x: [...begun, last],
    y: [...values, values[values.length - 1]],
    mode: "lines",
    line: { ...line, shape: "hv" },
    meta: { target: true },
    hoverinfo: "skip",
    showlegend: false,
  };
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

export function layoutOf(spec, store, traces, { mode, hidden, colour, revision, datarevision, marks, drag }) {
  const lines = linesOf(spec, store);
  const right = lines.filter((line) => line.axis === "right" && !hidden.has(line.metric));
  const font = { family: "ui-sans-serif, system-ui, sans-serif", size: 10 * textSize(), color: colour("tick") };
  const axis = {
    gridcolor: colour("grid"),
    zerolinecolor: colour("zero"),
    zerolinewidth: 1,
    linecolor: colour("grid"),
    nticks: 5,
    ticks: "",
    automargin: false,
  };
  const wide = (side) => {
    if (spec.log && side === "left") return { type: "log" }; // which Plotly's own range fits
    const fromZero = spec.zero === side || spec.zero === "both";
    return {
      rangemode: fromZero ? "tozero" : "normal",
      ...rangeOptions(traces, side === "left" ? "y" : "y2", fromZero, side === "left" ? spec.least : 0),
    };
  };
  const lineAt = (step) => ({
    x0: store.toAxis(step, mode),
    x1: store.toAxis(step, mode),
    xref: "x",
    yref: "paper",
    y0: 0,
    y1: 1,
  });
  const shown = spec.kind === "path" ? [] : marks;
  const whole = spec.kind !== "path" && mode === "step" && store.lastStep <= 6; // no half steps
  return {
    margin: { ...MARGIN, l: MARGIN.l * textSize(), r: MARGIN.r * textSize(), b: MARGIN.b * textSize() },
    datarevision, // the series' arrays grow in place, which Plotly would not notice
    font,
    uirevision: `${revision}:${spec.kind === "path" ? "path" : mode}`,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: false,
    dragmode: drag ? "zoom" : false,
    xaxis: { ...axis, showgrid: false, zeroline: false, nticks: 6, ...(whole ? { dtick: 1 } : {}) },
    yaxis: { ...axis, ...wide("left"), tickformat: "~g" },
    yaxis2: {
      ...axis,
      ...wide("right"),
      overlaying: "y",
      tickmode: "auto",
      side: "right",
      showgrid: false,
      zeroline: false,
      tickformat: "~g",
      visible: right.length > 0,
      tickfont: { color: right.length === 1 ? colour(right[0].colour) : colour("tick") },
    },
    shapes: [
      ...bandOf(spec, lines, hidden, colour),
      ...shown.map((mark) => ({
        type: "line",
        ...lineAt(mark.step),
        line: { color: colour("mark"), width: 1, dash: "dot" },
      })),
    ],
  };
}

export const PLOT_CONFIG = {
  displayModeBar: false,
  doubleClick: "reset",
  responsive: false,
  showTips: false,
  scrollZoom: false,
};
