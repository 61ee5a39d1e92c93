// All charts but the first two, folded or not, chosen and ordered by the person; above them the axis and the smoothing.
import { each, el, keepInside, memory, setText, show } from "../shared/dom.js";
import { lasting } from "../shared/lasting.js";
import { Segments } from "../shared/segments.js";
import { ChartGrid } from "./charts.js";
import { t } from "../shared/language.js";

const MANY_POINTS = 400; // from here on raw lines alone are hard to read
const SUGGESTED = 0.9;
const SMALL = "(max-width: 640px)";
const FLASH = 1600;
const AXES = [
  { value: "step", label: t("Step") },
  { value: "episode", label: t("Episodes"), metric: "episode" },
  { value: "time", label: t("Time"), metric: "time/elapsed" },
];
const TIP = t("Exponential moving average; the raw line stays visible behind it. 0 shows the raw line alone.");

const texts = (value) => (Array.isArray(value) ? value.filter((item) => typeof item === "string") : []);

export class ChartPanel {
  constructor(specs, store, root) {
    this.charts = new ChartGrid(specs, store, root);
    this.wished = memory.get("axis", "step");
    const weight = memory.get("smoothing", null);
    this.charts.weight = weight ?? 0;
    this.touched = weight !== null;
    this.axes = new Segments({ "aria-label": t("Horizontal axis") }, AXES, "step", (mode) => this.setAxis(mode));
    this.offerAxes();
    this.shown = el("output", {}, this.charts.weight.toFixed(2));
    this.slider = el("input", {
      type: "range",
      class: "rs-slider",
      min: "0",
      max: "0.95",
      step: "0.05",
      value: String(this.charts.weight),
      "aria-label": t("Smoothing"),
      oninput: () => this.setSmoothing(Number(this.slider.value)),
    });
    const smoothing = el(
      "label",
      { class: "rs-smoothing rs-middle", "data-tip": TIP },
      t("Smoothing"),
      this.slider,
      this.shown,
    );
    const kept = lasting.get("charts", {});
    this.order = texts(kept?.order);
    this.off = texts(kept?.off);
    this.chooser = el("ul", { class: "rs-chooser rs-box" });
    const arrange = el("details", { class: "rs-arrange" }, el("summary", {}, t("Choose and order")), this.chooser);
    arrange.addEventListener("toggle", () => arrange.open && keepInside(this.chooser));
    this.choice = arrange;
    const tools = el("div", { class: "rs-tools rs-flow" }, arrange, this.axes.node, smoothing);
    this.node = el(
      "details",
      { class: "rs-fold rs-chart-panel rs-box", open: lasting.get("charts.open", !window.matchMedia(SMALL).matches) },
      el("summary", {}, t("More charts")),
      tools,
      this.charts.node,
    );
    this.node.addEventListener("toggle", () => {
      lasting.set("charts.open", this.node.open);
      if (this.node.open) this.charts.update();
    });
    this.arrange();
  }

  /** Let a person choose among the charts of this stage that have numbers, or may get some while the run is `alive`. */
  offer(stage, alive) {
    this.stage = stage;
    this.alive = alive;
    if (this.offered.map(({ spec }) => spec.key).join() !== this.choosable.join()) this.arrange();
  }

  get offered() {
    const own = this.charts.others.filter(({ spec }) => spec.stages.includes(this.stage || "ppo"));
    return own.filter((card) => card.hasData || (this.alive && card.mayCome));
  }

  arrange() {
    this.charts.arrange(this.order, this.off);
    this.order = this.charts.others.map((card) => card.spec.key);
    const cards = this.offered;
    show(this.choice, cards.length > 0);
    each(this.chooser, cards, ({ spec }, index) => {
      const box = el("input", { type: "checkbox", onchange: () => this.toggle(spec.key, box.checked) });
      box.checked = !this.off.includes(spec.key);
      const move = (by, text, label, possible) =>
        el(
          "button",
          {
            type: "button",
            class: "rs-icon",
            "aria-label": t("Move {title} {label}", { title: spec.title, label }),
            "data-move": `${spec.key}${by}`,
            disabled: !possible,
            onclick: () => this.move(spec.key, by),
          },
          text,
        );
      return el(
        "li",
        {},
        el("label", { class: "rs-check" }, box, spec.title),
        move(-1, "↑", "up", index > 0),
        move(1, "↓", "down", index + 1 < cards.length),
      );
    });
    this.choosable = cards.map(({ spec }) => spec.key);
  }

  toggle(key, on) {
    this.off = on ? this.off.filter((other) => other !== key) : [...this.off, key];
    this.keep();
    this.charts.arrange(this.order, this.off);
  }

  /** Change places with the next of the charts that can be chosen, whatever lies between the two. */
  move(key, by) {
    const other = this.choosable[this.choosable.indexOf(key) + by];
    const [here, there] = [this.order.indexOf(key), this.order.indexOf(other)];
    [this.order[here], this.order[there]] = [other, key];
    this.keep();
    this.arrange();
    const again = [by, -by].map((way) => this.chooser.querySelector(`[data-move="${key}${way}"]:not([disabled])`));
    again.find(Boolean)?.focus();
  }

  keep() {
    lasting.set("charts", { order: this.order, off: this.off });
  }

  /** Bring the chart of a metric into view, and point at it. */
  reveal(metric) {
    const card = this.charts.cardOf(metric);
    if (!card) return;
    const { key } = card.spec;
    if (this.charts.others.includes(card)) {
      this.node.open = true;
      if (this.off.includes(key)) {
        this.toggle(key, true);
        this.arrange();
      }
    }
    card.node.scrollIntoView({ block: "nearest" });
    card.node.focus({ preventScroll: true });
    card.node.classList.add("rs-pointed");
    setTimeout(() => card.node.classList.remove("rs-pointed"), FLASH);
  }

  /** Offer the axes that the run has values for, and draw over the one a person chose last, or else over the steps. */
  offerAxes() {
    const { store } = this.charts;
    const there = AXES.filter(({ metric }) => !metric || store.has(metric)).map(({ value }) => value);
    for (const button of this.axes.buttons) show(button, there.includes(button.dataset.value));
    show(this.axes.node, there.length > 1);
    this.charts.mode = there.includes(this.wished) ? this.wished : "step";
    this.axes.show(this.charts.mode);
  }

  setAxis(mode) {
    memory.set("axis", mode);
    this.wished = mode;
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
