// A sweep as a table that is a heat map: a metric over the values of one or two settings.
import { each, el, fill, setText, show } from "../shared/dom.js";
import { number, readable } from "../shared/format.js";
import { compared, written } from "./values.js";
import { listing, t, tn } from "../shared/language.js";

/** "a", "a and b", "a, b and c". */
const listed = (words) =>
  words.length > 1 ? t("{most} and {last}", { most: listing(words.slice(0, -1)), last: words.at(-1) }) : words.join("");

const FIRST = ["gold/score", "objective/scores", "objective/kl"];

export class SweepView {
  /** @param ask  asks for the table of a metric */
  constructor(ask) {
    this.ask = ask;
    this.metric = el("select", {
      class: "rs-input rs-sorting",
      "aria-label": t("Metric of the sweep"),
      onchange: () => this.load(),
    });
    this.said = el("span", { class: "rs-muted" });
    this.body = el("div");
    this.node = el(
      "section",
      { class: "rs-panel rs-box", "aria-label": t("Sweep"), hidden: true },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, t("Sweep")), this.metric, this.said),
      this.body,
    );
  }

  draw({ runs, settings, metrics: all }) {
    const metrics = all.filter(({ one_scale }) => one_scale); // what means something else in each run is no table
    // of runs that differ in the seed alone the figures say it all
    const axes = settings.filter((row) => row.differs && row.setting !== "engine.seed");
    const placed = runs.filter((_, run) => axes.every((row) => row.known[run]));
    const one = new Set(placed.map(({ kind }) => kind)).size === 1; // runs of different trainers are no sweep
    const possible = one && axes.length > 0 && axes.length <= 2 && metrics.length > 0;
    this.runs = runs;
    show(this.node, possible);
    if (!possible) return;
    const before = this.metric.value;
    each(this.metric, metrics, ({ name, title }) => el("option", { value: name }, title));
    const names = metrics.map(({ name }) => name);
    this.metric.value = [before, ...FIRST].find((name) => names.includes(name)) || names[0];
    this.load();
  }

  async load() {
    const ticket = (this.ticket = Symbol("sweep"));
    const reply = await this.ask(this.metric.value);
    if (ticket !== this.ticket) return;
    setText(
      this.said,
      reply.problem ? "" : t("mean of the last tenth, or newest measurement; a stronger colour is higher"),
    );
    if (reply.problem) fill(this.body, el("p", { class: "rs-hint" }, reply.problem));
    else fill(this.body, this.table(reply), this.leftOut(reply));
  }

  /** Why some of the runs have no place in the table. */
  leftOut({ left_out: runs, titles }) {
    if (!runs.length) return null;
    const names = listed(runs.map((run) => `\u201c${readable(this.runs[run].label, 80)}\u201d`));
    const missing = tn(
      "Not in the table: {runs}, of which {titles} is not known.",
      "Not in the table: {runs}, of which {titles} are not known.",
      titles.length,
      { runs: names, titles: listed(titles) },
    );
    return el("p", { class: "rs-hint" }, missing);
  }

  table({ titles, rows, columns, cells }) {
    const means = cells
      .flat()
      .map((cell) => cell?.mean ?? null)
      .filter(Number.isFinite);
    const [low, high] = [Math.min(...means), Math.max(...means)];
    const share = (mean) => (high > low ? (mean - low) / (high - low) : 0.5);
    const two = titles.length === 2;
    const heads = two
      ? [`${titles[0]} \u2193  ${titles[1]} \u2192`, ...columns.map(written)]
      : [titles[0], t("Mean"), t("Lowest to highest")];
    const range = ({ low, high }) =>
      low === null ? "\u2013" : t("{low} to {high}", { low: number(low), high: number(high) });
    const heat = (cell) =>
      cell === null || cell.mean === null
        ? el("td", { class: "rs-heat" }, cell && two ? range(cell) : "\u2013")
        : el(
            "td",
            { class: "rs-heat", style: { "--h": `${Math.round(70 * share(cell.mean))}%` } },
            number(cell.mean, 3),
            two && cell.runs.length > 1 ? el("small", {}, ` ${range(cell)}`) : null,
          );
    const spread = (cell) =>
      el("td", { class: "rs-figure" }, cell && cell.runs.length > 1 ? range(cell) : t("one run"));
    return compared(
      heads,
      rows.map((value, row) => [
        el("th", { scope: "row" }, written(value)),
        ...cells[row].map(heat),
        ...(two ? [] : [spread(cells[row][0])]),
      ]),
      t("Table of the sweep"),
    );
  }
}
