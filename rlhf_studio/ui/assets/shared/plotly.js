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
