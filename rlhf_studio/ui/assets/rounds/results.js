// What a class answered: bars for options; for curves everybody's, faint, with their middle and the run's own on top.
import { frame, pathOf } from "../charts/axes.js";
import { keys } from "../charts/keys.js";
import { el, svg } from "../shared/dom.js";
import { counted, number, percent } from "../shared/format.js";
import { clauses, t } from "../shared/language.js";

const HEIGHT = 380;
const NARROW = 600;

/** One row for each option: its text, a bar, and how many chose it. */
export function bars({ question, results, real }, own) {
  const rows = question.options.map((option, place) => {
    const count = results.counts[place];
    const right = real?.right === place;
    const notes = [right ? t("right") : "", own === place ? t("your answer") : ""].filter(Boolean);
    return el(
      "li",
      { class: "rs-class-bar", data: { right: String(right) } },
      el(
        "span",
        { class: "rs-class-option" },
        right ? "\u2713 " : "",
        option,
        notes.length ? el("em", {}, ` ${clauses(notes)}`) : "",
      ),
      el(
        "span",
        { class: "rs-class-track" },
        el("i", { style: { width: `${(100 * count) / Math.max(1, results.answered)}%` } }),
      ),
      el("b", {}, `${count}`, el("small", {}, ` ${percent(results.answered ? count / results.answered : 0, 0)}`)),
    );
  });
  const open = real && !Number.isInteger(real.right);
  return el(
    "div",
    {},
    el("ul", { class: "rs-class-bars" }, rows),
    open ? el("p", { class: "rs-help" }, t("What is right is known when both runs have ended.")) : null,
  );
}

const ends = (values) => number(values.at(-1), 1);

/** The same for curves, `width` pixels wide. */
export function curves({ question, results, real }, own, width) {
  const run = real?.curve?.steps.length ? real.curve : null;
  const heights = run ? run.values : [];
  const reach = [Math.min(question.low, ...heights), Math.max(question.high, ...heights)];
  const steps = [question.first, Math.max(question.last, ...(run ? run.steps : []))];
  const height = width < NARROW ? 300 : HEIGHT;
  const axes = { x_range: steps, y_range: reach, x: t("Step"), y: question.label };
  const { node, x, y } = frame(axes, width, String, summary(results, run), height);
  const path = (at, values, name) =>
    svg("path", { class: name, d: pathOf(values.map((value, place) => [x(at[place]), y(value)])) });
  node.append(...results.curves.map((one) => path(results.steps, one, "rs-class-one")));
  if (results.median.length) {
    const around = [...results.steps.map((step, place) => [x(step), y(results.high[place])])];
    around.push(...results.steps.map((step, place) => [x(step), y(results.low[place])]).reverse());
    node.append(svg("path", { class: "rs-class-half", d: `${pathOf(around)}Z` }));
    node.append(path(results.steps, results.median, "rs-class-median"));
  }
  if (own) node.append(path(results.steps, own, "rs-class-own"));
  if (run) node.append(path(run.steps, run.values, "rs-class-real"));
  const meant = [
    { label: t("Each of {length}", { length: counted(results.curves.length, "curve") }), colour: "var(--rs-quiet)" },
    { label: t("The middle half"), colour: "var(--rs-class-half)", look: "area" },
    { label: t("The median"), colour: "var(--rs-accent)" },
    own && { label: t("Yours"), colour: "var(--rs-text)", look: "dashed" },
    run && {
      label: real.name ? t("The run: {name}", { name: real.name }) : t("The run"),
      colour: "var(--rs-class-real)",
    },
  ];
  return el(
    "div",
    { class: "rs-class-picture" },
    node,
    keys(meant.filter(Boolean)),
    el("p", { class: "rs-help" }, summary(results, run)),
    real && !run ? el("p", { class: "rs-help" }, t("The run's own curve comes as soon as there is one.")) : null,
  );
}

/** What the picture shows, in words. */
function summary({ curves: all, median, low, high }, run) {
  if (!all.length) return t("Nobody has drawn a curve.");
  const middle = t("The class's median ends at {median}; the middle half between {low} and {high}.", {
    median: ends(median),
    low: ends(low),
    high: ends(high),
  });
  return run
    ? t("{middle} The run {length} {values}.", {
        middle,
        length: run.values.length > 1 ? t("is at") : t("begins at"),
        values: ends(run.values),
      })
    : middle;
}
