// The row of numbers: value, direction, and a sparkline in the quantity's own colour.
import { sparkPath } from "../charts/axes.js";
import { el, elEach, setText, show, svg } from "../shared/dom.js";
import { decimals, number, percent } from "../shared/format.js";
import { term } from "../shared/tips.js";
import { t } from "../shared/language.js";

const WIDTH = 96;
const HEIGHT = 22;
const SPARK_POINTS = 60;
const STEPS_TO_JUDGE = 3; // from here on a tile says whether its number is usual
const SPEED = /^speed\//; // has no beginning and end to compare
const WAYS = [
  ["↓", t("falling")],
  ["→", t("no clear change")],
  ["↑", t("rising")],
];

class TileView {
  /** @param ongo  called with the metric when the tile is pressed */
  constructor(spec, ongo) {
    this.spec = spec;
    this.from = el("span", { class: "rs-tile-from" });
    this.value = el("span", { class: "rs-tile-value" }, "–");
    this.arrow = el("span", { class: "rs-tile-arrow" });
    this.note = el("span", { class: "rs-tile-note" });
    this.line = svg("path", { fill: "none", "stroke-width": "1.5", "stroke-linejoin": "round" });
    const spark = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "rs-spark", "aria-hidden": "true", preserveAspectRatio: "none" },
      this.line,
    );
    const named = el("span", { class: "rs-word" }, spec.label || term(spec.metric).title);
    const label = el("span", { class: "rs-tile-label rs-middle" }, el("i"), named);
    this.node = el(
      "button",
      {
        type: "button",
        class: "rs-tile",
        "data-term": spec.metric,
        style: { "--c": `var(--q-${spec.colour})` },
        onclick: () => ongo(spec.metric),
      },
      label,
      el("span", { class: "rs-tile-row" }, this.from, this.value, this.arrow, this.note),
      spark,
    );
  }

  update(store, settings, unit) {
    const { spec } = this;
    const values = store.tail(spec.metric, SPARK_POINTS);
    show(this.node, values.length > 0);
    if (!values.length) return;
    const last = store.now(spec.metric);
    const judged = values.length >= STEPS_TO_JUDGE;
    const written = (value) => (spec.percent ? percent(value, spec.digits) : number(value, spec.digits));
    const first = SPEED.test(spec.metric) ? undefined : store.first[spec.metric];
    setText(this.from, first === undefined ? "" : `${written(first)} → `);
    setText(this.value, written(last));
    // Where both ends are said, an arrow would say another thing: gold may end above its start, and have fallen since.
    const over = Object.keys(store.over).length > 0;
    const [sign, word] = (!over && WAYS[store.directions[spec.metric] + 1]) || ["", ""];
    setText(this.arrow, sign);
    this.arrow.setAttribute("aria-label", word);
    const usual = judged ? usualRange(spec, last) : "";
    setText(this.note, usual || noteOf(spec, settings, unit));
    this.node.classList.toggle("rs-outside", usual !== "");
    this.line.setAttribute("d", sparkPath(values, WIDTH, HEIGHT, finest(spec)) || "");
  }
}

/** The smallest change that the tile's number can show. */
const finest = (spec) => 10 ** -spec.digits / (spec.percent ? 100 : 1);

/** "usual: 0 to 15" for a value outside of what healthy runs have, by more than the tile's number can show; else "". */
function usualRange(spec, value) {
  const { healthy_low: low, healthy_high: high } = term(spec.metric);
  if (low === null || high === null || (value > low - finest(spec) && value < high + finest(spec))) return "";
  const written = (edge) => String(Number((spec.percent ? 100 * edge : edge).toPrecision(6)));
  const unit = spec.percent ? "\u202f%" : "";
  return t("usual: {low} to {high}{unit}", { low: written(low), high: written(high), unit });
}

function noteOf(spec, settings, unit) {
  if (spec.metric === "objective/kl" && settings?.kl_target)
    return t("target {target}", { target: number(settings.kl_target, decimals(settings.kl_target)) });
  if (spec.metric === "speed/tokens_per_second") return t("tokens/s");
  if (spec.metric === "tokens/response_length") return t(unit);
  if (spec.metric === "objective/kl" || spec.metric === "policy/entropy_avg") return t("nats");
  return "";
}

/** What a tile's two numbers are: said once, for all places that show them. */
function comparedLine({ step, stage }) {
  const last = Math.max(1, Math.floor(step / 10));
  const steps =
    last === 1 ? t("Step 1 → the last step") : t("Step 1 → mean of the last {count} steps", { count: last });
  return stage === "ppo" ? steps : t("{steps}; held-out numbers: first measurement → newest", { steps });
}

export class Tiles {
  constructor(specs, ongo) {
    this.views = specs.map((spec) => new TileView(spec, ongo));
    this.said = el("p", { class: "rs-muted", id: "rs-tiles-said", hidden: true });
    this.row = elEach("section", { class: "rs-tiles", "aria-label": t("Numbers") }, this.views, (view) => view.node);
    this.node = el("div", { class: "rs-tiles-all" }, this.said, this.row);
  }

  /** @param status  of the run: a run that is over has first values beside its last ones, and says which those are */
  update(store, settings, status) {
    const over = Object.keys(store.over).length > 0;
    setText(this.said, over ? comparedLine(status) : "");
    show(this.said, over);
    for (const view of this.views) view.update(store, settings, status.unit);
  }
}
