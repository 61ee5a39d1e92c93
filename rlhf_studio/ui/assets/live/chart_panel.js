// The charts with what is above them: the choice of the horizontal axis, and the smoothing.
import { el, memory, setText } from "../shared/dom.js";
import { Segments } from "../shared/segments.js";
import { ChartGrid } from "./charts.js";

const MANY_POINTS = 400; // from here on raw lines alone are hard to read
const SUGGESTED = 0.9;
const AXES = [
  { value: "step", label: "Step" },
  { value: "episode", label: "Episodes" },
  { value: "time", label: "Time" },
];
const TIP = "Exponential moving average; the raw line stays visible behind it. 0 shows the raw line alone.";

export class ChartPanel {
  constructor(specs, store, root) {
    this.charts = new ChartGrid(specs, store, root);
    const axis = memory.get("axis", "step");
    const weight = memory.get("smoothing", null);
    this.charts.mode = axis;
    this.charts.weight = weight ?? 0;
    this.touched = weight !== null;
    const choice = new Segments({ "aria-label": "Horizontal axis" }, AXES, axis, (mode) => this.setAxis(mode));
    this.shown = el("output", {}, this.charts.weight.toFixed(2));
    this.slider = el("input", {
      type: "range",
      class: "rs-slider",
      min: "0",
      max: "0.95",
      step: "0.05",
      value: String(this.charts.weight),
      "aria-label": "Smoothing",
      oninput: () => this.setSmoothing(Number(this.slider.value)),
    });
    const smoothing = el("label", { class: "rs-smoothing", "data-tip": TIP }, "Smoothing", this.slider, this.shown);
    const tools = el("div", { class: "rs-tools" }, choice.node, smoothing);
    this.node = el("section", { class: "rs-chart-panel", "aria-label": "Charts" }, tools, this.charts.node);
  }

  setAxis(mode) {
    memory.set("axis", mode);
    this.charts.mode = mode;
    this.charts.update();
  }

  setSmoothing(weight) {
    memory.set("smoothing", weight);
    this.touched = true;
    this.smooth(weight);
    this.charts.update();
  }

  /** Smooth long series, and show short ones as they are, until a person moves the slider. */
  suggestSmoothing(points) {
    const weight = points > MANY_POINTS ? SUGGESTED : 0;
    if (this.touched || this.charts.weight === weight) return;
    this.slider.value = String(weight);
    this.smooth(weight);
  }

  smooth(weight) {
    setText(this.shown, weight.toFixed(2));
    this.charts.weight = weight;
  }
}
