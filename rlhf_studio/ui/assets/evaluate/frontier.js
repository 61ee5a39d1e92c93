// Reward and gold against the distance from the reference: where a reward is over-optimised.
import { keys } from "../charts/keys.js";
import { Plot, coloursOf, layout, lineOf, loadPlotly, whenThemeChanges } from "../charts/plot.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { number, readable } from "../shared/format.js";
import { figure, numberHead, rowHead, scrolling, table } from "../shared/table.js";

const COLOURS = { score: "score", gold: "gold", judge: "part-3" };
const MARKS = { score: "circle", gold: "diamond", judge: "square" };

export class Frontier {
  constructor({ plotly }) {
    this.plotly = plotly;
    this.sentence = el("p", { class: "rs-evaluate-sentence" });
    this.legend = el("div", {});
    this.plot = new Plot("Frontier");
    this.list = scrolling("rs-evaluate-scroll", "Points of the frontier");
    this.nothing = el("p", { class: "rs-help", hidden: true }, "No policy here has a KL from the reference.");
    this.node = el(
      "div",
      { class: "rs-evaluate-part" },
      this.sentence,
      this.legend,
      this.plot.node,
      this.nothing,
      this.list,
    );
    whenThemeChanges(() => this.redraw());
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
    show(this.plot.node, frontier.points.length > 0);
    this.drawList(frontier.points, named);
    if (!frontier.points.length) return;
    await loadPlotly(this.plotly);
    const colour = coloursOf(this.node);
    fill(this.legend, keys(named.map(({ name, title }) => ({ label: title, colour: colour(COLOURS[name]) }))));
    const farthest = number(frontier.points.at(-1).root_kl);
    this.plot.draw(
      named.map(({ name }) => traceOf(frontier.points, name, colour(COLOURS[name]))),
      lookOf(colour),
      `${named.map(({ title }) => title).join(", ")} against the distance from the reference: ` +
        `${frontier.points.length} policies, square root of KL from 0 to ${farthest}`,
    );
  }

  drawList(points, named) {
    const heads = ["\u221aKL", ...named.map(({ title }) => title)].map((title) => numberHead(title));
    const values = (point) => [point.root_kl, ...named.map(({ name }) => point.measures[name]?.value)];
    const rows = points.map((point) => [
      rowHead(readable(point.policy, 60)),
      ...values(point).map((value) => figure(number(value))),
    ]);
    fill(this.list, table(["Policy", ...heads], rows));
  }
}

function traceOf(points, name, colour) {
  const known = points.filter((point) => point.measures[name]);
  const values = known.map((point) => point.measures[name]);
  const error = (cell, end) => (Number.isFinite(cell[end]) ? Math.abs(cell[end] - cell.value) : 0);
  const x = known.map((point) => point.root_kl);
  const y = values.map((cell) => cell.value);
  return lineOf(x, y, colour, {
    mode: "lines+markers",
    cliponaxis: false,
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
  });
}

const lookOf = (colour) =>
  layout(colour, {
    names: { x: "\u221aKL from the reference (\u221anats)", y: "mean over answers" },
    margin: { l: 56, b: 48 },
    zoom: false,
    xaxis: { showgrid: true, zeroline: true, rangemode: "tozero" },
    yaxis: { ticks: "outside", ticklen: 8, tickcolor: "rgba(0,0,0,0)" }, // room between the numbers and a point at 0
  });
