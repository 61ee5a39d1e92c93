// Before and now: the starting policy's answers beside the newest ones, on the same prompts.
import { el, fill, setText, show } from "../shared/dom.js";
import { number, readable, signed } from "../shared/format.js";

export class BeforeAndNow {
  constructor(fetch) {
    this.fetch = fetch;
    this.key = "";
    this.title = el("h3", {}, "Before and now");
    this.note = el("span", { class: "rs-muted" });
    this.body = el("div", { class: "rs-before" });
    this.node = el(
      "section",
      { class: "rs-panel", "aria-label": "Before and now", hidden: true },
      el("div", { class: "rs-panel-head" }, this.title, this.note),
      this.body,
    );
  }

  reset() {
    this.key = "";
    show(this.node, false);
    fill(this.body);
  }

  /** Fetch again when a new answer can be there: `key` changes with it. */
  async update(key) {
    if (key === this.key) return;
    const before = this.key;
    this.key = key;
    const reply = await this.fetch({ kind: "watched" });
    if (this.key !== key) return;
    if (!reply || reply.problem) {
      this.key = before;
      return;
    }
    this.draw(reply.rows);
  }

  draw(rows) {
    show(this.node, rows.length > 0);
    if (!rows.length) return;
    const newest = Math.max(...rows.map((row) => row.now.step));
    const changed = newest > 0;
    setText(
      this.note,
      changed
        ? `the same prompts, answered by the starting policy and after step ${newest}`
        : "the starting policy's answers; the next come during training",
    );
    const gold = rows.some((row) => row.now.gold !== null);
    fill(
      this.body,
      rows.map((row) =>
        el(
          "article",
          { class: "rs-pair" },
          el("p", { class: "rs-pair-prompt" }, readable(row.prompt)),
          answer("before", row.before, gold, null),
          changed ? answer(`step ${row.now.step}`, row.now, gold, row.before) : null,
        ),
      ),
    );
  }
}

function answer(label, item, gold, base) {
  return el(
    "div",
    { class: base ? "rs-answer" : "rs-answer rs-was" },
    el("span", { class: "rs-answer-label" }, label),
    el("p", { class: "rs-answer-text" }, item.response ? readable(item.response) : el("em", {}, "(empty)")),
    el(
      "span",
      { class: "rs-answer-numbers" },
      fact("score", item.score, base?.score),
      gold ? fact("gold", item.gold, base?.gold) : null,
    ),
  );
}

function fact(name, value, base) {
  const change = Number.isFinite(value) && Number.isFinite(base) ? value - base : null;
  return el(
    "span",
    { "data-term": name },
    `${name} `,
    el("b", {}, number(value)),
    change === null
      ? null
      : el("em", { class: change > 0 ? "rs-up" : change < 0 ? "rs-down" : null }, ` ${signed(change)}`),
  );
}
