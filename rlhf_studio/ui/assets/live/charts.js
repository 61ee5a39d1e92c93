// The grid of small charts: one drawing each, with a legend, a zoom button, and what is read off it at a step: by a
// pointer, by a tap, or with the arrow keys.
import { Plot, Reading, coloursOf, isLoaded } from "../charts/plot.js";
import { saveAsPicture } from "../charts/save.js";
import { each, el, fill, setText, show } from "../shared/dom.js";
import { decimals, duration, number, percent } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { term, unitWords } from "../shared/tips.js";
import { isShared, layoutOf, linesOf, tracesOf, usualOf } from "./traces.js";
import { clauses, colon, t, tp } from "../shared/language.js";

/** A value of a line as its legend has it. */
const written = ({ line, digits }, value) => (line.percent ? percent(value) : number(value, digits));
const plain = (value) => String(value).replace("-", "\u2212");
const axisOf = (line) => (line.axis === "right" ? "yaxis2" : "yaxis");
const AXES = { step: tp("axis", "step"), episode: tp("axis", "episodes"), time: tp("axis", "minutes") };
const PATH_UNIT = t("KL, nats");
const APART = t("Two scales: the distance between the lines says nothing.");
const PARTS = t("Parts of the reward"); // of a log that has no score
const EDGE = 3; // pixels: an edge of the usual range so near to the frame's own needs no word
const WORD = 14; // pixels
const NARROWEST = 266; // pixels of one of the other charts, with the gap beside it

class ChartCard {
  constructor(spec, grid) {
    this.spec = spec;
    this.grid = grid;
    this.hidden = new Set(spec.lines.filter(({ style }) => style === "asked").map(({ metric }) => metric));
    this.dirty = false;
    this.onscreen = false;
    this.keys = new Map();
    this.build();
  }

  build() {
    const { spec, grid } = this;
    this.reading = new Reading();
    this.flag = el("div", { class: "rs-flag rs-cut", hidden: true });
    this.edges = el("div", { class: "rs-usual-edges", "aria-hidden": "true" });
    this.legend = el("div", { class: "rs-legend rs-wrap" });
    this.xUnit = el("span", { class: "rs-unit-x" });
    this.reset = el(
      "button",
      { type: "button", class: "rs-link", hidden: true, onclick: () => this.plot.showAll() },
      t("Reset zoom"),
    );
    this.grow = el(
      "button",
      {
        type: "button",
        class: "rs-icon",
        "aria-expanded": "false",
        "aria-label": t("Enlarge {title}", { title: spec.title }),
        onclick: () => this.toggleSize(),
      },
      "⤢",
    );
    this.save = el(
      "button",
      {
        type: "button",
        class: "rs-icon",
        "aria-label": t("Save {title} as a picture", { title: spec.title }),
        onclick: () => this.picture(),
      },
      "⤓",
    );
    this.title = el("h3", {}, spec.title);
    this.leftUnit = el("span", {});
    this.rightUnit = el("span", {}, unitWords(spec.right));
    this.apart = el("p", { class: "rs-chart-note", hidden: true }, APART);
    this.plot = new Plot(spec.title, this.edges, ...this.reading.nodes, this.flag);
    this.plot.onzoom = (zoomed) => {
      show(this.reset, zoomed);
      this.sayUsual();
      grid.hover(null);
    };
    this.frame = this.plot.node;
    this.off = false;
    this.node = el(
      "article",
      { class: "rs-chart rs-column rs-box", "data-chart": spec.key, tabindex: "-1" },
      el("div", { class: "rs-chart-head rs-middle" }, this.title, this.reset, this.save, this.grow),
      this.legend,
      this.apart,
      el("div", { class: "rs-units" }, this.leftUnit, this.rightUnit),
      this.frame,
      this.xUnit,
    );
    this.listen();
  }

  /** What a finger has pointed at stays until it points elsewhere. */
  listen() {
    const { frame, grid } = this;
    const leave = ({ pointerType }) => pointerType !== "touch" && grid.hover(null);
    frame.addEventListener("pointermove", (event) => event.pointerType !== "touch" && this.point(event));
    frame.addEventListener("pointerleave", leave);
    frame.addEventListener("pointerup", (event) => event.pointerType === "touch" && this.point(event));
    frame.addEventListener("keydown", (event) => this.key(event));
    frame.addEventListener("blur", () => grid.owner === this && grid.hover(null));
  }

  setLegend() {
    const { settings, unit } = this.grid;
    const lines = linesOf(this.spec, this.grid.store, settings);
    const shared = isShared(this.spec, settings);
    const names = [...lines.map((line) => line.metric), settings?.[this.spec.target], shared, unit].join("\n");
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
          "aria-pressed": String(!this.hidden.has(line.metric)),
          onclick: () => this.toggleLine(line.metric),
        },
        el("i", { class: `rs-line-${line.style}`, style: { "--c": `var(--q-${line.colour})` } }),
        el("span", {}, term(line.metric).title),
        value,
      );
      this.keys.set(line.metric, { key, value, line, title: term(line.metric).title });
    }
    const two = lines.some((line) => line.axis === "right");
    const pair = this.spec.lines.every(({ metric }) => this.keys.has(metric));
    const parts = lines.length > 0 && lines.every(({ metric }) => metric.startsWith(this.spec.extras || "\0"));
    setText(this.title, parts ? PARTS : pair || !this.spec.alone ? this.spec.title : this.spec.alone);
    const counted = this.spec.key === "length" ? unit : this.spec.left;
    fill(this.leftUnit, unitWords(parts || (shared && pair) ? this.spec.shares : counted));
    show(this.rightUnit, two);
    show(this.apart, two && Boolean(this.spec.shares));
    const target = settings?.[this.spec.target];
    const dashed =
      target === null || target === undefined
        ? null
        : el(
            "span",
            { class: "rs-key" },
            el("i", { class: "rs-line-target" }),
            t("target {target}", { target: number(target, decimals(target)) }),
          );
    this.usualKey = el("span", { class: "rs-key" });
    fill(this.legend, ...[...this.keys.values()].map((entry) => entry.key), dashed, this.usualKey);
    this.nameUsual();
  }

  /** The usual range in words, of the first line that is drawn and has one. */
  nameUsual() {
    const lines = [...this.keys.values()].map(({ line }) => line);
    this.usual = usualOf(this.spec, lines, this.hidden);
    show(this.usualKey, Boolean(this.usual));
    if (!this.usual) return;
    const { low, high } = this.usual;
    fill(
      this.usualKey,
      el("i", { class: "rs-line-usual" }),
      t("usual {low} to {high}", { low: plain(low), high: plain(high) }),
    );
  }

  /** A word at each edge of the usual range that lies inside of the drawing. */
  sayUsual() {
    const { scales } = this.plot;
    if (!this.usual || !scales) return void fill(this.edges);
    const [top, bottom] = [scales.top, scales.top + scales.height];
    const right = `${this.frame.clientWidth - scales.left - scales.width + 4}px`;
    const words = this.usual.edges.map((edge) => {
      const y = scales.y(edge, "yaxis");
      if (y < top + EDGE || y > bottom - EDGE) return null;
      const upper = edge === this.usual.high;
      const over = upper ? y - WORD >= top : y + WORD > bottom;
      const text = upper ? t("usual to {edge}", { edge: plain(edge) }) : t("usual from {edge}", { edge: plain(edge) });
      return el("span", { class: over ? "rs-over" : null, style: { top: `${y}px`, right } }, text);
    });
    return void fill(this.edges, words);
  }

  toggleLine(metric) {
    if (this.hidden.has(metric)) this.hidden.delete(metric);
    else this.hidden.add(metric);
    this.keys.get(metric).key.setAttribute("aria-pressed", String(!this.hidden.has(metric)));
    this.nameUsual();
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
    for (const [metric, entry] of this.keys)
      setText(entry.value, written(entry, step === null ? store.now(metric) : store.at(metric, step)));
  }

  /** Whether the run has something for this chart. */
  get hasData() {
    const { spec, grid } = this;
    return (!spec.x_metric || grid.store.has(spec.x_metric)) && linesOf(spec, grid.store, grid.settings).length > 0;
  }

  /** Whether numbers may still come that are measured at some steps only. */
  get mayCome() {
    return this.spec.lines.some(({ style }) => style === "sparse");
  }

  /** Be there when the run has something for this chart; gives whether there is. */
  place() {
    this.setLegend();
    const placed = this.hasData && !this.off;
    show(this.node, placed);
    return placed;
  }

  draw() {
    const { grid } = this;
    const placed = this.place();
    for (const [metric, entry] of this.keys) entry.digits = decimals(grid.store.largest(metric));
    this.setValues(grid.hovered);
    if (!placed || !isLoaded()) return;
    // what is out of sight is drawn once, so that nobody meets an empty frame, and again when it comes near
    this.dirty = !this.onscreen && (this.plot.drawn || !this.frame.offsetWidth);
    if (this.dirty) return;
    this.revision = (this.revision || 0) + 1;
    const options = { ...grid.options(), hidden: this.hidden, datarevision: this.revision };
    const traces = tracesOf(this.spec, grid.store, options);
    this.plot.draw(traces, layoutOf(this.spec, grid.store, traces, options), this.words());
    setText(this.xUnit, this.spec.kind === "path" ? PATH_UNIT : AXES[grid.mode]);
    this.sayUsual();
    this.mark(grid.hovered, grid.owner);
    this.sayStep(grid.owner === this ? grid.hovered : null);
  }

  /** Where the arrow keys have led, for who cannot see it. */
  sayStep(step) {
    const steps = this.steps;
    const now = step ?? steps.at(-1) ?? 0;
    const values = this.shown.map(
      (entry) => `${entry.title} ${written(entry, this.grid.store.at(entry.line.metric, now))}`,
    );
    const said = { valuemin: steps[0] ?? 0, valuemax: steps.at(-1) ?? 0, valuenow: now };
    for (const [name, value] of Object.entries({
      ...said,
      valuetext: colon(t("step {step}", { step: now }), clauses(values)),
    }))
      this.frame.setAttribute(`aria-${name}`, value);
    this.frame.setAttribute("role", "slider"); // only now: before, there is nothing to go along
    this.frame.tabIndex = 0;
  }

  /** What is seen, for who cannot see it. */
  words() {
    const { store } = this.grid;
    const parts = this.shown.map((entry) => {
      const first = store.get(entry.line.metric).y.find((value) => value !== null);
      return t("{title} from {entry} to {entry2}", {
        title: entry.title,
        entry: written(entry, first),
        entry2: written(entry, store.now(entry.line.metric)),
      });
    });
    return colon(this.spec.title, parts.join(t("; ")));
  }

  /** The lines that are drawn. */
  get shown() {
    return [...this.keys.values()].filter(({ line }) => !this.hidden.has(line.metric));
  }

  /** The steps of the first line. */
  get steps() {
    return this.shown.length ? this.grid.store.get(this.shown[0].line.metric).x : [];
  }

  /** Arrow keys go from step to step, Home and End to the first and the last one. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { grid, steps } = this;
    const here = grid.owner === this ? steps.indexOf(grid.hovered) : -1;
    const last = steps.length - 1;
    const from = here < 0 ? last : here;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape" && here >= 0) grid.hover(null);
    else if (to !== undefined && last >= 0) grid.hover(steps[Math.max(0, Math.min(last, to))], this);
    else return;
    event.preventDefault();
  }

  /** The step under the pointer. */
  point(event) {
    const { scales } = this.plot;
    const [first] = this.shown;
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

  /** Hairline (or dots, on a path) at a step; values and words only in the chart that is pointed at. */
  mark(step, owner) {
    const { scales } = this.plot;
    const path = this.spec.kind === "path";
    const x = step === null || !scales || this.node.hidden ? NaN : this.xOf(scales, step);
    const inside = x >= scales?.left - 1 && x <= scales.left + scales.width + 1;
    const own = inside && owner === this;
    show(this.flag, own && !path);
    if (!inside) return this.reading.hide();
    this.reading.show(scales, own || path ? this.pointsAt(scales, step, x, own) : [], path ? null : x);
    if (own) this.sayStep(step);
    if (!own || path) return undefined;
    setText(this.flag, this.grid.flagText(step));
    const half = this.flag.offsetWidth / 2;
    this.flag.style.left = `${Math.max(half, Math.min(this.frame.clientWidth - half, x))}px`;
    return undefined;
  }

  xOf(scales, step) {
    const { store, mode } = this.grid;
    const at = this.spec.kind === "path" ? store.at(this.spec.x_metric, step) : store.toAxis(step, mode);
    return at === null ? NaN : scales.x(at);
  }

  /** Where the lines are at a step, with their values; stacked areas lie on top of each other. */
  pointsAt(scales, step, x, worded) {
    let below = 0;
    return this.shown.flatMap((entry) => {
      const { line } = entry;
      const value = this.grid.store.at(line.metric, step);
      if (value === null) return [];
      const height = (line.percent ? 100 : 1) * value;
      if (line.style === "stack") below += height;
      const y = scales.y(line.style === "stack" ? below : height, axisOf(line));
      return [{ x, y, colour: `var(--q-${line.colour})`, text: worded ? written(entry, value) : "" }];
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
    this.unit = "tokens"; // what lengths count
    this.marks = [];
    this.hovered = null;
    this.owner = null;
    this.cards = specs.map((spec) => new ChartCard(spec, this));
    // of each stage the two curves that matter: they stand beside the answers, and cannot be put away
    this.first = this.cards.filter((card) => card.spec.first).map((card) => card.node);
    this.others = this.cards.filter((card) => !card.spec.first);
    this.node = el("div", { class: "rs-charts" });
    this.seen = new IntersectionObserver((entries) => this.onseen(entries), { rootMargin: "300px" });
    for (const card of this.cards) this.seen.observe(card.frame);
    new ResizeObserver(() => this.spread()).observe(this.node);
    this.byFrame = new Map(this.cards.map((card) => [card.frame, card]));
    root.addEventListener("pointerdown", ({ target, pointerType }) => {
      if (pointerType === "touch" && this.hovered !== null && !target.closest(".rs-plot-frame")) this.hover(null);
    });
  }

  /** Put the other charts in this order, and put away those whose keys are in `off`. */
  arrange(order, off) {
    const place = (card) => (order.includes(card.spec.key) ? order.indexOf(card.spec.key) : order.length);
    this.others.sort((one, other) => place(one) - place(other));
    each(this.node, this.others, (card) => card.node);
    for (const card of this.others) card.off = off.includes(card.spec.key);
    for (const card of this.others) card.draw();
    this.spread();
  }

  /** Share the other charts out over rows of about as many: as few rows as there is room for. */
  spread() {
    const there = this.others.filter((card) => !card.node.hidden).length;
    const most = Math.max(1, Math.floor(this.node.clientWidth / (NARROWEST * textSize())));
    const rows = Math.max(1, Math.ceil(there / most));
    this.node.style.setProperty("--columns", String(Math.max(1, Math.ceil(there / rows))));
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
      else if (card.onscreen && this.hovered !== null) card.mark(this.hovered, this.owner);
    }
  }

  options() {
    const { mode, weight, settings, marks, run: revision } = this;
    return { mode, weight, settings, marks, revision, colour: coloursOf(this.root) };
  }

  /** Redraw, one chart per frame, so that a busy page stays responsive. Which charts there are is clear at once. */
  update() {
    for (const card of this.cards) card.place();
    this.spread();
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
    if (step === this.hovered && owner === this.owner) return;
    this.hovered = step;
    this.owner = owner;
    for (const card of this.cards) {
      if (card.node.hidden || (step !== null && !card.onscreen)) continue;
      card.setValues(step);
      card.mark(step, owner);
    }
  }

  flagText(step) {
    const elapsed = this.store.at("time/elapsed", step);
    const marks = this.marks.filter((mark) => mark.step === step).map((mark) => mark.text);
    return [t("step {step}", { step }), elapsed === null ? null : duration(elapsed), ...marks]
      .filter(Boolean)
      .join(" · ");
  }
}
