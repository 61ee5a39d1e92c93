// The table of an evaluation with its intervals, the win rates as bars, and the files to take home.
import { el, fill, setText, show } from "../shared/dom.js";
import { NONE, number, readable } from "../shared/format.js";
import { NO_ANSWER } from "../shared/visit.js";

const FILES = [
  ["csv", "CSV"],
  ["md", "Markdown"],
  ["jsonl", "Answers (JSON Lines)"],
];
const TYPES = { csv: "text/csv", md: "text/markdown", jsonl: "application/jsonl" };
const VOTES = "votes";

const figure = (value, { percent, digits }) =>
  Number.isFinite(value) ? (percent ? `${number(100 * value, digits)}\u2009%` : number(value, digits)) : NONE;
const ends = (cell, column) => `${figure(cell.low, column)} to ${figure(cell.high, column)}`;
const SHARE = { percent: true, digits: 0 };

export class Results {
  constructor({ ask }) {
    Object.assign(this, { ask, measure: "" });
    this.by = el("select", {
      class: "rs-input",
      "aria-label": "Win rate by",
      onchange: () => {
        this.measure = this.by.value;
        this.drawWins();
      },
    });
    this.bars = el("ul", { class: "rs-evaluate-wins" });
    this.against = el("span", { class: "rs-help" });
    this.wins = el(
      "section",
      { class: "rs-evaluate-panel", hidden: true, "aria-label": "Win rates" },
      el(
        "div",
        { class: "rs-evaluate-row" },
        el("h3", {}, "Win rate"),
        el("label", {}, el("span", {}, "by "), this.by),
        this.against,
      ),
      this.bars,
      el("p", { class: "rs-help" }, "The line is the 95 % interval over prompts; a tie counts half; the mark is 50 %."),
    );
    this.table = el("div", {
      class: "rs-evaluate-scroll",
      tabindex: 0,
      role: "region",
      "aria-label": "Table of results",
    });
    this.told = el("span", { class: "rs-help", role: "status" });
    const files = FILES.map(([kind, label]) =>
      el("button", { type: "button", class: "rs-button rs-small", onclick: () => this.save(kind) }, label),
    );
    this.node = el(
      "div",
      { class: "rs-evaluate-part" },
      this.wins,
      this.table,
      el("div", { class: "rs-evaluate-row" }, el("span", { class: "rs-label" }, "Download"), files, this.told),
    );
  }

  clear() {
    this.measure = "";
    fill(this.table);
    show(this.wins, false);
  }

  draw(report) {
    this.report = report;
    const { columns, rows } = report;
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, ""),
      rows.map(({ policy }) => el("th", { scope: "col", class: "rs-number" }, readable(policy, 60))),
    );
    const lines = columns.map((column, place) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", title: column.meaning }, column.title),
        rows.map(({ cells }) => valueOf(cells[place], column)),
      ),
    );
    fill(this.table, el("table", {}, el("thead", {}, head), el("tbody", {}, lines)));
    const known = report.measures.filter(({ name }) => report.wins[name]?.length);
    const options = [...known, ...(report.votes.length ? [{ name: VOTES, title: "Your votes" }] : [])];
    const names = options.map(({ name }) => name);
    if (!names.includes(this.measure)) this.measure = names.includes(report.decides) ? report.decides : names[0] || "";
    fill(
      this.by,
      options.map(({ name, title }) => el("option", { value: name }, title)),
    );
    this.by.value = this.measure;
    show(this.wins, options.length > 0);
    this.drawWins();
  }

  drawWins() {
    const { report, measure } = this;
    const rows = measure === VOTES ? report.votes : report.wins[measure] || [];
    setText(this.against, `against ${readable(report.first, 60)}`);
    fill(
      this.bars,
      rows.map(({ policy, rate, wins, ties, losses }) => {
        const at = (share) => `${100 * share}%`;
        const known = Number.isFinite(rate.low);
        const said = known ? `, from ${ends(rate, SHARE)}` : "";
        return el(
          "li",
          {},
          el("span", { class: "rs-evaluate-name" }, readable(policy, 60)),
          el(
            "span",
            { class: "rs-evaluate-bar", role: "img", "aria-label": `${figure(rate.value, SHARE)}${said}` },
            el("span", { class: "rs-evaluate-fill", style: { width: at(rate.value) } }),
            known
              ? el("span", {
                  class: "rs-evaluate-whisker",
                  style: { left: at(rate.low), width: at(rate.high - rate.low) },
                })
              : null,
          ),
          el(
            "span",
            { class: "rs-evaluate-figures" },
            el("b", {}, figure(rate.value, SHARE)),
            known ? el("span", {}, ` ${ends(rate, SHARE)}`) : null,
            el("span", { class: "rs-help" }, `${wins} wins, ${ties} ties, ${losses} losses`),
          ),
        );
      }),
    );
  }

  async save(kind) {
    setText(this.told, "");
    const reply = await this.ask("file", { kind }).catch(() => ({ problem: NO_ANSWER }));
    if (reply.problem) {
      setText(this.told, reply.problem);
      return;
    }
    const url = URL.createObjectURL(new Blob([reply.text], { type: TYPES[kind] }));
    el("a", { href: url, download: reply.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

function valueOf(cell, column) {
  if (!cell) return el("td", { class: "rs-number rs-evaluate-none" }, NONE);
  const interval = Number.isFinite(cell.low) ? el("span", { class: "rs-evaluate-interval" }, ends(cell, column)) : null;
  return el("td", { class: "rs-number" }, figure(cell.value, column), interval);
}
