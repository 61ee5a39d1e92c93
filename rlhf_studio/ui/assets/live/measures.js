// How good a reward model is, on pairs that it has not seen: is it as often right as it believes, how its scores lie,
// and whether it has only learned to like long responses.
import { frame, pathOf } from "../charts/axes.js";
import { keys } from "../charts/keys.js";
import { each, el, fill, show, svg } from "../shared/dom.js";
import { integer, number, percent, readable } from "../shared/format.js";
import { Detail } from "./detail.js";
import { figure, rowHead, table } from "../shared/table.js";
import { bracketed, t, tp } from "../shared/language.js";

const WIDTH = 280;
const HEIGHT = 190;
const MOST_WRONG = 8;

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Of the pairs of which the model is so sure, how many it gets right: on the diagonal it knows how sure it may be. */
function calibration({ bins }) {
  const filled = bins.filter((bin) => bin.pairs > 0 && known(bin.predicted) && known(bin.right));
  if (!filled.length) return null;
  const most = Math.max(...filled.map((bin) => bin.pairs));
  const words = filled
    .map((bin) =>
      t("{predicted} sure: {right} right", { predicted: percent(bin.predicted, 0), right: percent(bin.right, 0) }),
    )
    .join("; ");
  const axes = { x_range: [50, 100], y_range: [0, 100], x: t("sure, %"), y: t("right, %") };
  const { node, x, y } = frame(axes, WIDTH, String, words, HEIGHT);
  const at = (bin) => [x(100 * bin.predicted), y(100 * Math.max(0, bin.right))];
  const dots = filled.map((bin) => {
    const [cx, cy] = at(bin);
    const dot = svg("circle", { cx, cy, r: 2 + 4 * Math.sqrt(bin.pairs / most), class: "rs-gauge-dot" });
    dot.append(
      svg(
        "title",
        {},
        t("{predicted} sure, {right} right, {pairs} pairs", {
          predicted: percent(bin.predicted),
          right: percent(bin.right),
          pairs: bin.pairs,
        }),
      ),
    );
    return dot;
  });
  const path = (points, name) => svg("path", { d: pathOf(points), class: name });
  const diagonal = [50, 100].map((share) => [x(share), y(share)]);
  node.append(path(diagonal, "rs-gauge-target"), path(filled.map(at), "rs-gauge-line"), ...dots);
  return [node, note(t("Share that it gets right, by how sure it is."))];
}

function histogram({ edges, chosen, rejected }) {
  const tallest = Math.max(0, ...chosen, ...rejected);
  if (!tallest) return null;
  const [low, high] = [edges[0], edges.at(-1)];
  const axes = { x_range: [low, high], y_range: [0, tallest], x: t("score, points"), y: t("pairs") };
  const { node, x, y } = frame(
    axes,
    WIDTH,
    String,
    t("Scores from {low} to {high}", { low: number(low), high: number(high) }),
    HEIGHT,
  );
  const bars = (counts, side) =>
    counts.map((count, place) =>
      svg("rect", {
        x: x(edges[place]),
        y: y(count),
        width: Math.max(1, x(edges[place + 1]) - x(edges[place]) - 0.5),
        height: y(0) - y(count),
        class: `rs-gauge-${side}`,
      }),
    );
  node.append(...bars(rejected, "rejected"), ...bars(chosen, "chosen"));
  const key = (label, name) => ({ label, colour: `var(--q-${name})`, look: "area" });
  return [node, keys([key(t("chosen"), "length"), key(t("rejected"), "clip")])];
}

/** Shares with their 95 % intervals, one row each. */
function shares(parts) {
  const some = parts.filter((part) => part.pairs > 0 && known(part.share));
  if (!some.length) return null;
  const rows = some.map(({ name, pairs, share, low, high }) => {
    const at = (value) => `${(100 * value).toFixed(1)}%`;
    const span = { "--from": at(low), "--to": at(high), "--at": at(share) };
    return [
      rowHead(readable(name, 60)),
      el("span", { class: "rs-share", style: span, "aria-hidden": "true" }, el("i")),
      figure(percent(share, 0)),
      el("td", { class: "rs-number rs-muted" }, integer(pairs)),
    ];
  });
  const heads = [t("Pairs"), el("span", { class: "rs-hidden" }, t("Interval")), tp("share", "Right"), t("Number")];
  return table(heads, rows, { class: "rs-shares" });
}

/** The pairs that it gets most wrong. */
function worst(pairs) {
  if (!pairs.length) return null;
  const rows = pairs.slice(0, MOST_WRONG).map((pair) =>
    el(
      "li",
      {},
      t("Row {number}: chosen {chosen}, rejected {rejected}", {
        number: integer(pair.number),
        chosen: number(pair.chosen),
        rejected: number(pair.rejected),
      }),
      pair.group ? bracketed(readable(pair.group, 60)) : "",
    ),
  );
  return el("ol", { class: "rs-worst" }, rows);
}

const note = (text) => el("p", { class: "rs-help" }, text);

function part(title, term, content) {
  return content && el("section", {}, el("h4", { "data-term": term }, title), content);
}

export class Measures {
  /** @param fetch  asks the server */
  constructor(fetch) {
    this.detail = new Detail(fetch, "measures", ({ report, step }) => report && this.draw({ step, report }));
    this.said = el("ul", { class: "rs-gauge-words" });
    this.body = el("div", { class: "rs-gauges-body" });
    this.step = el("span", { class: "rs-muted" });
    this.node = el(
      "section",
      { class: "rs-panel rs-gauges rs-box", "aria-label": t("How good is it?"), hidden: true },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, t("How good is it?")), this.step),
      this.said,
      this.body,
    );
    this.reset();
  }

  reset() {
    this.drawnAs = "";
    this.detail.forget();
    show(this.node, false);
  }

  /** Whether the run's stage has such measures. */
  offer(there) {
    this.there = there;
    if (!there) this.reset();
  }

  /** @param version  changes when there may be another measurement */
  follow(version) {
    if (this.there) this.detail.follow(version);
  }

  draw({ step, report }) {
    const content = JSON.stringify([step, report]);
    if (content === this.drawnAs) return;
    this.drawnAs = content;
    show(this.node, true);
    fill(
      this.step,
      step ? t("on {pairs} held-out pairs, step {step}", { pairs: integer(report.pairs), step }) : t("before training"),
    );
    each(this.said, report.words, (words) => el("li", {}, readable(words, 600)));
    fill(
      this.body,
      part(t("As often right as it believes?"), "calibration", calibration(report.calibration)),
      part(t("Scores of both sides"), "score_histogram", histogram(report.histogram)),
      part(t("Does length sway it?"), "length_bias", shares(report.length.bins)),
      part(t("By group"), "group_accuracy", shares(report.groups)),
      part(t("Most wrong"), "reward_model/eval_accuracy", worst(report.wrong)),
    );
  }
}
