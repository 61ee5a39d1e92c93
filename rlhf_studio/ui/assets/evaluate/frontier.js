// Reward and gold against the distance from the reference: where a reward is over-optimised.
import { frame, pathOf } from "../charts/axes.js";
import { keys } from "../charts/keys.js";
import { el, fill, setText, show, svg } from "../shared/dom.js";
import { number, policyName, readable } from "../shared/format.js";
import { word } from "../shared/tips.js";
import { clauses, colon, listing, t, tx } from "../shared/language.js";

const COLOURS = { score: "--q-score", gold: "--q-gold", judge: "--q-part-3" };
const MARK = 5; // pixels from the middle of a mark to its edge
const HEIGHT = 240;
const NARROWEST = 240;
const HELP = t(
  "Each point is one policy. Further right, its answers have moved further from the reference. Score up while gold " +
    "falls: the judge is being fooled.",
);

export class Frontier {
  constructor() {
    this.sentence = el("p", { class: "rs-evaluate-sentence" });
    this.legend = el("div", {});
    this.place = el("div", {});
    this.nothing = el("p", { class: "rs-help", hidden: true }, t("No policy here has a KL from the reference."));
    this.node = el(
      "section",
      { class: "rs-picture-panel rs-box rs-evaluate-frontier", "aria-label": t("Frontier") },
      el("h3", {}, tx("Score and {gold} against {kl}", { gold: word("gold", t("gold")), kl: word("sample_kl", "KL") })),
      this.sentence,
      this.place,
      this.legend,
      this.nothing,
      el("p", { class: "rs-help" }, HELP),
    );
    new ResizeObserver(() => this.place.clientWidth !== this.width && this.redraw()).observe(this.place);
  }

  draw(report) {
    this.report = report;
    const { frontier } = report;
    // A reward that is over-optimised is told above all views.
    setText(this.sentence, frontier.over_optimised.length ? "" : readable(frontier.sentence, 400));
    show(this.sentence, Boolean(this.sentence.textContent));
    show(this.nothing, !frontier.points.length);
    this.redraw();
  }

  redraw() {
    this.width = this.place.clientWidth;
    const points = this.report?.frontier.points || [];
    if (!points.length || !this.width) return;
    const named = this.report.measures.filter(({ name }) => name in COLOURS);
    fill(
      this.legend,
      keys(named.map(({ name, title }) => ({ label: t(title), colour: `var(${COLOURS[name]})`, look: "dot" }))),
    );
    fill(this.place, picture(points, named, Math.max(this.width, NARROWEST)));
  }
}

function picture(points, named, width) {
  const cells = points.flatMap(({ measures }) => named.map(({ name }) => measures[name]).filter(Boolean));
  const ends = cells.flatMap(({ value, low, high }) => [value, low, high]).filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const room = 0.06 * (high - low || 1);
  const far = points.at(-1).root_kl || 1;
  const axes = {
    x_range: [-0.02 * far, 1.05 * far],
    y_range: [low - room, high + room],
    x: t("distance from the reference, \u221aKL"),
    y: t("mean over answers"),
  };
  const titles = listing(named.map(({ title }) => t(title)));
  const said = t("{titles} against the distance from the reference: {count} policies, root of KL from 0 to {far}", {
    titles,
    count: points.length,
    far: number(far),
  });
  const { node, x, y } = frame(axes, width, (word) => word, said, HEIGHT);
  for (const { name, title } of named) {
    const known = points.filter(({ measures }) => measures[name]);
    const stroke = `var(${COLOURS[name]})`;
    const path = pathOf(known.map((point) => [x(point.root_kl), y(point.measures[name].value)]));
    node.append(svg("path", { d: path, fill: "none", "stroke-width": 2, style: { stroke } }));
    for (const point of known) {
      const cell = point.measures[name];
      const middle = [x(point.root_kl), y(cell.value)];
      const values = [`${t(title)} ${number(cell.value)}`, `\u221aKL ${number(point.root_kl)}`];
      const words = colon(policyName(point.policy), clauses(values));
      const whisker = Number.isFinite(cell.low)
        ? [svg("path", { d: `M${middle[0]} ${y(cell.low)}V${y(cell.high)}`, style: { stroke } })]
        : [];
      const label = svg("title", {}, words);
      node.append(svg("g", {}, label, ...whisker, svg("path", { d: MARKS[name](...middle), style: { fill: stroke } })));
    }
  }
  return node;
}

const MARKS = {
  score: (x, y) => `M${x - MARK} ${y}a${MARK} ${MARK} 0 1 0 ${2 * MARK} 0a${MARK} ${MARK} 0 1 0 ${-2 * MARK} 0`,
  gold: (x, y) => `M${x} ${y - MARK - 1}l${MARK + 1} ${MARK + 1}l${-MARK - 1} ${MARK + 1}l${-MARK - 1} ${-MARK - 1}z`,
  judge: (x, y) => `M${x - MARK + 1} ${y - MARK + 1}h${2 * MARK - 2}v${2 * MARK - 2}h${2 - 2 * MARK}z`,
};
