// Prompts by policies: the answers side by side, with what differs from one of the policies word by word.
import { answerNumbers } from "../shared/answers.js";
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted, policyName, readable } from "../shared/format.js";
import { rowHead, scrolling, table } from "../shared/table.js";
import { NO_ANSWER } from "../shared/visit.js";
import { t } from "../shared/language.js";

const MOST = 8;
const AT_FIRST = 3;

export class Matrix {
  constructor({ ask }) {
    this.ask = ask;
    this.policies = [];
    this.chosen = [];
    this.start = 0;
    this.draw_ = 0;
    this.boxes = el("div", {
      class: "rs-evaluate-boxes rs-wrap",
      role: "group",
      "aria-label": t("Policies side by side"),
    });
    this.against = el("select", { class: "rs-input", onchange: () => this.load() });
    this.draws = el("select", { class: "rs-input", onchange: () => this.load() });
    this.drawn = el("label", { hidden: true }, el("span", {}, t("Answer"), " "), this.draws);
    this.grid = scrolling("rs-evaluate-scroll", t("Answers side by side"));
    this.where = el("span", { class: "rs-help", role: "status" });
    const step = (label, by) => pushButton("rs-button rs-small", label, () => this.go(by));
    this.before = step(t("Previous prompts"), -10);
    this.after = step(t("Next prompts"), 10);
    this.lost = el("input", {
      type: "checkbox",
      onchange: () => this.grid.classList.toggle("rs-evaluate-lost", this.lost.checked),
    });
    this.node = el(
      "div",
      { class: "rs-evaluate-part" },
      this.boxes,
      el(
        "div",
        { class: "rs-evaluate-row" },
        el("label", {}, el("span", {}, t("Mark what differs from"), " "), this.against),
        this.drawn,
        el("label", { class: "rs-check" }, this.lost, " ", t("Show what was left out")),
      ),
      this.grid,
      el("div", { class: "rs-evaluate-row" }, this.before, this.after, this.where),
    );
  }

  clear() {
    this.policies = [];
    this.chosen = [];
    this.start = 0;
    fill(this.grid);
  }

  draw({ policies, first }) {
    const same = JSON.stringify(policies) === JSON.stringify(this.policies);
    this.first = first;
    if (!same) {
      this.policies = policies;
      const kept = this.chosen.filter((name) => policies.includes(name));
      const ends = [policies[0], policies[Math.floor(policies.length / 2)], policies.at(-1)];
      this.chosen = kept.length ? kept : [...new Set(ends)].slice(0, AT_FIRST);
      fill(
        this.against,
        policies.map((name) => el("option", { value: name }, policyName(name))),
        el("option", { value: "" }, t("nobody")),
      );
      this.against.value = first;
      this.drawBoxes();
    }
    this.load();
  }

  drawBoxes() {
    const box = (name) => {
      const input = el("input", {
        type: "checkbox",
        checked: this.chosen.includes(name),
        disabled: !this.chosen.includes(name) && this.chosen.length >= MOST,
        onchange: () => {
          this.chosen = this.policies.filter((one) => (one === name ? input.checked : this.chosen.includes(one)));
          this.drawBoxes();
          this.load();
        },
      });
      return el("label", { class: "rs-check" }, input, ` ${policyName(name)}`);
    };
    fill(this.boxes, this.policies.map(box));
  }

  go(by) {
    this.start = Math.max(0, this.start + by);
    this.load();
  }

  async load() {
    const { chosen, start } = this;
    const question = { policies: chosen, start, against: this.against.value, draw: Number(this.draws.value || 0) };
    const reply = await this.ask("answers", question).catch(() => ({ problem: NO_ANSWER }));
    if (chosen !== this.chosen || start !== this.start) return;
    if (reply.problem) {
      setText(this.where, reply.problem);
      return;
    }
    this.start = reply.start;
    this.setDraws(reply.draws);
    const last = Math.min(reply.start + reply.rows.length, reply.total);
    setText(
      this.where,
      reply.total
        ? t("Prompts {start} to {last} of {total}", { start: reply.start + 1, last, total: reply.total })
        : "",
    );
    this.before.disabled = reply.start === 0;
    this.after.disabled = last >= reply.total;
    fill(this.grid, this.table(reply.rows));
  }

  setDraws(count) {
    show(this.drawn, count > 1);
    if (this.draws.options.length === count) return;
    fill(
      this.draws,
      Array.from({ length: count }, (_, place) => el("option", { value: place }, String(place + 1))),
    );
  }

  table(rows) {
    const names = this.chosen;
    const cellOf = (row, name) => {
      const answer = row.answers.find(({ policy }) => policy === name);
      return el("td", {}, answer ? answerOf(answer) : null);
    };
    const lines = rows.map((row) => [rowHead(readable(row.prompt, 600)), ...names.map((name) => cellOf(row, name))]);
    return table([t("Prompt"), ...names.map((name) => policyName(name))], lines, { class: "rs-evaluate-matrix" });
  }
}

const TAGS = { same: "span", "only first": "del", "only second": "ins" };

function answerOf({ text, pieces, score, gold, judge, kl, length }) {
  const shown = pieces.length ? pieces : [{ change: "same", text }];
  const lead = shown.findIndex(({ change }) => change !== "only first"); // no answer is drawn with a blank in front
  const said = shown.map((piece, place) => {
    const words = readable(piece.text);
    return el(TAGS[piece.change], {}, place > lead ? words : words.trimStart());
  });
  const numbers = [["score", score], ["gold", gold], ["judge", judge], ["KL", kl], counted(length, "token")];
  return [el("p", { class: "rs-evaluate-answer" }, said), answerNumbers(numbers)];
}
