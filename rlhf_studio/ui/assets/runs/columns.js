// The columns of the table: what each is called, how it is sorted, and what stands in a cell.
import { sparkPath } from "../charts/axes.js";
import { el, svg } from "../shared/dom.js";
import { duration, integer, locale, NONE, number, percent, readable, stateWord } from "../shared/format.js";
import { t, tx } from "../shared/language.js";

const ENDS = t("From the first step to the mean of the last tenth of the steps, as on the Live page.");

const UNKNOWN = "unknown"; // the model of a log that does not name it

/** "−0.31 → 1.42", or what there is of it. */
function fromTo(first, last, written = number) {
  return first === null || first === undefined || first === last
    ? written(last)
    : `${written(first)} \u2192 ${written(last)}`;
}

/** What a stage is called in the table. */
export const STAGES = {
  ppo: "PPO",
  sft: t("fine-tuning"),
  reward_model: t("reward model"),
  dpo: "DPO",
  evaluation: t("evaluation"),
};

const A_MONTH = 31; // days
const WIDE = 56; // pixels
const HIGH = 20;
const HIGHEST = 99;

/** A small picture of how the score went; null without two steps. */
function spark({ course, step }) {
  const d = sparkPath(course, WIDE, HIGH, HIGHEST);
  if (!d) return null;
  const at = (height) => Math.round(1 + (course.indexOf(height) / (course.length - 1)) * (step - 1));
  const [lowest, highest] = [Math.min(...course), Math.max(...course)].map(at);
  const words = t("Score by step: lowest near step {lowest}, highest near step {highest}", { lowest, highest });
  return svg(
    "svg",
    { class: "rs-run-spark", width: WIDE, height: HIGH, role: "img", "aria-label": words },
    svg("path", { d }),
  );
}

/** The result of a run: PPO's score; of another stage the number that says most, with its name. */
function resultCell(row) {
  const { stage, headline, score_first: first, score_last: last } = row;
  if (stage === "ppo") return [figure(fromTo(first, last)), spark(row)];
  if (!headline) return NONE;
  const written = headline.percent ? percent : number;
  return [figure(fromTo(headline.first, headline.last, written)), " ", el("small", {}, headline.label)];
}

/** When a run started: the time today, else the day too. */
function moment(seconds) {
  if (!seconds) return NONE;
  const then = new Date(1000 * seconds);
  const time = then.toLocaleTimeString(locale(), { hour: "2-digit", minute: "2-digit", hour12: false });
  if (then.toDateString() === new Date().toDateString()) return time;
  return `${then.toLocaleDateString(locale(), { day: "numeric", month: "short" })} ${time}`;
}

/** The day of a moment; of one that is long ago the month. */
export function dayOf(seconds) {
  const then = new Date(1000 * seconds);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(then).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days <= 0) return t("Today");
  if (days === 1) return t("Yesterday");
  if (days > A_MONTH) return then.toLocaleDateString(locale(), { month: "long", year: "numeric" });
  return then.toLocaleDateString(locale(), { weekday: "long", day: "numeric", month: "long" });
}

/** When a run started; a log, which does not say when, was opened. */
function startedCell(row) {
  if (row.recording) return NONE;
  const then = figure(moment(row.started_at || row.created_at));
  return row.kind === "log" ? tx("opened {then}", { then }) : then;
}

const ALIKE = /^(model|policy|base|adapter|reward_model|final|best|last|latest|outputs?|checkpoints?|snapshots|\d+)$/i;
const NUMBERED = /^(step|checkpoint|global_step|epoch)[-_]?\d+$/i;

/** What tells a model from others: the last part of its name, with those before it where many folders end so. */
function modelName(model) {
  const parts = String(model ?? "")
    .split(/[/\\]/)
    .filter(Boolean);
  let first = parts.length - 1;
  while (first > 0 && (ALIKE.test(parts[first]) || NUMBERED.test(parts[first]))) first -= 1;
  return parts.slice(Math.max(0, first)).join("/") || NONE;
}

const ORDER = ["loading", "running", "paused", "queued", "failed", "interrupted", "stopped", "finished"];
const VERDICTS = [
  "collapsed",
  "exploiting the reward",
  "diverged",
  "got worse",
  "overfits",
  "nothing learned",
  "cannot be told",
  "cannot tell yet",
  "not known",
  "too early",
  "rising",
  "improving",
  "learning",
  "evaluated",
  "learned",
  "improved",
];

function stateCell(row) {
  const queue = row.queue_position
    ? row.queue_position === 1
      ? t("next")
      : t("number {place}", { place: row.queue_position })
    : "";
  const ended = ["failed", "interrupted", "stopped"].includes(row.state); // stopped: one that waits for a GPU says why
  const note = row.silent ? t("the engine does not answer") : ended ? row.note : "";
  return [
    el(
      "span",
      { class: "rs-run-state", data: { state: row.state } },
      el("i", { "aria-hidden": "true" }),
      row.unreadable ? t("unreadable") : stateWord(row.state),
    ),
    queue ? el("small", {}, queue) : null,
    note ? el("small", { class: "rs-cause rs-cut", "data-tip": note, tabindex: "0" }, note) : null,
  ];
}

function verdictCell({ verdict, step }) {
  if (!verdict) return step ? el("span", { class: "rs-muted" }, "\u2026") : NONE;
  const kind = verdict.kind.replaceAll(" ", "-");
  return el(
    "span",
    { class: "rs-verdict-kind", data: { kind }, title: readable(verdict.sentence, 600) },
    t(verdict.kind),
  );
}

const figure = (text) => el("span", { class: "rs-figure" }, text);
const known = (value) => (Number.isFinite(value) ? value : null);
const words = (text) => (text || "").toLowerCase();

/**
 * key, title; `term` names an entry of the glossary, `tip` says what the numbers are; value(row): what is sorted by,
 * null for nothing; cell(row): what is shown; `first` is the direction of the first click: 1 from small to large, −1
 * from large to small; `off` columns are shown when a person chooses them, `several` ones while there are runs of
 * several stages; `titleOfSeveral` is a title then.
 */
export const COLUMNS = [
  { key: "state", title: t("State"), first: 1, value: (row) => ORDER.indexOf(row.state), cell: stateCell },
  {
    key: "verdict",
    title: t("Verdict"),
    first: -1,
    value: (row) => (row.verdict ? VERDICTS.indexOf(row.verdict.kind) : null),
    cell: verdictCell,
  },
  {
    key: "stage",
    title: t("Stage"),
    first: 1,
    several: true,
    value: (row) => words(STAGES[row.stage]),
    cell: (row) => STAGES[row.stage] || row.stage,
  },
  { key: "recipe", title: t("Recipe"), first: 1, value: (row) => words(row.recipe), cell: (row) => row.recipe || NONE },
  {
    key: "model",
    title: t("Model"),
    first: 1,
    off: true,
    value: (row) => words(modelName(row.model)),
    cell: ({ model }) =>
      model === UNKNOWN ? NONE : el("span", { class: "rs-model", title: model || "" }, modelName(model)),
  },
  {
    key: "steps",
    title: t("Steps"),
    first: -1,
    value: (row) => row.step,
    cell: (row) =>
      row.unreadable
        ? NONE
        : figure(row.total ? `${integer(row.step)}\u202f/\u202f${integer(row.total)}` : integer(row.step)),
  },
  {
    key: "score",
    title: t("Score"),
    titleOfSeveral: t("Result"),
    term: "objective/scores",
    tip: ENDS,
    first: -1,
    value: (row) => known(row.score_last),
    cell: resultCell,
  },
  {
    key: "gold",
    title: t("Gold"),
    term: "gold/score",
    tip: ENDS,
    first: -1,
    value: (row) => known(row.gold_last),
    cell: (row) => figure(fromTo(row.gold_first, row.gold_last)),
  },
  {
    key: "kl",
    title: "KL",
    term: "objective/kl",
    tip: t("The mean of the last tenth of the steps."),
    first: -1,
    value: (row) => known(row.kl_last),
    cell: (row) => figure(number(row.kl_last)),
  },
  {
    key: "time",
    title: t("Time"),
    first: -1,
    value: (row) => known(row.elapsed),
    cell: (row) => figure(duration(row.elapsed)),
  },
  {
    key: "started",
    title: t("Started"),
    first: -1,
    value: (row) => row.started_at || row.created_at,
    cell: startedCell,
  },
];

export const NAME = { key: "name", title: t("Run"), first: 1, value: (row) => words(row.name) };

/** All that the search looks through. */
export function textOf(row) {
  const parts = [
    row.name,
    row.id,
    STAGES[row.stage],
    row.recipe,
    row.model,
    row.state,
    row.verdict?.kind,
    ...row.tags,
    row.remark,
    row.told,
    row.recording && `recording ${row.recording}`,
  ];
  return parts.join(" ").toLowerCase();
}
