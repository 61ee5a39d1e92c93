// The list of lessons, folded by what they teach, with a tick at those that were read to their end in this browser.
import { el, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { lasting } from "../shared/lasting.js";

/** Each chapter: the name of its first lesson, and what it teaches. */
const CHAPTERS = [
  ["rlhf", t("The idea")],
  ["lora", t("Before the first step")],
  ["logprobs", t("Inside one step")],
  ["reward_model", t("Judges, and how they fail")],
  ["from_trl", t("Further on")],
];
const KEPT = "learn.read";
/** Here the list stands above the lesson, and opens no chapter by itself. */
const NARROW = matchMedia("(max-width: 760px)");

const chip = () => el("span", { class: "rs-chip rs-learn-start", hidden: true });

export class Chapters {
  /**
   * @param lessons  all of them, in order
   * @param entry    makes the line of one, from (params, title, number)
   */
  constructor(lessons, entry) {
    this.names = lessons.map(({ name }) => name);
    this.read = new Set(lasting.get(KEPT, []));
    this.lines = new Map();
    this.parts = [];
    for (const { name, title, number } of lessons) {
      const first = CHAPTERS.find(([begins]) => begins === name);
      if (first || !this.parts.length) this.begin(first?.[1] || CHAPTERS[0][1]);
      const line = entry({ lesson: name }, title, String(number));
      const [mark, start, done] = [line.querySelector(".rs-learn-number"), chip(), el("span", { class: "rs-hidden" })];
      line.firstChild.lastChild.append(done, start);
      this.lines.set(name, { line, mark, start, done, number: String(number) });
      this.parts.at(-1).names.push(name);
      this.parts.at(-1).list.append(line);
    }
    this.nodes = this.parts.map(({ node }) => el("li", {}, node));
    this.draw();
  }

  begin(title) {
    const [far, start, list] = [el("span", { class: "rs-muted" }), chip(), el("ol")];
    const node = el(
      "details",
      { class: "rs-learn-chapter" },
      el("summary", {}, el("span", {}, title), start, far),
      list,
    );
    this.parts.push({ node, list, far, start, names: [] });
  }

  /** The first lesson that has not been read; the first of all when all have been. */
  get next() {
    return this.names.find((name) => !this.read.has(name)) ?? this.names[0];
  }

  /** A lesson was read to its end. */
  finish(name) {
    if (this.read.has(name) || !this.lines.has(name)) return;
    this.read.add(name);
    lasting.set(KEPT, [...this.read]);
    this.draw();
  }

  /** The chapter of a lesson is opened where there is room for it. */
  open(name) {
    const part = this.parts.find(({ names }) => names.includes(name));
    if (part && !NARROW.matches) part.node.open = true;
  }

  draw() {
    const next = this.read.size < this.names.length ? this.next : "";
    const words = this.read.size ? t("Go on here") : t("Start here");
    const mark = (node, wanted) => show(setText(node, words), wanted);
    for (const [name, { mark: number, start, done, number: written }] of this.lines) {
      setText(number, this.read.has(name) ? "\u2713" : written);
      setText(done, this.read.has(name) ? t(" (read)") : "");
      mark(start, name === next);
    }
    for (const { names, far, start } of this.parts) {
      const read = names.filter((name) => this.read.has(name)).length;
      setText(far, read ? t("{read} of {all}", { read, all: names.length }) : String(names.length));
      mark(start, names.includes(next));
    }
  }
}
