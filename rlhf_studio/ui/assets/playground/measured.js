// A reward model on its held-out pairs: findings in words, calibration curve, histograms, accuracy by length and
// group, rewritten texts, and the pairs that it gets most wrong.
import { el, svg } from "../shared/dom.js";
import { integer, number, percent, readable } from "../shared/format.js";

const WIDTH = 260;
const HEIGHT = 150;
const LEFT = 34;
const BOTTOM = 22;
const TOP = 8;
const WORST = 6;

/** A folded panel. `report` is RewardReport of analysis/reward_model/report.py. */
export function measuredPanel(report) {
  const { accuracy } = report.fit;
  return el(
    "details",
    { class: "rs-playground-details rs-measured" },
    el(
      "summary",
      {},
      el("b", {}, "How good is it"),
      el("span", { class: "rs-muted" }, ` ${percent(accuracy.share, 0)} of ${integer(accuracy.pairs)} held-out pairs`),
    ),
    el(
      "ul",
      { class: "rs-measured-words" },
      report.words.map((sentence) => el("li", {}, sentence)),
    ),
    el(
      "div",
      { class: "rs-measured-figures" },
      figure(
        "Calibration",
        "How often it is right where it is so sure. On the dashed line both are equal.",
        calibration(report),
      ),
      figure("Scores", "Chosen (orange) and rejected (blue) responses.", histogram(report.histogram)),
      shares("By length of the chosen response", report.length.bins),
      report.groups.length ? shares("By group", report.groups) : null,
      rewritten(report.consistency),
    ),
    worst(report.wrong),
  );
}

const figure = (title, words, drawing) =>
  el("figure", {}, el("figcaption", {}, el("b", {}, title), el("span", { class: "rs-muted" }, ` ${words}`)), drawing);

const line = (from, to, name) => svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: name });

const label = (x, y, text, anchor = "middle") => {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
};

function drawing(title, ...parts) {
  const node = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": title,
    class: "rs-measured-svg",
  });
  node.append(...parts);
  return node;
}

const across = (share) => LEFT + share * (WIDTH - LEFT - 8);
const up = (share) => HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP);

function calibration({ calibration: { bins } }) {
  const known = bins.filter((bin) => bin.pairs);
  const x = (value) => across((value - 0.5) * 2);
  const most = Math.max(1, ...known.map((bin) => bin.pairs));
  const points = known.map((bin) => ({ ...bin, at: [x(bin.predicted), up(bin.right)] }));
  const marks = points.map(({ at, pairs, predicted, right }) => {
    const mark = svg("circle", {
      cx: at[0],
      cy: at[1],
      r: 2 + 4 * Math.sqrt(pairs / most),
      class: "rs-measured-point",
    });
    const tip = svg("title", {});
    tip.textContent = `${integer(pairs)} pairs: expects ${percent(predicted, 0)}, is right in ${percent(right, 0)}`;
    mark.append(tip);
    return mark;
  });
  const spoken = points.map(({ predicted, right }) => `${percent(predicted, 0)} expected, ${percent(right, 0)} right`);
  return drawing(
    `Calibration curve: ${spoken.join("; ")}`,
    line([across(0), up(0)], [across(1), up(0)], "rs-measured-axis"),
    line([across(0), up(0)], [across(0), up(1)], "rs-measured-axis"),
    line([x(0.5), up(0.5)], [x(1), up(1)], "rs-measured-ideal"),
    svg("polyline", { points: points.map(({ at }) => at.join(",")).join(" "), class: "rs-measured-line" }),
    ...marks,
    ...[0.5, 0.75, 1].map((value) => label(x(value), HEIGHT - 6, percent(value, 0), value === 1 ? "end" : "middle")),
    ...[0, 0.5, 1].map((value) => label(LEFT - 4, up(value) + 3, percent(value, 0), "end")),
  );
}

function histogram({ edges, chosen, rejected }) {
  const most = Math.max(1, ...chosen, ...rejected);
  const [low, high] = [edges[0] ?? 0, edges.at(-1) ?? 1];
  const x = (value) => across((value - low) / (high - low || 1));
  const bars = (counts, name) =>
    counts.map((count, place) =>
      svg("rect", {
        x: x(edges[place]),
        y: up(count / most),
        width: Math.max(0, x(edges[place + 1]) - x(edges[place])),
        height: up(0) - up(count / most),
        class: name,
      }),
    );
  return drawing(
    `Histogram of scores from ${number(low)} to ${number(high)}`,
    ...bars(rejected, "rs-measured-rejected"),
    ...bars(chosen, "rs-measured-chosen"),
    line([across(0), up(0)], [across(1), up(0)], "rs-measured-axis"),
    ...[low, (low + high) / 2, high].map((value) =>
      label(x(value), HEIGHT - 6, number(value, 1), value === high ? "end" : "middle"),
    ),
    label(LEFT - 4, up(1) + 3, integer(most), "end"),
  );
}

/** Accuracy in parts of the pairs, with its interval. */
function shares(title, parts) {
  const row = ({ name, pairs, share, low, high }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, readable(name, 60)),
      el("td", { class: "rs-number" }, share === null ? "–" : percent(share, 0)),
      el("td", { class: "rs-number rs-muted" }, share === null ? "" : `${percent(low, 0)} to ${percent(high, 0)}`),
      el("td", { class: "rs-number rs-muted" }, integer(pairs)),
    );
  const heads = ["Right", "95 % interval", "Pairs"];
  return table(title, "", heads, parts.map(row));
}

function rewritten(consistency) {
  if (!consistency || !consistency.rewritten.some((part) => part.texts)) return null;
  const row = ({ name, texts, spread, flipped }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el("td", { class: "rs-number" }, number(spread, 2)),
      el("td", { class: "rs-number" }, percent(flipped, 0)),
      el("td", { class: "rs-number rs-muted" }, integer(texts)),
    );
  const heads = ["Change", "Pairs turned", "Texts"];
  return table(
    "Rewritten texts",
    "The meaning stays, so should the score. Change: mean size, in standard deviations.",
    heads,
    consistency.rewritten.map(row),
  );
}

const table = (title, words, heads, rows) =>
  el(
    "figure",
    {},
    el("figcaption", {}, el("b", {}, title), words ? el("span", { class: "rs-muted" }, ` ${words}`) : null),
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("td", {}),
          heads.map((head) => el("th", { scope: "col", class: "rs-number" }, head)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );

function worst(pairs) {
  if (!pairs.length) return null;
  const side = (name, score, text) =>
    el("p", {}, el("span", { class: "rs-muted" }, `${name} ${number(score)} `), text ? readable(text, 600) : null);
  return el(
    "section",
    { class: "rs-measured-worst" },
    el("h4", {}, "Most wrong"),
    pairs
      .slice(0, WORST)
      .map(({ number: row, probability, chosen, rejected, texts }) =>
        el(
          "article",
          {},
          el(
            "p",
            { class: "rs-muted" },
            `Row ${integer(row)}: gives ${percent(probability, 1)} to what people chose`,
            texts ? el("span", {}, `. Prompt: ${readable(texts[0], 300)}`) : null,
          ),
          side("Chosen", chosen, texts?.[1]),
          side("Rejected", rejected, texts?.[2]),
        ),
      ),
  );
}
