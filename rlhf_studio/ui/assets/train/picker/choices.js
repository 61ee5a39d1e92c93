// A list to choose from: groups of choices, each a radio button with what is known of it. All texts are the server's or
// a file's: they reach the page as text nodes.
import { each, el, elEach, fill, pushButton, setText, show } from "../../shared/dom.js";
import { readable } from "../../shared/format.js";
import { t } from "../../shared/language.js";
import { same } from "../form.js";

const AT_FIRST = 5; // of a group; the others are one click away
const ROOM = { fits: t("fits"), tight: t("may not fit"), too_large: t("does not fit") };
let lists = 0;

/** Whether a choice is what the form holds now. */
const isChosen = ({ settings }, value) => {
  const [name, wanted] = Object.entries(settings)[0];
  return same(value(name), wanted);
};

export class Choices {
  /**
   * @param label     what is chosen, for screen readers
   * @param value     present value of a setting
   * @param onchoose  called with the choice
   */
  constructor({ label, value, onchoose }) {
    this.value = value;
    this.onchoose = onchoose;
    this.name = `rs-choices-${(lists += 1)}`;
    this.words = "";
    this.groups = [];
    this.fitting = 0; // choices that have the words
    this.opened = new Set(); // groups whose every choice is shown
    this.node = el("div", { class: "rs-choices", role: "radiogroup", "aria-label": label });
    this.none = el("p", { class: "rs-help", role: "status", hidden: true });
  }

  /** @param groups  [{title, choices: [{settings, title, size, detail, needs, room, download, licence}], note}] */
  draw(groups) {
    this.groups = groups;
    this.rows = [];
    each(this.node, groups, (group) => this.group(group));
    this.node.append(this.none);
    this.follow();
    this.filter(this.words);
  }

  group(group) {
    const rows = group.choices.map((choice) => this.row(choice, group));
    const more = pushButton("rs-quiet rs-choices-more", "", () => {
      this.opened.add(group.title);
      this.filter(this.words);
      rows[AT_FIRST]?.input.focus();
    });
    this.rows.push({ group, rows, more });
    return el(
      "section",
      { class: "rs-choice-group" },
      el("h3", {}, group.title),
      rows.map((row) => row.node),
      more,
      group.note ? el("p", { class: "rs-help" }, readable(group.note, 600)) : null,
    );
  }

  row(choice, group) {
    const choose = () => this.onchoose(choice);
    const input = el("input", { type: "radio", name: this.name, onchange: choose, onclick: choose });
    const { title, size, detail, needs, room, download, licence } = choice;
    const facts = [size, detail, needs, ROOM[room], download, licence].filter(Boolean);
    const node = el(
      "label",
      { class: "rs-choice" },
      input,
      el(
        "span",
        { class: "rs-choice-words" },
        el("strong", {}, readable(title, 200)),
        elEach("span", { class: "rs-choice-facts" }, facts, (text) =>
          el("span", { data: { room: text === ROOM[room] ? room : "" } }, readable(text, 400)),
        ),
      ),
    );
    return { choice, input, node, text: `${title} ${size} ${detail} ${group.title}`.toLowerCase() };
  }

  /** Mark the choice that the form holds now. */
  follow() {
    for (const { rows } of this.rows || [])
      for (const { choice, input, node } of rows) {
        input.checked = isChosen(choice, this.value);
        node.classList.toggle("rs-chosen", input.checked);
      }
  }

  /** Show what has these words; without any, the first ones of each group. */
  filter(words) {
    this.words = words;
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { group, rows, more } of this.rows || []) {
      const fitting = rows.filter((row) => parts.every((part) => row.text.includes(part)));
      const all = parts.length > 0 || this.opened.has(group.title);
      for (const row of rows)
        show(row.node, fitting.includes(row) && (all || row.input.checked || rows.indexOf(row) < AT_FIRST));
      const left = rows.filter((row) => row.node.hidden).length;
      setText(more, t("Show {left} more", { left }));
      show(more, !parts.length && left > 0);
      show(more.parentNode, fitting.length > 0 || (!parts.length && Boolean(group.note)));
      count += fitting.length;
    }
    this.fitting = count;
    fill(this.none, parts.length ? t("Nothing here has these words.") : t("There is nothing to choose from yet."));
    show(this.none, count === 0);
  }

  /** Bring the chosen row into view, in the list; with `page` also where the list itself goes on below the screen. */
  showChosen(page) {
    const { node } = this.rows?.flatMap(({ rows }) => rows).find(({ input }) => input.checked) || {};
    if (!node) return;
    this.node.scrollTop = node.offsetTop - this.node.clientHeight / 2; // the list is what it is offset from
    if (page) node.scrollIntoView({ block: "nearest" });
  }

  /** The choice that the form holds now; undefined for a name that was typed. */
  get chosen() {
    return this.choices.find((choice) => isChosen(choice, this.value));
  }

  get choices() {
    return this.groups.flatMap((group) => group.choices);
  }
}
