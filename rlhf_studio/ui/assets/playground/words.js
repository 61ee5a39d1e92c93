// What changes when a word of the response is left out, or another one stands in its place: a table, largest first.
import { el, fill, pushButton, show } from "../shared/dom.js";
import { counted, readable, signed } from "../shared/format.js";
import { scrolling, table } from "../shared/table.js";
import { t } from "../shared/language.js";

const SHOWN = 12; // rows at first

export class WordChanges {
  /** @param onuse  called with the changed response when a person wants it */
  constructor(onuse) {
    this.onuse = onuse;
    this.all = false;
    this.body = el("div", { class: "rs-playground-words-body" });
    this.node = el(
      "section",
      { class: "rs-playground-words rs-column", "aria-labelledby": "rs-playground-words-title", hidden: true },
      el("h3", { id: "rs-playground-words-title" }, t("Which words matter")),
      el(
        "p",
        { class: "rs-help" },
        t("How the score changes when one word is left out, or replaced. A choice puts the change into the response."),
      ),
      this.body,
    );
  }

  /** A new text is being scored: the last table is out of date. */
  wait() {
    this.all = false;
    this.body.classList.add("rs-stale");
  }

  draw({ words, left }, response, candidates) {
    const changes = (word) => [word.without, ...word.with].filter(Number.isFinite);
    const size = (word) => Math.max(0, ...changes(word).map(Math.abs));
    this.rows = [...words].sort((one, other) => size(other) - size(one));
    this.response = [...response];
    this.candidates = candidates;
    this.left = left;
    this.limit = Math.max(1e-9, ...words.map(size));
    this.body.classList.remove("rs-stale");
    this.fill();
    show(this.node, words.length > 0);
  }

  fill() {
    const rows = this.all ? this.rows : this.rows.slice(0, SHOWN);
    const heads = [
      t("Left out"),
      ...this.candidates.map((word) => t("“{word}” instead", { word: readable(word, 30) })),
    ];
    const more = this.rows.length - rows.length;
    const all = () => {
      this.all = true;
      this.fill();
    };
    fill(
      this.body,
      scrolling(
        "rs-playground-scroll",
        t("Words"),
        table(
          [t("Word"), ...heads],
          rows.map((word) => this.row(word)),
        ),
      ),
      more > 0 ? pushButton("rs-quiet", t("Show {more}", { more: counted(more, "more word") }), all) : null,
      this.left
        ? el(
            "p",
            { class: "rs-help" },
            t("{left} of the text not tried.", { left: counted(this.left, "further word") }),
          )
        : null,
    );
  }

  row(word) {
    const before = this.response.slice(0, word.start).join("").slice(-18);
    const after = this.response.slice(word.end).join("").slice(0, 18);
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row", class: "rs-playground-word" },
        el("span", { class: "rs-muted" }, `${before.length === 18 ? "…" : ""}${before}`),
        el("b", {}, word.text),
        el("span", { class: "rs-muted" }, `${after}${after.length === 18 ? "…" : ""}`),
      ),
      this.cell(word.without, t("Leave out “{text}”", { text: word.text }), () => this.without(word)),
      word.with.map((value, place) =>
        this.cell(
          value,
          t("Put “{candidates}” in place of “{text}”", { candidates: this.candidates[place], text: word.text }),
          () => this.put(word, this.candidates[place]),
        ),
      ),
    );
  }

  cell(value, title, change) {
    if (!Number.isFinite(value)) return el("td", { class: "rs-muted" }, t("the same word"));
    return el(
      "td",
      {},
      el(
        "button",
        {
          type: "button",
          class: "rs-playground-change rs-middle",
          "data-sign": value < 0 ? "minus" : "plus",
          "aria-label": `${title}: ${signed(value, 3)}`,
          title,
          onclick: () => this.onuse(change()),
        },
        el("span", { class: "rs-playground-number" }, signed(value, 3)),
        el(
          "span",
          { class: "rs-playground-bar", "aria-hidden": "true" },
          el("i", { style: { "--w": `${((50 * Math.abs(value)) / this.limit).toFixed(1)}%` } }),
        ),
      ),
    );
  }

  /** As look.py leaves words out: the space before a word goes with it. */
  without(word) {
    const before = this.response.slice(0, word.start).join("");
    const after = this.response.slice(word.end).join("");
    if (/\s$/.test(before)) return before.trim() ? before.trimEnd() + after : before + after.trimStart();
    return before + after;
  }

  put(word, candidate) {
    const capital = word.text[0] !== word.text[0].toLowerCase();
    const taken = capital ? candidate[0].toUpperCase() + candidate.slice(1) : candidate;
    return this.response.slice(0, word.start).join("") + taken + this.response.slice(word.end).join("");
  }
}
