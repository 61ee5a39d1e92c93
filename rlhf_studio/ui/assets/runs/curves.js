// The curves of several runs in small charts, one for each metric. Seeds of the same settings become mean and band.
import { Plot, Reading, band, coloursOf, layout, lineOf, loadPlotly, whenThemeChanges } from "../charts/plot.js";
import { each, el, fill, setText, show } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { unitWords, word } from "../shared/tips.js";
import { colourName, countOf, dashOf, figures, linesOf, runHead, severalRuns } from "./values.js";
import { clauses, colon, t, tp } from "../shared/language.js";

const AT_END = t("at the end");
const MEAN = t("The mean of the last tenth of the steps.");
const NEWEST = t("The mean of the last tenth of the steps, or the newest measurement.");
const LAST = t("The value of the last step.");
const MOST_CHARTS = 12;
const FEW_RUNS = 5; // of so many, seeds have lines of their own at first
const MOST_WORDS = 6; // values beside the lines; of more runs they stand below the drawing alone

export class Curves {
  /**
   * @param plotly  address of the library
   * @param ask     asks for the curves of some metrics
   * @param chosen  called with the metrics that a person chooses
   * @param drew    called with {runs, groups, places}: which of their lines are in the charts
   */
  constructor({ host, plotly, ask, chosen, drew }) {
    this.host = host;
    this.plotly = plotly;
    this.ask = ask;
    this.chosen = chosen;
    this.drew = drew;
    this.titles = new Map();
    this.charts = new Map();
    this.list = el("div", { class: "rs-metric-list", role: "group", "aria-label": t("Metrics") });
    this.find = el("input", {
      type: "search",
      class: "rs-input",
      placeholder: t("Find a metric"),
      "aria-label": t("Find a metric"),
      oninput: () => this.filter(),
    });
    this.single = el("input", {
      type: "checkbox",
      onchange: () => {
        this.decided = true;
        this.redraw();
      },
    });
    this.lines = el("label", { class: "rs-check", hidden: true }, this.single, t("Single runs too"));
    this.chooser = el(
      "details",
      { class: "rs-metrics" },
      el("summary", { class: "rs-button rs-small" }, t("Choose metrics")),
      el("div", { class: "rs-metrics-box" }, this.find, this.list),
    );
    this.chooser.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.chooser.open) return;
      this.chooser.open = false;
      this.chooser.firstChild.focus();
    });
    this.told = el("span", { class: "rs-help", role: "status" });
    this.grid = el("div", { class: "rs-curves" });
    this.node = el(
      "section",
      { "aria-label": t("Curves") },
      el("div", { class: "rs-curves-head rs-flow" }, el("h3", {}, t("Curves")), this.chooser, this.lines, this.told),
      this.grid,
    );
    whenThemeChanges(() => this.redraw());
  }

  draw({ runs, groups, metrics, curves, shown }) {
    this.runs = runs;
    this.groups = groups;
    this.titles = new Map(metrics.map(({ name, title }) => [name, title]));
    this.units = new Map(metrics.map(({ name, unit }) => [name, unit]));
    this.metrics = shown;
    this.known = new Map(curves.map((curve) => [curve.metric, curve]));
    show(this.lines, severalRuns(groups).length > 0);
    if (!this.decided) this.single.checked = runs.length <= FEW_RUNS;
    this.boxes = metrics.map(({ name, title }) => {
      const box = el("input", { type: "checkbox", onchange: (event) => this.toggle(name, event.target) });
      box.checked = shown.includes(name);
      return { node: el("label", {}, box, title, el("code", {}, name)), text: `${title} ${name}`.toLowerCase() };
    });
    each(this.list, this.boxes, ({ node }) => node);
    this.filter();
    this.build();
  }

  filter() {
    const wanted = this.find.value.trim().toLowerCase();
    for (const { node, text } of this.boxes || []) show(node, text.includes(wanted));
  }

  async toggle(name, box) {
    if (box.checked && this.metrics.length >= MOST_CHARTS) {
      box.checked = false;
      setText(this.told, t("At most {MOST_CHARTS} metrics are drawn at once.", { MOST_CHARTS }));
      return;
    }
    setText(this.told, "");
    this.metrics = box.checked ? [...this.metrics, name] : this.metrics.filter((own) => own !== name);
    this.chosen(this.metrics);
    const missing = this.metrics.filter((own) => !this.known.has(own));
    if (missing.length) {
      const reply = await this.ask(missing);
      setText(this.told, reply.problem || "");
      for (const curve of reply.curves || []) this.known.set(curve.metric, curve);
    }
    this.build();
  }

  /** A frame for each metric; what was drawn before is drawn into again. */
  build() {
    const frames = this.metrics
      .filter((name) => this.known.has(name))
      .map((name) => {
        if (!this.charts.has(name)) this.charts.set(name, new Chart(name));
        const chart = this.charts.get(name);
        chart.call(this.titles.get(name) || name, this.units.get(name) || "");
        return chart.node;
      });
    fill(this.grid, frames.length ? frames : el("p", { class: "rs-hint" }, t("Choose a metric to see its curves.")));
    this.redraw();
  }

  async redraw() {
    if (!this.known || !this.node.offsetParent) return;
    try {
      await loadPlotly(this.plotly);
    } catch (error) {
      setText(this.told, t("The charts could not be loaded. Reload the page."));
      console.error(error);
      return;
    }
    const colour = coloursOf(this.host);
    const { runs, groups } = this;
    const places = new Set();
    for (const name of this.metrics) {
      const curve = this.known.get(name);
      if (!curve) continue;
      const lines = linesOf(curve, runs, groups, this.single.checked);
      this.charts.get(name).draw(curve, lines, this, colour);
      for (const { of } of lines) places.add(of.place);
    }
    this.drew({ runs, groups, places });
  }
}

class Chart {
  constructor(name) {
    this.title = word(name);
    this.step = null; // at which the values are read
    this.unit = el("span", { class: "rs-muted" });
    this.reading = new Reading();
    this.plot = new Plot(name, ...this.reading.nodes);
    this.plot.onzoom = () => this.rest();
    this.readout = el("ul", { class: "rs-curve-values rs-wrap" });
    this.node = el(
      "article",
      { class: "rs-panel rs-box", data: { metric: name } },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h4", {}, this.title), this.unit),
      this.plot.node,
      this.readout,
    );
    const finger = ({ pointerType }) => pointerType === "touch";
    this.plot.node.addEventListener("pointermove", (event) => !finger(event) && this.point(event));
    this.plot.node.addEventListener("pointerup", (event) => finger(event) && this.point(event));
    const keys = () => this.plot.node.matches(":focus-visible"); // what they read stays where a pointer goes away
    this.plot.node.addEventListener("pointerleave", (event) => !finger(event) && !keys() && this.rest());
    this.plot.node.addEventListener("keydown", (event) => this.key(event));
    this.plot.node.addEventListener("blur", () => this.rest());
  }

  call(title, unit) {
    setText(this.title, title);
    fill(this.unit, unitWords(unit));
  }

  draw(curve, lines, { runs, groups }, colour) {
    this.curve = curve;
    this.lines = lines;
    this.figure = figures(
      curve.metric,
      runs,
      curve.lines.flatMap(({ values }) => values),
    );
    this.steps = [...new Set(curve.lines.flatMap(({ steps }) => steps))].sort((one, other) => one - other);
    this.runs = runs;
    const ends = lines.map((line) =>
      t("{label} ends at {value}", {
        label: line.of.mean || line.of.label,
        value: this.written(line.of, this.ending(line)),
      }),
    );
    const words = colon(this.title.textContent, ends.join(t("; ")) || t("nothing recorded"));
    const { step } = this;
    this.rest(); // first: it takes room from the drawing
    const look = { uirevision: "kept", names: { x: tp("axis", "step") }, margin: { b: 36 } };
    this.plot.draw(tracesOf(curve, lines, groups, colour), layout(colour, look), words);
    if (step !== null && this.plot.scales) this.read(this.plot.scales, step); // what somebody reads stays
  }

  /** The values of all runs at the step under the pointer: on the lines, and with the runs' names below. */
  point(event) {
    const { scales } = this.plot;
    if (!scales) return;
    const { x } = this.plot.at(event);
    if (x < scales.left || x > scales.left + scales.width) return void this.rest();
    return this.read(scales, Math.round(scales.valueAt(x)));
  }

  /** Arrow keys go from step to step, Home and End to the first and the last one, as in Live's charts. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { steps, step } = this;
    const last = steps.length - 1;
    const from = step === null ? last : steps.findIndex((known) => known >= step);
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape" && step !== null) this.rest();
    else if (to !== undefined && last >= 0 && this.plot.scales)
      this.read(this.plot.scales, steps[Math.max(0, Math.min(last, to))]);
    else return;
    event.preventDefault();
  }

  /** The values of all runs at a step. */
  read(scales, step) {
    this.step = step;
    const rows = this.lines.map((line) => ({ of: line.of, value: valueAt(line, step) }));
    const known = rows.filter(({ value }) => value !== null);
    const points = known.map(({ of, value }) => ({
      x: scales.x(step),
      y: scales.y(value, "yaxis"),
      colour: `var(--q-${colourName(of.place)})`,
      text: known.length <= MOST_WORDS ? this.figure(value) : "",
    }));
    this.reading.show(scales, points, scales.x(step));
    this.tell(t("step {step}", { step }), rows);
  }

  written(of, value) {
    return `${this.figure(value)}${countOf(this.curve.metric, of)}`;
  }

  /** How a line ended: as the figures say it, where they do; a mean as the mean of them. */
  ending({ of, values }) {
    const ends = (of.mean ? of.runs.map((run) => this.runs[run]) : [of]).map(({ last }) => last[this.curve.metric]);
    if (!ends.every(Number.isFinite)) return values.at(-1);
    return ends.reduce((sum, end) => sum + end, 0) / ends.length;
  }

  /** What t("at the end") is of. */
  get endTip() {
    const told = this.curve.lines.every(({ run }) => Object.hasOwn(this.runs[run].last, this.curve.metric));
    if (!told) return LAST;
    return this.runs.every(({ stage }) => stage === "ppo") ? MEAN : NEWEST;
  }

  /** While nothing is pointed at, how each run ended. */
  rest() {
    this.reading.hide();
    this.step = null;
    this.tell(
      AT_END,
      this.lines.map((line) => ({ of: line.of, value: this.ending(line) })),
      this.endTip,
    );
  }

  /** Where the arrow keys have led, for who cannot see it. */
  say(when, rows) {
    const { steps } = this;
    const words = clauses(
      rows.map(({ of, value }) => `${readable(of.mean || of.label, 80)} ${this.written(of, value)}`),
    );
    const said = { valuemin: steps[0], valuemax: steps.at(-1), valuenow: this.step ?? steps.at(-1) };
    for (const [name, value] of Object.entries({ ...said, valuetext: colon(when, words) }))
      this.plot.node.setAttribute(`aria-${name}`, value);
    this.plot.node.setAttribute("role", "slider");
    this.plot.node.tabIndex = 0;
  }

  tell(when, rows, tip = "") {
    if (this.steps.length) this.say(when, rows);
    const items = rows.map(({ of, value }) => el("li", {}, runHead(of), el("b", {}, this.written(of, value))));
    const words = tip ? el("span", { class: "rs-word", tabindex: "0", "data-tip": tip }, when) : when;
    fill(this.readout, el("li", {}, words), items);
  }
}

/** The value at a step, or at the nearest one before it; null outside of the line. */
function valueAt({ steps, values }, step) {
  if (!steps.length || step < steps[0] || step > steps.at(-1)) return null;
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (steps[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return values[low];
}

/** The bands of means lie below all lines. */
function tracesOf({ bands }, lines, groups, colour) {
  const below = bands.flatMap(({ group, steps, low, high }) =>
    band(steps, low, high, colour(colourName(groups[group].place))),
  );
  const drawn = lines.map(({ of, steps, values, thin }) => {
    const look = of.mean ? { width: 2, mode: "lines" } : thin ? { width: 1.2, opacity: 0.7 } : { width: 2 };
    return lineOf(steps, values, colour(colourName(of.place)), { dash: dashOf(of.place), ...look });
  });
  return [...below, ...drawn];
}
