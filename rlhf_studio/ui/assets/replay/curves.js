// The charts of a replay: score and gold on one axis where they have one scale, else apart; KL below them.
import { el } from "../shared/dom.js";
import { number } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { ReplayChart } from "./drawing.js";

const TALL = { full: 248, compact: 168, apart: 144, kl: 104, small: 88 };
const APART = "Score and gold are on different scales here, so the distance between the two lines says nothing.";

const line = (name, label, series) => ({ name, label, series });
const known = (series) => series?.some(Number.isFinite);

export class ReplayCurves {
  constructor({ steps, series, one_scale: together, kl_target: target, kl_usual: usual }, marks, compact) {
    const { score, gold, kl } = series;
    const chart = (options) => new ReplayChart({ steps, marks, ...options });
    const [one, two] = [line("score", "score", score), line("gold", "gold", gold)];
    const tall = compact ? TALL.compact : TALL.full;
    const last = !known(kl); // only the lowest chart names its steps
    this.charts = [];
    if (known(gold) && together)
      this.charts.push(chart({ lines: [one, two], title: "Score and gold", shades: true, height: tall, axis: last }));
    else if (known(gold)) {
      this.charts.push(chart({ lines: [one], title: "Score", height: TALL.apart, axis: false }));
      this.charts.push(chart({ lines: [two], title: "Gold", height: TALL.apart, axis: last }));
    } else this.charts.push(chart({ lines: [one], title: "Score", height: tall, axis: last }));
    const level = Number.isFinite(target) ? { value: target, label: "target" } : { value: usual, label: "usual to" };
    const about = { title: "KL from the start, nats per response", levels: [level], digits: 1, diamonds: false };
    if (known(kl))
      this.charts.push(chart({ lines: [line("kl", "KL", kl)], height: compact ? TALL.small : TALL.kl, ...about }));
    const note = known(gold) && !together ? el("p", { class: "rs-replay-note" }, APART) : null;
    this.node = el("div", { class: "rs-replay-curves" }, note, ...this.charts.map(({ node }) => node));
  }

  draw() {
    const width = Math.floor(this.node.clientWidth);
    if (width) for (const chart of this.charts) chart.draw(width, Math.round(chart.height * Math.sqrt(textSize())));
  }

  show(place) {
    for (const chart of this.charts) chart.show(place);
  }

  reach(place) {
    for (const chart of this.charts) chart.reach(place);
  }

  /** The numbers at a place, read aloud. */
  words(place) {
    const lines = this.charts.flatMap((chart) => chart.about.lines);
    return lines.map(({ label, series }) => `${label} ${number(series[place])}`).join(", ");
  }
}
