// The one layer over Plotly: the theme's colours and letters, axes, sizes, and where a value lies in a drawing.
// Plotly reads <b>, <a href> and %{...} in every text it is given. So it gets no text that a person or a model wrote:
// titles, legends and values are elements of the page.
import { debounce, el, fill, show } from "../shared/dom.js";
import { textSize } from "../shared/lasting.js";
import { apart } from "./axes.js";

const CONFIG = { displayModeBar: false, doubleClick: "reset", responsive: false, showTips: false, scrollZoom: false };
const CLEAR = "rgba(0,0,0,0)";
const LETTERS = 12; // pixels, as --rs-text-small
const FEW = 2; // so many points are no line: they are drawn as dots too
const THIN = 1;
const LINE = 14; // pixels from one word to the next
const LEFT_FROM = 0.6; // of the width: from here on words stand at the left of the hairline

let loading = null;

/** Load our own copy of Plotly once. It is large, so it is loaded when the first chart is near. */
export function loadPlotly(url) {
  if (isLoaded()) return Promise.resolve();
  loading ??= new Promise((resolve, reject) => {
    const script = el("script", { src: url });
    script.onload = resolve;
    script.onerror = () => {
      loading = null; // the next who needs it tries again
      reject(new Error("plotly.min.js did not load"));
    };
    document.head.append(script);
  });
  return loading;
}

export const isLoaded = () => Boolean(window.Plotly);

/** The theme's colours: a function from "score" to the value of --q-score. */
export function coloursOf(node) {
  const style = getComputedStyle(node);
  return (name) => style.getPropertyValue(`--q-${name}`).trim() || "#888";
}

/** Call `action` whenever a person changes between light and dark. */
export const whenThemeChanges = (action) =>
  new MutationObserver(action).observe(document.body, { attributeFilter: ["class"] });

/** Whether nothing changes: such a line is thin, so that it is not the heaviest of its chart. */
function isConstant(y) {
  const known = y.find((value) => value !== null);
  return y.every((value) => value === null || value === known);
}

/**
 * A line through points; `more` are Plotly's own names.
 * @param {Object<string, any>} look
 */
export function lineOf(x, y, colour, look = {}) {
  const { width = isConstant(y) ? THIN : 1.6, dash = "solid", ...more } = look;
  return {
    type: "scatter",
    mode: y.length <= FEW ? "lines+markers" : "lines",
    hoverinfo: "skip",
    showlegend: false,
    x,
    y,
    line: { color: colour, width, dash },
    marker: { color: colour, size: 5 },
    ...more,
  };
}

/** The area between a lower and an upper line; `colour` as "#4f46e5", drawn at a fifth of its strength. */
export function band(x, low, high, colour) {
  const edge = (y, more) => lineOf(x, y, colour, { width: 0, mode: "lines", ...more });
  return [edge(low), edge(high, { fill: "tonexty", fillcolor: `${colour.slice(0, 7)}33` })];
}

/**
 * The area between two lines that have the same x, where both are known; drawn at a sixth of its colour.
 * @param {number[]} x
 */
export function between(x, one, other, colour) {
  const [xs, ys] = [[], []];
  let open = [];
  const close = () => {
    if (!open.length) return;
    const back = [...open].reverse();
    xs.push(...open.map((place) => x[place]), ...back.map((place) => x[place]), null);
    ys.push(...open.map((place) => one[place]), ...back.map((place) => other[place]), null);
    open = [];
  };
  const known = (value) => value !== null && value !== undefined;
  x.forEach((_, place) => (known(one[place]) && known(other[place]) ? open.push(place) : close()));
  close();
  return lineOf(xs, ys, colour, {
    mode: "lines",
    width: 0,
    fill: "toself",
    fillcolor: `${colour.slice(0, 7)}29`,
    meta: { aside: true },
  });
}

/** A dotted or plain line from the bottom to the top at `x`. */
export const upright = (x, colour, dash) => ({
  type: "line",
  ...{ xref: "x", x0: x, x1: x, yref: "paper", y0: 0, y1: 1 },
  line: { color: colour, width: THIN, dash },
});

/** A dotted hairline across at `y` of the left axis. */
export const across = (y, colour) => ({
  type: "line",
  ...{ xref: "paper", x0: 0, x1: 1, yref: "y", y0: y, y1: y },
  layer: "below",
  opacity: 0.6,
  line: { color: colour, width: THIN, dash: "dot" },
});

/**
 * What all charts look like. `names` are our own words beside the two axes; `xaxis`, `yaxis` and the second one at the
 * right add to Plotly's axes, `margin` to the room around the drawing; `more` are other parts of Plotly's layout.
 * @param {Object<string, any>} look
 */
export function layout(colour, look) {
  const { names, xaxis, yaxis, yaxis2 = null, margin, zoom = true, ...more } = look;
  const size = textSize();
  const named = (text) => (text ? { title: { text, font: { size: LETTERS * size }, standoff: 8 } } : {});
  const room = { l: 44, r: 8, t: 8, b: 24, ...margin };
  const axis = {
    gridcolor: colour("grid"),
    zerolinecolor: colour("zero"),
    linecolor: colour("grid"),
    nticks: 5,
    ticks: "",
    tickformat: "~g",
    automargin: false,
  };
  return {
    margin: { l: room.l * size, r: room.r * size, t: room.t, b: room.b * size },
    font: { family: "ui-sans-serif, system-ui, sans-serif", size: LETTERS * size, color: colour("tick") },
    paper_bgcolor: CLEAR,
    plot_bgcolor: CLEAR,
    showlegend: false,
    hovermode: false,
    dragmode: zoom && !window.matchMedia("(pointer: coarse)").matches ? "zoom" : false,
    xaxis: { ...axis, tickformat: "", showgrid: false, zeroline: false, nticks: 6, ...named(names?.x), ...xaxis },
    yaxis: { ...axis, ...named(names?.y), ...yaxis },
    ...(yaxis2 && { yaxis2: { ...axis, overlaying: "y", side: "right", showgrid: false, zeroline: false, ...yaxis2 } }),
    ...more,
  };
}

/** One drawing in its frame, called `name` until it is drawn; `over` lies above it, such as a crosshair. */
export class Plot {
  constructor(name, ...over) {
    this.drawing = el("div", { class: "rs-plot" });
    this.zoomed = false;
    this.onzoom = null;
    this.node = el("div", { class: "rs-plot-frame", role: "img", "aria-label": name }, this.drawing, over);
    new ResizeObserver(
      debounce(60, () => this.drawn && this.drawing.offsetWidth && window.Plotly.Plots.resize(this.drawing)),
    ).observe(this.node);
  }

  /** Draw, or draw anew; `words` say what is seen. Plotly is loaded. */
  draw(traces, look, words) {
    window.Plotly.react(this.drawing, traces, look, CONFIG);
    if (!this.drawn) this.drawing.on("plotly_relayout", (change) => this.changed(change));
    this.drawn = true;
    this.node.setAttribute("aria-label", words);
  }

  /** After a zoom, and when all is shown again: tell `onzoom`. */
  changed(change) {
    if (change["xaxis.autorange"]) this.zoomed = false;
    else if (Object.keys(change).some((key) => /axis2?\.range/.test(key))) this.zoomed = true;
    this.onzoom?.(this.zoomed);
  }

  /** Show all of the lines again. */
  showAll() {
    const axes = Object.keys(this.drawing.layout).filter((name) => /^[xy]axis/.test(name));
    window.Plotly.relayout(this.drawing, Object.fromEntries(axes.map((name) => [`${name}.autorange`, true])));
  }

  /** Where a pointer is, in pixels from the left and the top of the drawing. */
  at(event) {
    const bounds = this.drawing.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  /**
   * Where values lie, in pixels from the left and the top of the drawing; null before the first drawing.
   * By the layout that Plotly documents, which has the ranges that are shown: axes of numbers, linear or logarithmic.
   */
  get scales() {
    const { margin, ...axes } = this.drawing.layout ?? {};
    if (!axes.xaxis?.range) return null;
    const width = this.drawing.clientWidth - margin.l - margin.r;
    const height = this.drawing.clientHeight - margin.t - margin.b;
    const share = ({ range: [first, last], type }, value) =>
      ((type === "log" ? Math.log10(value) : value) - first) / (last - first);
    const [first, last] = axes.xaxis.range;
    return {
      left: margin.l,
      top: margin.t,
      width,
      height,
      x: (value) => margin.l + width * share(axes.xaxis, value),
      y: (value, axis) => margin.t + height * (1 - share(axes[axis], value)),
      valueAt: (x) => first + ((last - first) * (x - margin.l)) / width,
    };
  }
}

/** What is read off a drawing at one place: a hairline, and on each line a dot with its value beside it. No box. */
export class Reading {
  constructor() {
    this.cross = el("div", { class: "rs-cross", hidden: true });
    this.dots = el("div", { class: "rs-dots", "aria-hidden": "true" });
    this.nodes = [this.cross, this.dots];
  }

  hide() {
    show(this.cross, false);
    fill(this.dots);
  }

  /**
   * @param scales  those of the Plot
   * @param points  [{x, y, colour, text}] in pixels; a `text` may be empty
   * @param line    where the hairline stands, null for none
   */
  show(scales, points, line = null) {
    show(this.cross, line !== null);
    if (line !== null) this.cross.style.left = `${line}px`;
    const inside = points.filter(({ y }) => y >= scales.top - 1 && y <= scales.top + scales.height + 1);
    const heights = apart(
      inside.map(({ y }) => y),
      LINE * textSize(),
    );
    const nodes = inside.flatMap(({ x, y, colour, text }, place) => {
      const at = { "--c": colour, left: `${x}px` };
      const side = x > scales.left + LEFT_FROM * scales.width ? "rs-before-it" : "";
      return [
        el("i", { style: { ...at, top: `${y}px` } }),
        el("b", { class: side, style: { ...at, top: `${heights[place]}px` } }, text),
      ];
    });
    fill(this.dots, nodes);
  }
}
