// The library that draws charts: large, so it is loaded when the first chart is near.
import { el } from "./dom.js";

let loading = null;

/** Load our own copy of Plotly once. */
export function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve();
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

/**
 * Where values lie in a drawn plot, in pixels from the left and the top of its element; null before the first drawing.
 * By the layout that Plotly documents, which has the ranges that are shown: axes of numbers, linear or logarithmic.
 */
export function scalesOf(plot) {
  const { margin, ...axes } = plot.layout ?? {};
  if (!axes.xaxis?.range) return null;
  const [width, height] = [plot.clientWidth - margin.l - margin.r, plot.clientHeight - margin.t - margin.b];
  const share = ({ range: [first, last], type }, value) =>
    ((type === "log" ? Math.log10(value) : value) - first) / (last - first);
  const [first, last] = axes.xaxis.range;
  return {
    left: margin.l,
    width,
    x: (value) => margin.l + width * share(axes.xaxis, value),
    y: (value, axis) => margin.t + height * (1 - share(axes[axis], value)),
    valueAt: (x) => first + ((last - first) * (x - margin.l)) / width,
  };
}
