// What an evaluation found: the win rates and the frontier as pictures, the table below, and the files to take home.
import { between, shares } from "../pictures/shares.js";
import { saveText } from "../shared/take.js";
import { each, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { NONE, number, ofOneRun, percent, policyName, readable } from "../shared/format.js";
import { figure, head, numberHead, rowHead, scrolling, table } from "../shared/table.js";
import { word } from "../shared/tips.js";
import { NO_ANSWER } from "../shared/visit.js";
import { Frontier } from "./frontier.js";
import { bracketed, t, tn } from "../shared/language.js";

const FILES = [
  ["csv", "CSV"],
  ["md", "Markdown"],
  ["jsonl", t("Answers (JSON Lines)")],
];
const TYPES = { csv: "text/csv", md: "text/markdown", jsonl: "application/jsonl" };
const VOTES = "votes";
const EXPLAINED = 3; // so many policies leave room for what each number is; else it is told under the pointer

const written = (value, { percent, digits }) =>
  Number.isFinite(value) ? (percent ? `${number(100 * value, digits)}\u202f%` : number(value, digits)) : NONE;
const ends = (cell, column) =>
  t("{low} to {high}", { low: written(cell.low, column), high: written(cell.high, column) });
const HELP = t("Thin line: 95 % interval. Beyond the mark at 50 % it is surely better, before it surely worse.");
/** Who judges, by the measure that decides. */
const BY = { gold: t("the gold score"), judge: t("the judge") };
const MEANINGS = {
  gold: t("Gold: the world\u2019s hidden rule, from which no policy has learned."),
  score: t("Score: what the policies were trained on."),
  judge: t("Judge: a second opinion that was not used in training."),
};

export class Results {
  /** @param compare  called with the policy that the others are to be compared with */
  constructor({ ask, compare }) {
    this.ask = ask;
    this.measure = "";
    this.first = el("select", {
      class: "rs-input",
      "aria-label": t("Compare with"),
      onchange: () => compare(this.first.value),
    });
    this.choice = el("label", { hidden: true }, el("span", {}, t("against"), " "), this.first);
    this.by = el("select", {
      class: "rs-input",
      "aria-label": t("Win rate by"),
      onchange: () => {
        this.measure = this.by.value;
        this.drawWins();
      },
    });
    this.frontier = new Frontier();
    this.headline = el("p", { class: "rs-evaluate-headline", hidden: true });
    this.meaning = el("p", { class: "rs-help" });
    this.bars = el("div", { class: "rs-evaluate-wins" });
    this.gone = el("p", { class: "rs-help", hidden: true });
    this.refers = el("p", { class: "rs-help" });
    this.wins = el(
      "section",
      { class: "rs-picture-panel rs-box", hidden: true, "aria-label": t("Win rates") },
      el(
        "div",
        { class: "rs-evaluate-row" },
        el("h3", {}, word("win_rate", t("Win rate"))),
        el("label", {}, el("span", {}, t("by"), " "), this.by),
        this.choice,
      ),
      this.bars,
      el("p", { class: "rs-help" }, HELP),
      this.meaning,
      this.gone,
    );
    this.table = scrolling("rs-evaluate-scroll", t("Table of results"));
    this.told = el("span", { class: "rs-help", role: "status" });
    const files = FILES.map(([kind, label]) => pushButton("rs-button rs-small", label, () => this.save(kind)));
    this.numbers = el(
      "details",
      { class: "rs-evaluate-numbers" },
      el("summary", {}, t("All numbers")),
      this.table,
      this.refers,
      el("div", { class: "rs-evaluate-row" }, el("span", { class: "rs-label" }, t("Download")), files, this.told),
    );
    this.node = el(
      "div",
      { class: "rs-evaluate-part" },
      this.headline,
      el("div", { class: "rs-picture-pair" }, this.wins, this.frontier.node),
      this.numbers,
    );
  }

  clear() {
    this.measure = "";
    this.numbers.open = false;
    fill(this.table);
    show(this.wins, false);
    show(this.headline, false);
    show(this.choice, false);
    setText(this.refers, "");
  }

  draw(report) {
    this.report = report;
    const { columns, rows } = report;
    const explained = rows.length <= EXPLAINED;
    this.alone = ofOneRun(report.policies);
    this.drawChoice(report);
    setText(
      this.refers,
      report.reference
        ? t("KL and perplexity refer to {reference}.", { reference: readable(report.reference, 200) })
        : "",
    );
    const heads = [
      head(el("span", { class: "rs-hidden" }, t("Measure"))),
      ...rows.map(({ policy }) => numberHead(policyName(policy, this.alone))),
      explained ? head(t("What it is"), { class: "rs-evaluate-meaning" }) : null,
    ];
    const lines = columns.map((column, place) => [
      rowHead(el("span", { class: "rs-word", tabindex: "0", "data-tip": column.meaning }, t(column.title))),
      ...rows.map(({ cells }) => valueOf(cells[place], column)),
      explained ? el("td", { class: "rs-evaluate-meaning" }, readable(column.meaning, 300)) : null,
    ]);
    fill(this.table, table(heads, lines, { class: "rs-evaluate-table" }));
    const known = report.measures.filter(({ name }) => report.wins[name]?.length);
    const options = [...known, ...(report.votes.length ? [{ name: VOTES, title: t("Your votes") }] : [])];
    const names = options.map(({ name }) => name);
    if (!names.includes(this.measure)) this.measure = names.includes(report.decides) ? report.decides : names[0] || "";
    each(this.by, options, ({ name, title }) => el("option", { value: name }, t(title)));
    this.by.value = this.measure;
    show(this.wins, options.length > 0);
    this.drawWins();
    this.frontier.draw(report);
    setText(this.headline, headlineOf(report, this.alone));
    this.headline.classList.toggle("rs-evaluate-second", report.frontier.over_optimised.length > 0);
    show(this.headline, Boolean(this.headline.textContent));
  }

  drawChoice({ policies, first }) {
    const names = JSON.stringify(policies);
    const option = (name) => el("option", { value: name }, policyName(name, this.alone));
    if (names !== this.names) each(this.first, policies, option);
    this.names = names;
    this.first.value = first;
    show(this.choice, policies.length > 1);
  }

  drawWins() {
    const { report, measure } = this;
    setText(this.gone, measure === VOTES ? leftOut(report) : "");
    show(this.gone, Boolean(this.gone.textContent));
    const rows = measure === VOTES ? report.votes : report.wins[measure] || [];
    setText(this.meaning, MEANINGS[measure] || "");
    show(this.meaning, Boolean(this.meaning.textContent));
    fill(this.bars, shares(rows.map((row) => rowOf(row, this.alone))));
  }

  async save(kind) {
    setText(this.told, "");
    const reply = await this.ask("file", { kind, first: this.report?.first }).catch(() => ({ problem: NO_ANSWER }));
    if (reply.problem) {
      setText(this.told, reply.problem);
      return;
    }
    saveText(reply.text, reply.name, TYPES[kind]);
  }
}

const rowOf = ({ policy, rate, wins, ties, losses }, alone) => ({
  name: policyName(policy, alone),
  share: rate.value,
  low: rate.low,
  high: rate.high,
  note: t("{wins} wins, {ties} ties, {losses} losses", { wins, ties, losses }),
});

/** The last policy against the one that all are compared with, in a sentence; empty where nothing was compared. */
function headlineOf({ wins, first, decides }, alone) {
  const last = (wins[decides] || []).at(-1);
  if (!last) return "";
  const { value, low, high } = last.rate;
  const range = between(low, high);
  const rate = percent(value, 0);
  const about = {
    who: policyName(last.policy, alone),
    first: policyName(first, alone),
    rate: range ? `${rate}${bracketed(range)}` : rate,
    by: BY[decides] || t("the score"),
  };
  if (alone) {
    if (low > 0.5)
      return t("The answers {who} are better than those {first}: they win {rate} of comparisons, by {by}.", about);
    if (high < 0.5)
      return t("The answers {who} are worse than those {first}: they win {rate} of comparisons, by {by}.", about);
    return t("No sure difference: the answers {who} win {rate} of comparisons, by {by}.", about);
  }
  if (low > 0.5) return t("{who} is better than {first}: it wins {rate} of comparisons, by {by}.", about);
  if (high < 0.5) return t("{who} is worse than {first}: it wins {rate} of comparisons, by {by}.", about);
  return t("No sure difference: {who} wins {rate} of comparisons, by {by}.", about);
}

/** What became of votes on answers that the evaluation has written anew since. */
export function leftOut({ votes_left_out: count }) {
  if (!count) return "";
  return tn(
    "{count} vote is left out: the answers that it was about are no longer there.",
    "{count} votes are left out: the answers that they were about are no longer there.",
    count,
  );
}

function valueOf(cell, column) {
  if (!cell) return el("td", { class: "rs-number rs-evaluate-none" }, NONE);
  const interval = Number.isFinite(cell.low) ? el("span", { class: "rs-evaluate-interval" }, ends(cell, column)) : null;
  return figure(written(cell.value, column), interval);
}
