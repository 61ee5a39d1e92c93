// How good a reward model is, on pairs that it has not seen: is it as often right as it believes, how its scores lie,
// and whether it has only learned to like long responses.
import { el, fill, show, svg } from "../shared/dom.js";
import { integer, number, percent, readable } from "../shared/format.js";
import { Detail } from "./detail.js";

const WIDTH = 280;
const HEIGHT = 150;
const PAD = { left: 34, right: 8, top: 8, bottom: 20 };
const MOST_WRONG = 8;

const known = (value) => typeof value === "number" && Number.isFinite(value);
const inside = { width: WIDTH - PAD.left - PAD.right, height: HEIGHT - PAD.top - PAD.bottom };
const x = (share) => PAD.left + share * inside.width;
const y = (share) => PAD.top + (1 - share) * inside.height;

/** A small drawing with its axes; `said` is what it shows, for who cannot see it. */
function drawing(said, marks, { left, below }) {
  const text = (at, words, anchor) =>
    svg("text", { x: at[0], y: at[1], class: "rs-mark-text", "text-anchor": anchor }, words);
  const edge = y(0) + 13;
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "rs-gauge", role: "img", "aria-label": said },
    svg("path", { d: `M${x(0)} ${y(1)}V${y(0)}H${x(1)}`, class: "rs-gauge-axis" }),
    ...marks,
    ...left.map(([share, words]) => text([PAD.left - 4, y(share) + 4], words, "end")),
    ...below.map(([share, words], place, all) =>
      text([x(share), edge], words, place === 0 ? "start" : place === all.length - 1 ? "end" : "middle"),
    ),
  );
}

/** Of the pairs of which the model is so sure, how many it gets right: on the diagonal it knows how sure it may be. */
function calibration({ bins }) {
  const filled = bins.filter((bin) => bin.pairs > 0 && known(bin.predicted) && known(bin.right));
  if (!filled.length) return null;
  const most = Math.max(...filled.map((bin) => bin.pairs));
  const at = (bin) => [x((bin.predicted - 0.5) / 0.5), y(Math.max(0, bin.right))];
  const dots = filled.map((bin) => {
    const [cx, cy] = at(bin);
    const dot = svg("circle", { cx, cy, r: 2 + 4 * Math.sqrt(bin.pairs / most), class: "rs-gauge-dot" });
    dot.append(svg("title", {}, `${percent(bin.predicted)} sure, ${percent(bin.right)} right, ${bin.pairs} pairs`));
    return dot;
  });
  const said = filled.map((bin) => `${percent(bin.predicted, 0)} sure: ${percent(bin.right, 0)} right`).join("; ");
  const line = svg("polyline", { points: filled.map((bin) => at(bin).join(",")).join(" "), class: "rs-gauge-line" });
  const diagonal = svg("path", { d: `M${x(0)} ${y(0.5)}L${x(1)} ${y(1)}`, class: "rs-gauge-target" });
  const axes = {
    left: [
      [1, "100 %"],
      [0.5, "50 %"],
      [0, "0"],
    ],
    below: [
      [0, "50 % sure"],
      [1, "100 % sure"],
    ],
  };
  return [drawing(said, [diagonal, line, ...dots], axes), note("Share that it gets right, by how sure it is.")];
}

function histogram({ edges, chosen, rejected }) {
  const tallest = Math.max(0, ...chosen, ...rejected);
  if (!tallest) return null;
  const [low, high] = [edges[0], edges.at(-1)];
  const at = (edge) => x((edge - low) / (high - low || 1));
  const bars = (counts, side) =>
    counts.map((count, place) =>
      svg("rect", {
        x: at(edges[place]),
        y: y(count / tallest),
        width: Math.max(1, at(edges[place + 1]) - at(edges[place]) - 0.5),
        height: y(0) - y(count / tallest),
        class: `rs-gauge-${side}`,
      }),
    );
  const axes = {
    left: [[1, integer(tallest)]],
    below: [
      [0, number(low, 1)],
      [1, number(high, 1)],
    ],
  };
  const key = (side) => el("span", { class: "rs-gauge-key" }, el("i", { class: `rs-key-${side}` }), side);
  return [
    drawing(
      `Scores from ${number(low)} to ${number(high)}`,
      [...bars(rejected, "rejected"), ...bars(chosen, "chosen")],
      axes,
    ),
    el("p", { class: "rs-help" }, key("chosen"), key("rejected"), " by their score"),
  ];
}

/** Shares with their 95 % intervals, one row each. */
function shares(parts) {
  const some = parts.filter((part) => part.pairs > 0 && known(part.share));
  if (!some.length) return null;
  const rows = some.map(({ name, pairs, share, low, high }) => {
    const at = (value) => `${(100 * value).toFixed(1)}%`;
    const span = { "--from": at(low), "--to": at(high), "--at": at(share) };
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, readable(name, 60)),
      el("td", {}, el("span", { class: "rs-share", style: span, "aria-hidden": "true" }, el("i"))),
      el("td", { class: "rs-number" }, percent(share, 0)),
      el("td", { class: "rs-number rs-muted" }, integer(pairs)),
    );
  });
  const head = ["Pairs", el("span", { class: "rs-hidden" }, "Interval"), "Right", "Number"].map((title) =>
    el("th", { scope: "col" }, title),
  );
  return el("table", { class: "rs-shares" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
}

/** The pairs that it gets most wrong. */
function worst(pairs) {
  if (!pairs.length) return null;
  const rows = pairs
    .slice(0, MOST_WRONG)
    .map((pair) =>
      el(
        "li",
        {},
        `Row ${integer(pair.number)}: chosen ${number(pair.chosen)}, rejected ${number(pair.rejected)}`,
        pair.group ? ` (${readable(pair.group, 60)})` : "",
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
      { class: "rs-panel rs-gauges", "aria-label": "How good is it?", hidden: true },
      el("div", { class: "rs-panel-head" }, el("h3", {}, "How good is it?"), this.step),
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
    fill(this.step, step ? `on ${integer(report.pairs)} held-out pairs, step ${step}` : "before training");
    fill(
      this.said,
      report.words.map((words) => el("li", {}, readable(words, 600))),
    );
    fill(
      this.body,
      part("As often right as it believes?", "calibration", calibration(report.calibration)),
      part("Scores of both sides", "score_histogram", histogram(report.histogram)),
      part("Does length sway it?", "length_bias", shares(report.length.bins)),
      part("By group", "group_accuracy", shares(report.groups)),
      part("Most wrong", "reward_model/eval_accuracy", worst(report.wrong)),
    );
  }
}
