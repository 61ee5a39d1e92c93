// Reward and gold against the distance from the reference: where a reward is over-optimised.
import { debounce, el, fill, setText, show } from "../shared/dom.js";
import { number, readable } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { loadPlotly } from "../shared/plotly.js";

const CONFIG = { displayModeBar: false, doubleClick: "reset", responsive: false, showTips: false, scrollZoom: false };
const COLOURS = { score: "--q-score", gold: "--q-gold", judge: "--q-part-3" };
const MARKS = { score: "circle", gold: "diamond", judge: "square" };

export class Frontier {
  constructor({ plotly }) {
    this.plotly = plotly;
    this.sentence = el("p", { class: "rs-evaluate-sentence" });
    this.legend = el("ul", { class: "rs-evaluate-legend" });
    this.plot = el("div", { class: "rs-evaluate-plot" });
    this.frame = el("div", { role: "img" }, this.plot);
    this.list = el("div", {
      class: "rs-evaluate-scroll",
      tabindex: 0,
      role: "region",
      "aria-label": "Points of the frontier",
    });
    this.nothing = el("p", { class: "rs-help", hidden: true }, "No policy here has a KL from the reference.");
    this.node = el(
      "div",
      { class: "rs-evaluate-part" },
      this.sentence,
      this.legend,
      this.frame,
      this.nothing,
      this.list,
    );
    new ResizeObserver(
      debounce(60, () => this.drawn && this.plot.offsetWidth && window.Plotly.Plots.resize(this.plot)),
    ).observe(this.frame);
    new MutationObserver(() => this.redraw()).observe(document.body, { attributeFilter: ["class"] });
  }

  clear() {
    fill(this.list);
    setText(this.sentence, "");
  }

  draw(report) {
    this.report = report;
    this.redraw();
  }

  shown() {
    this.redraw();
  }

  async redraw() {
    if (!this.report || this.node.hidden) return;
    const { frontier, measures } = this.report;
    const named = measures.filter(({ name }) => name in COLOURS);
    // A reward that is over-optimised is told above all views.
    setText(this.sentence, frontier.over_optimised.length ? "" : frontier.sentence);
    show(this.sentence, Boolean(this.sentence.textContent));
    show(this.nothing, !frontier.points.length);
    show(this.frame, frontier.points.length > 0);
    this.drawList(frontier.points, named);
    if (!frontier.points.length) return;
    await loadPlotly(this.plotly);
    const style = getComputedStyle(this.node);
    const colour = (name) => style.getPropertyValue(name).trim();
    fill(
      this.legend,
      named.map(({ name, title }) =>
        el("li", {}, el("span", { class: "rs-evaluate-swatch", style: { background: colour(COLOURS[name]) } }), title),
      ),
    );
    const traces = named.map(({ name }) => traceOf(frontier.points, name, colour(COLOURS[name])));
    window.Plotly.react(this.plot, traces, layoutOf(colour), CONFIG);
    this.drawn = true;
    const farthest = number(frontier.points.at(-1).root_kl);
    const ends = `${frontier.points.length} policies, square root of KL from 0 to ${farthest}`;
    this.frame.setAttribute(
      "aria-label",
      `${named.map(({ title }) => title).join(", ")} against the distance from the reference: ${ends}`,
    );
  }

  drawList(points, named) {
    const head = ["Policy", "\u221aKL", ...named.map(({ title }) => title)];
    const cells = (point) => [point.root_kl, ...named.map(({ name }) => point.measures[name]?.value)];
    fill(
      this.list,
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            head.map((title, place) => el("th", { scope: "col", class: place ? "rs-number" : "" }, title)),
          ),
        ),
        el(
          "tbody",
          {},
          points.map((point) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, readable(point.policy, 60)),
              cells(point).map((value) => el("td", { class: "rs-number" }, number(value))),
            ),
          ),
        ),
      ),
    );
  }
}

/** Plotly is given no text that a person wrote: the legend and the table are our own. */
function traceOf(points, name, colour) {
  const known = points.filter((point) => point.measures[name]);
  const values = known.map((point) => point.measures[name]);
  const error = (cell, end) => (Number.isFinite(cell[end]) ? Math.abs(cell[end] - cell.value) : 0);
  return {
    type: "scatter",
    mode: "lines+markers",
    hoverinfo: "skip",
    showlegend: false,
    cliponaxis: false,
    x: known.map((point) => point.root_kl),
    y: values.map((cell) => cell.value),
    line: { color: colour, width: 1.6 },
    marker: { color: colour, size: 8, symbol: MARKS[name] },
    error_y: {
      type: "data",
      symmetric: false,
      array: values.map((cell) => error(cell, "high")),
      arrayminus: values.map((cell) => error(cell, "low")),
      color: colour,
      thickness: 1,
      width: 3,
    },
  };
}

function layoutOf(colour) {
  const axis = {
    gridcolor: colour("--q-grid"),
    zerolinecolor: colour("--q-zero"),
    linecolor: colour("--q-grid"),
    nticks: 6,
    ticks: "",
  };
  const title = (text) => ({ title: { text, font: { size: 12 * textSize() }, standoff: 8 } });
  return {
    margin: { l: 52 * textSize(), r: 12, t: 8, b: 44 * textSize() },
    font: { family: "ui-sans-serif, system-ui, sans-serif", size: 11 * textSize(), color: colour("--q-tick") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: false,
    dragmode: false,
    xaxis: { ...axis, ...title("\u221aKL from the reference (\u221anats)"), rangemode: "tozero" },
    // Room between the numbers and a point at 0.
    yaxis: {
      ...axis,
      ...title("mean over answers"),
      tickformat: "~g",
      ticks: "outside",
      ticklen: 8,
      tickcolor: "rgba(0,0,0,0)",
    },
  };
}
