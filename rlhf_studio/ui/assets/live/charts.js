// The grid of small charts: one drawing each, with a legend, a crosshair and a zoom button.
import { Plot, coloursOf, isLoaded } from "../charts/plot.js";
import { saveAsPicture } from "../charts/save.js";
import { each, el, fill, setText, show } from "../shared/dom.js";
import { decimals, duration, number, percent } from "../shared/format.js";
import { term } from "../shared/tips.js";
import { layoutOf, linesOf, tracesOf } from "./traces.js";

const axisOf = (line) => (line.axis === "right" ? "yaxis2" : "yaxis");
const AXES = { step: "step", episode: "episodes", time: "minutes" };

class ChartCard {
  constructor(spec, grid) {
    this.spec = spec;
    this.grid = grid;
    this.hidden = new Set();
    this.dirty = false;
    this.onscreen = false;
    this.keys = new Map();
    this.build();
  }

  build() {
    const { spec } = this;
    this.cross = el("div", { class: "rs-cross", hidden: true });
    this.flag = el("div", { class: "rs-flag rs-cut", hidden: true });
    this.dots = el("div", { class: "rs-dots", "aria-hidden": "true" });
    this.legend = el("div", { class: "rs-legend rs-wrap" });
    this.xUnit = el("span", { class: "rs-unit-x" });
    this.reset = el(
      "button",
      { type: "button", class: "rs-link", hidden: true, onclick: () => this.plot.showAll() },
      "Reset zoom",
    );
    this.grow = el(
      "button",
      {
        type: "button",
        class: "rs-icon",
        "aria-expanded": "false",
        "aria-label": `Enlarge ${spec.title}`,
        onclick: () => this.toggleSize(),
      },
      "⤢",
    );
    this.save = el(
      "button",
      {
        type: "button",
        class: "rs-icon",
        "aria-label": `Save ${spec.title} as a picture`,
        onclick: () => this.picture(),
      },
      "⤓",
    );
    this.title = el("h3", {}, spec.title);
    this.rightUnit = el("span", {}, spec.right);
    this.plot = new Plot(spec.title, this.cross, this.flag, this.dots);
    this.plot.onzoom = (zoomed) => {
      show(this.reset, zoomed);
      this.mark(null, null);
    };
    this.frame = this.plot.node;
    this.off = false;
    this.node = el(
      "article",
      { class: "rs-chart rs-column rs-box", "data-chart": spec.key, tabindex: "-1" },
      el("div", { class: "rs-chart-head rs-middle" }, this.title, this.reset, this.save, this.grow),
      this.legend,
      el("div", { class: "rs-units" }, el("span", {}, spec.left), this.rightUnit),
      this.frame,
      this.xUnit,
    );
    this.frame.addEventListener("pointermove", (event) => this.point(event));
    this.frame.addEventListener("pointerleave", () => this.grid.hover(null));
  }

  setLegend() {
    const lines = linesOf(this.spec, this.grid.store);
    const names = [...lines.map((line) => line.metric), this.grid.settings?.[this.spec.target]].join("\n");
    if (names === this.legendNames) return;
    this.legendNames = names;
    this.keys = new Map();
    for (const line of lines) {
      const value = el("b", {});
      const key = el(
        "button",
        {
          type: "button",
          class: "rs-key",
          "data-term": line.metric,
          "aria-pressed": "true",
          onclick: () => this.toggleLine(line.metric),
        },
        el("i", { class: `rs-line-${line.style}`, style: { "--c": `var(--q-${line.colour})` } }),
        el("span", {}, term(line.metric).title),
        value,
      );
      this.keys.set(line.metric, { key, value, line });
    }
    const two = lines.some((line) => line.axis === "right");
    setText(this.title, two || !this.spec.alone ? this.spec.title : this.spec.alone);
    show(this.rightUnit, two);
    const target = this.grid.settings?.[this.spec.target];
    const dashed =
      target === null || target === undefined
        ? null
        : el(
            "span",
            { class: "rs-key" },
            el("i", { class: "rs-line-target" }),
            `target ${number(target, decimals(target))}`,
          );
    fill(this.legend, ...[...this.keys.values()].map((entry) => entry.key), dashed);
  }

  toggleLine(metric) {
    if (this.hidden.has(metric)) this.hidden.delete(metric);
    else this.hidden.add(metric);
    this.keys.get(metric).key.setAttribute("aria-pressed", String(!this.hidden.has(metric)));
    this.draw();
  }

  toggleSize() {
    const large = this.node.classList.toggle("rs-large");
    this.grow.setAttribute("aria-expanded", String(large));
  }

  /** Save what is drawn, with title and legend. */
  picture() {
    const keys = [...this.keys.values()]
      .filter(({ line }) => !this.hidden.has(line.metric))
      .map(({ line, value }) => ({
        text: `${term(line.metric).title} ${value.textContent}`,
        colour: this.grid.options().colour(line.colour),
      }));
    saveAsPicture(
      this.plot.drawing,
      this.grid.root,
      this.title.textContent,
      keys,
      `${this.spec.key}-${this.grid.run}.png`,
    );
  }

  /** Values in the legend: at `step`, or as they are now. */
  setValues(step) {
    const { store } = this.grid;
    for (const [metric, { value, line, digits }] of this.keys) {
      const shown = step === null ? store.now(metric) : store.at(metric, step);
      setText(value, line.percent ? percent(shown) : number(shown, digits));
    }
  }

  /** Be there when the run has something for this chart; gives whether there is. */
  place() {
    this.setLegend();
    const { spec, grid } = this;
    const placed = this.keys.size > 0 && !this.off && (!spec.x_metric || grid.store.has(spec.x_metric));
    show(this.node, placed);
    return placed;
  }

  draw() {
    const { grid } = this;
    const placed = this.place();
    for (const [metric, entry] of this.keys) entry.digits = decimals(grid.store.largest(metric));
    this.setValues(grid.hovered);
    if (!placed || !isLoaded()) return;
    this.dirty = !this.onscreen;
    if (this.dirty) return;
    this.revision = (this.revision || 0) + 1;
    const options = { ...grid.options(), hidden: this.hidden, datarevision: this.revision };
    const traces = tracesOf(this.spec, grid.store, options);
    this.plot.draw(traces, layoutOf(this.spec, grid.store, traces, options), this.words());
    setText(this.xUnit, this.spec.kind === "path" ? "KL" : AXES[grid.mode]);
    this.mark(grid.hovered, grid.owner);
  }

  /** What is seen, for who cannot see it. */
  words() {
    const { store } = this.grid;
    const parts = [...this.keys.values()].map(({ line, digits }) => {
      const first = store.get(line.metric).y.find((value) => value !== null);
      const format = (value) => (line.percent ? percent(value) : number(value, digits));
      return `${term(line.metric).title} from ${format(first)} to ${format(store.now(line.metric))}`;
    });
    return `${this.spec.title}: ${parts.join("; ")}`;
  }

  /** The step under the pointer. */
  point(event) {
    const { scales } = this.plot;
    const first = [...this.keys.values()].find(({ line }) => !this.hidden.has(line.metric));
    if (!scales || !first) return;
    const at = this.plot.at(event);
    if (at.x < scales.left - 4 || at.x > scales.left + scales.width + 4) return;
    const { store, mode } = this.grid;
    const step =
      this.spec.kind === "path"
        ? this.nearestOnPath(scales, first.line, at)
        : store.nearestStep(first.line.metric, store.fromAxis(scales.valueAt(at.x), mode));
    this.grid.hover(step, this);
  }

  nearestOnPath(scales, line, at) {
    const { x: steps, y } = this.grid.store.get(line.metric);
    let [best, distance] = [null, Infinity];
    steps.forEach((step, index) => {
      const kl = this.grid.store.at(this.spec.x_metric, step);
      if (kl === null || y[index] === null) return;
      const length = Math.hypot(scales.x(kl) - at.x, scales.y(y[index], axisOf(line)) - at.y);
      if (length < distance) [best, distance] = [step, length];
    });
    return best;
  }

  /** Crosshair (or dots, on a path) at a step; the flag with words only in the chart under the pointer. */
  mark(step, owner) {
    const { scales } = this.plot;
    const off = step === null || !scales || this.node.hidden;
    if (this.spec.kind === "path") {
      fill(this.dots, off ? [] : this.pathDots(scales, step));
      return show(this.cross, false);
    }
    const x = off ? 0 : scales.x(this.grid.store.toAxis(step, this.grid.mode));
    const inside = !off && x >= scales.left && x <= scales.left + scales.width;
    show(this.cross, inside);
    show(this.flag, inside && owner === this);
    if (!inside) return undefined;
    this.cross.style.left = `${x}px`;
    if (owner !== this) return undefined;
    setText(this.flag, this.grid.flagText(step));
    const left = x > scales.left + scales.width / 2;
    this.flag.style.left = left ? "" : `${x + 6}px`;
    this.flag.style.right = left ? `${this.frame.clientWidth - x + 6}px` : "";
    return undefined;
  }

  pathDots(scales, step) {
    const { store } = this.grid;
    const kl = store.at(this.spec.x_metric, step);
    return [...this.keys.values()]
      .filter(({ line }) => !this.hidden.has(line.metric) && kl !== null && store.at(line.metric, step) !== null)
      .map(({ line }) => {
        const [left, top] = [scales.x(kl), scales.y(store.at(line.metric, step), axisOf(line))];
        return el("span", { style: { left: `${left}px`, top: `${top}px`, "--c": `var(--q-${line.colour})` } });
      });
  }
}

export class ChartGrid {
  constructor(specs, store, root) {
    this.store = store;
    this.root = root;
    this.mode = "step";
    this.weight = 0;
    this.settings = null;
    this.run = "";
    this.marks = [];
    this.hovered = null;
    this.owner = null;
    this.cards = specs.map((spec) => new ChartCard(spec, this));
    // of each stage the two curves that matter: they stand beside the answers, and cannot be put away
    this.first = this.cards.filter((card) => card.spec.first).map((card) => card.node);
    this.others = this.cards.filter((card) => !card.spec.first);
    this.node = el("div", { class: "rs-charts" });
    this.seen = new IntersectionObserver((entries) => this.onseen(entries), { rootMargin: "120px" });
    for (const card of this.cards) this.seen.observe(card.frame);
    this.byFrame = new Map(this.cards.map((card) => [card.frame, card]));
  }

  /** Put the other charts in this order, and put away those whose keys are in `off`. */
  arrange(order, off) {
    const place = (card) => (order.includes(card.spec.key) ? order.indexOf(card.spec.key) : order.length);
    this.others.sort((one, other) => place(one) - place(other));
    each(this.node, this.others, (card) => card.node);
    for (const card of this.others) card.off = off.includes(card.spec.key);
    for (const card of this.others) card.draw();
  }

  /** The card that draws a metric; the one whose first line it is before others. */
  cardOf(metric) {
    const draws = (card) => card.spec.lines.findIndex((line) => line.metric === metric);
    return this.cards
      .filter((card) => draws(card) >= 0 || (card.spec.extras && metric.startsWith(card.spec.extras)))
      .sort((one, other) => draws(one) - draws(other))[0];
  }

  onseen(entries) {
    for (const entry of entries) {
      const card = this.byFrame.get(entry.target);
      card.onscreen = entry.isIntersecting;
      if (card.onscreen && card.dirty) card.draw();
    }
  }

  options() {
    const { mode, weight, settings, marks, run: revision } = this;
    return { mode, weight, settings, marks, revision, colour: coloursOf(this.root) };
  }

  /** Redraw, one chart per frame, so that a busy page stays responsive. Which charts there are is clear at once. */
  update() {
    for (const card of this.cards) card.place();
    const round = (this.round = (this.round || 0) + 1);
    const waiting = [...this.cards];
    const next = () => {
      if (round !== this.round || !waiting.length) return;
      waiting.shift().draw();
      requestAnimationFrame(next);
    };
    next();
  }

  hover(step, owner = null) {
    this.hovered = step;
    this.owner = owner;
    for (const card of this.cards) {
      if (card.node.hidden) continue;
      card.setValues(step);
      card.mark(step, owner);
    }
  }

  flagText(step) {
    const elapsed = this.store.at("time/elapsed", step);
    const marks = this.marks.filter((mark) => mark.step === step).map((mark) => mark.text);
    return [`step ${step}`, elapsed === null ? null : duration(elapsed), ...marks].filter(Boolean).join(" · ");
  }
}
