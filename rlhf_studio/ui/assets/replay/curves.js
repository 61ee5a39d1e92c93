// The charts of a replay: score and gold on one axis where they have one scale, else apart; KL below them.
import { el } from "../shared/dom.js";
import { number } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { ReplayChart } from "./drawing.js";
import { explained } from "./tokens.js";
import { bracketed, clauses, t } from "../shared/language.js";

const TALL = { full: 248, compact: 168, apart: 144, kl: 104, small: 88 };
const HERO = { beside: 496, score: 0.72, least: 160, most: 420 }; // pixels of a window that are not for the charts
const APART = t("Score and gold are on different scales here, so the distance between the two lines says nothing.");

const line = (name, label, series) => ({ name, label, series });
const known = (series) => series?.some(Number.isFinite);

/** How tall a chart is in a hero: what the window has left, most of it for the score. */
function heroic(last) {
  const room = Math.max(innerHeight, 640) - HERO.beside;
  const score = Math.min(HERO.most, Math.max(HERO.least, HERO.score * room));
  return last ? Math.min(120, Math.max(TALL.small, room - score)) : score;
}

const TERMS = { Score: "score", gold: "gold", Gold: "gold", KL: "kl", 得分: "score", 金标准: "gold" };

const NEVER_SEEN = bracketed(t("gold: true worth"));

/** The name of a chart, whose words are explained; what gold is, is said there for all to see. */
const headingOf = (title) =>
  el(
    "p",
    { class: "rs-replay-title" },
    title
      .split(/(\bScore\b|\b[Gg]old\b|\bKL\b|得分|金标准)/)
      .map((part) => (TERMS[part] ? explained(TERMS[part], part) : part)),
    /gold|金标准/i.test(title) ? NEVER_SEEN : null,
  );

export class ReplayCurves {
  constructor({ steps, series, one_scale: together, kl_target: target, kl_usual: usual }, marks, { compact, hero }) {
    const { score, gold, kl } = series;
    this.hero = hero;
    const diamonds = !compact; // there the bar of time has them
    const chart = (options) => new ReplayChart({ steps, marks, diamonds, titled: !hero, ...options });
    const [one, two] = [line("score", t("score"), score), line("gold", t("gold"), gold)];
    const tall = compact ? TALL.compact : TALL.full;
    const last = !known(kl); // only the lowest chart names its steps
    this.charts = [];
    if (known(gold) && together)
      this.charts.push(
        chart({ lines: [one, two], title: t("Score and gold"), shades: true, height: tall, axis: last }),
      );
    else if (known(gold)) {
      this.charts.push(chart({ lines: [one], title: t("Score"), height: TALL.apart, axis: false }));
      this.charts.push(chart({ lines: [two], title: t("Gold"), height: TALL.apart, axis: last }));
    } else this.charts.push(chart({ lines: [one], title: t("Score"), height: tall, axis: last }));
    const level = Number.isFinite(target)
      ? { value: target, label: t("target") }
      : { value: usual, label: t("usual to") };
    const about = {
      title: t("KL: distance from start"),
      levels: [level],
      digits: 1,
      diamonds: false,
    };
    if (known(kl))
      this.charts.push(chart({ lines: [line("kl", "KL", kl)], height: compact ? TALL.small : TALL.kl, ...about }));
    const note = known(gold) && !together ? el("p", { class: "rs-replay-note" }, APART) : null;
    const parts = this.charts.flatMap((one) => [hero ? headingOf(one.about.title) : null, one.node]);
    this.node = el("div", { class: "rs-replay-curves" }, note, ...parts);
  }

  draw() {
    const width = Math.floor(this.node.clientWidth);
    const narrow = Boolean(this.node.closest(".rs-narrow"));
    const tall = ({ height }, index) => (this.hero && !narrow ? heroic(index === this.charts.length - 1) : height);
    if (!width) return;
    this.charts.forEach((chart, index) => chart.draw(width, Math.round(tall(chart, index) * Math.sqrt(textSize()))));
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
    return clauses(lines.map(({ label, series }) => `${label} ${number(series[place])}`));
  }
}
