// The sample table of one step: sort, pick a row; and the slider that chooses the step.
import { sharedEnds, shortPrompt } from "./ends.js";
import { PART, partsOf, sorted, valueOf } from "./rows.js";
import { each, el, fill, labelled, memory, setText, show } from "../shared/dom.js";
import { counted, number, ofOneRun, policyName, readable } from "../shared/format.js";
import { clauses, t } from "../shared/language.js";

/** @typedef {{sort?: string, label: string, name?: string, term?: string, kind?: string}} Column */
/** @type {Column[]} */
const COLUMNS = [
  { sort: "order", label: "#", name: t("order of sampling") },
  { label: t("Response") },
  { sort: "score", label: t("Score"), term: "score" },
  { sort: "gold", label: t("Gold"), term: "gold" },
  { sort: "kl", label: "KL", term: "sample_kl" },
  { sort: "loss", label: t("Loss"), term: "loss" },
  { sort: "length", label: t("Length"), term: "length" },
];
const SIDES = [t("chosen"), t("rejected")];

const MOST_PARTS = 3; // that stand side by side; of more, one is chosen
const WIDTHS = { kl: "thin", loss: "thin", part: "part" };

/** The number of a pair stands beside its first response. */
const pairNumber = ({ sample }) => (sample % 2 ? "" : String(1 + sample / 2));

export class SampleTable {
  /** @param onpick  called with the response that was chosen, and whether it was picked, not passed with the arrows */
  constructor(onpick) {
    this.onpick = onpick;
    this.rows = [];
    this.chosen = null;
    const kept = memory.get("sort", null);
    this.sort = typeof kept?.sort === "string" ? kept : { sort: "score", reverse: false };
    this.part = memory.get("part", "");
    this.choice = el("select", { class: "rs-input", onchange: () => this.choosePart(this.choice.value) });
    this.chooser = el("div", { class: "rs-part-choice", hidden: true }, labelled(t("Part of the reward"), this.choice));
    this.head = el("div", { class: "rs-rows-head" });
    this.list = el("div", { class: "rs-rows", role: "listbox", "aria-label": t("Responses of this step") });
    this.list.addEventListener("click", (event) => this.pickNode(event.target.closest("[role=option]")));
    this.node = el("div", { class: "rs-table rs-column" }, this.chooser, this.head, this.list);
    this.pairs = false;
    this.unit = "tokens"; // what lengths count
    this.shared = sharedEnds([]);
    this.findColumns();
    this.drawHead();
  }

  /** The columns of numbers that some row has. Parts of the reward stand where the score is, or would be. */
  findColumns() {
    const some = (name) => this.rows.some((row) => valueOf(row, name) !== null);
    const columns = COLUMNS.filter(({ sort }) => !sort || ["order", "length"].includes(sort) || some(sort));
    const all = partsOf(this.rows);
    const scored = some("score");
    const many = all.length > (scored ? 1 : MOST_PARTS);
    const chosen = all.find(({ sort }) => sort === this.part) || all[0];
    show(this.chooser, many);
    if (many) {
      fill(this.choice, ...all.map(({ sort, label }) => el("option", { value: sort }, label)));
      this.choice.value = chosen.sort;
    }
    const place = scored ? 3 : 2;
    this.shown = [...columns.slice(0, place), ...(many ? [chosen] : all), ...columns.slice(place)];
  }

  choosePart(part) {
    this.part = part;
    memory.set("part", part);
    if (this.sort.sort.startsWith(PART)) this.sort = { ...this.sort, sort: part };
    this.draw();
  }

  drawHead() {
    const order = this.ordered;
    const cells = this.shown.map((column) => {
      const name = column.kind || column.sort || "response";
      if (!column.sort || this.pairs)
        return el("span", { class: `rs-cell-${name}`, "data-term": column.term }, column.label);
      const mine = order.sort === column.sort;
      const arrow = mine ? (order.reverse ? " ↑" : " ↓") : "";
      const attributes = {
        type: "button",
        class: `rs-cell-${name}`,
        "data-term": column.term,
        "aria-pressed": String(mine),
        "aria-label": t("Sort by {name}", { name: column.name || column.label }),
      };
      return el(
        "button",
        { ...attributes, "data-sort": column.sort, onclick: () => this.sortBy(column.sort) },
        column.kind ? broken(column.label) : column.label,
        arrow,
      );
    });
    const held = /** @type {HTMLElement} */ (document.activeElement);
    const focused = this.head.contains(held) ? held.dataset.sort : null;
    fill(this.head, cells, this.beside && cells.map((cell) => cell.cloneNode(true)));
    if (focused) this.head.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  }

  sortBy(sort) {
    this.sort = { sort, reverse: this.ordered.sort === sort ? !this.ordered.reverse : false };
    memory.set("sort", this.sort);
    this.draw();
  }

  /**
   * @param pairs   whether the rows are chosen and rejected responses in turn: they stay together
   * @param beside  whether there is room for the two beside each other
   */
  set(rows, pairs = false, beside = false) {
    this.rows = rows;
    this.pairs = pairs;
    this.beside = beside;
    this.shared = sharedEnds(rows.map(({ prompt }) => prompt));
    this.oneRun = ofOneRun(rows.map(({ policy }) => policy));
    this.draw();
  }

  /** The order that is shown: one by a number that no row has is their own, and pairs stay together. */
  get ordered() {
    const there = !this.pairs && this.shown.some(({ sort }) => sort === this.sort.sort);
    return there ? this.sort : { sort: "order", reverse: false };
  }

  get inOrder() {
    return sorted(this.rows, this.ordered.sort, this.ordered.reverse);
  }

  order() {
    return this.inOrder.map((row) => row.sample);
  }

  /** The response that is shown when nobody has chosen one: the first in the order whose tokens were recorded. */
  first() {
    const rows = this.inOrder;
    return (rows.find((row) => row.recorded) || rows[0])?.sample;
  }

  draw() {
    this.findColumns();
    const widths = this.numbers.map(({ sort, kind }) => `var(--${WIDTHS[kind || sort] || "wide"})`);
    this.node.style.setProperty("--numbers", widths.join(" "));
    this.node.classList.toggle("rs-pairs", this.pairs);
    this.drawHead();
    const scroll = this.list.scrollTop;
    const focused = this.list.contains(document.activeElement);
    each(this.list, this.inOrder, (row) => this.rowNode(row));
    this.list.scrollTop = scroll;
    this.choose(this.chosen, focused);
  }

  /** The columns of numbers, without the number of the row. */
  get numbers() {
    return this.shown.filter(({ sort }) => sort && sort !== "order");
  }

  rowNode(row) {
    const cells = this.numbers.map(({ sort, label, kind }) => {
      const whole = sort === "length";
      const text = whole ? String(row.length) : number(valueOf(row, sort), sort === "kl" ? 1 : 2);
      const said = whole ? counted(row.length, this.unit.slice(0, -1)) : `${label} ${number(valueOf(row, sort))}`;
      return { said, node: el("span", { class: `rs-cell-${kind || sort}` }, text) };
    });
    const side = this.pairs ? SIDES[row.sample % 2] : "";
    return el(
      "div",
      {
        role: "option",
        class: "rs-row",
        tabindex: "-1",
        "data-sample": row.sample,
        "aria-selected": "false",
        "aria-description": clauses(cells.map(({ said }) => said)), // the row's own text is its name
      },
      el("span", { class: "rs-cell-order" }, this.pairs ? pairNumber(row) : String(row.sample + 1)),
      el(
        "span",
        { class: "rs-cell-response" },
        side ? el("span", { class: `rs-chip rs-side-${side}` }, side) : null,
        row.policy ? el("b", { class: "rs-policy" }, policyName(row.policy, this.oneRun)) : null,
        el("span", { class: "rs-prompt" }, readable(shortPrompt(row.prompt, this.shared), 400)),
        " ",
        el("span", { class: "rs-response" }, readable(row.response, 600)),
        row.stopped === false ? el("span", { class: "rs-chip" }, t("cut")) : null,
      ),
      ...cells.map(({ node }) => node),
    );
  }

  pickNode(node) {
    if (!node) return;
    this.choose(Number(node.dataset.sample), true);
    this.onpick(this.chosen, true);
  }

  /** Mark a row as the chosen one; null marks none but leaves the first reachable by Tab. */
  choose(sample, focus = false) {
    this.chosen = sample;
    let found = null;
    for (const node of this.list.children) {
      const mine = Number(node.dataset.sample) === sample;
      node.setAttribute("aria-selected", String(mine));
      node.tabIndex = mine ? 0 : -1;
      if (mine) found = node;
    }
    if (!found && this.list.firstChild) this.list.firstChild.tabIndex = 0;
    if (focus && found) {
      found.focus({ preventScroll: true });
      scrollInto(this.list, found);
    }
  }

  /** Move the choice by one row up or down. */
  move(by) {
    const order = this.order();
    const index = order.indexOf(this.chosen);
    const next = order[Math.max(0, Math.min(order.length - 1, index < 0 ? 0 : index + by))];
    if (next === undefined) return;
    this.choose(next, true);
    this.onpick(next, false);
  }
}

/** A name with places to break the line: behind each underscore. */
const broken = (name) => name.split(/(?<=_)/).flatMap((part, index) => (index ? [el("wbr", {}), part] : [part]));

/** Scroll a list so that `node` is seen, without moving the page. */
function scrollInto(list, node) {
  const [box, item] = [list.getBoundingClientRect(), node.getBoundingClientRect()];
  if (item.top < box.top) list.scrollTop += item.top - box.top;
  else if (item.bottom > box.bottom) list.scrollTop += item.bottom - box.bottom;
}

/** Follows the newest step until it is touched. */
export class StepPicker {
  constructor(onchoose) {
    this.onchoose = onchoose;
    this.ranges = [];
    this.count = 0;
    this.title = el("h3", {}, t("Samples"));
    this.slider = el("input", {
      type: "range",
      class: "rs-slider",
      min: "0",
      max: "0",
      value: "0",
      "aria-label": t("Step"),
      oninput: () => this.onchoose(this.stepAt(Number(this.slider.value))),
    });
    this.live = el(
      "button",
      {
        type: "button",
        class: "rs-live-button",
        "data-tip": t(
          "Always show the newest step. The samples stay still while you point at them, and when you choose a step, " +
            "a response or a token.",
        ),
        onclick: () => this.onchoose(null),
      },
      el("i", { "aria-hidden": "true" }),
      t("live"),
    );
    this.node = el("div", { class: "rs-picker rs-middle" }, this.title, this.slider, this.live);
  }

  set(ranges) {
    this.ranges = ranges;
    this.count = ranges.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  }

  newest() {
    return this.ranges.length ? this.ranges.at(-1)[1] : null;
  }

  has(step) {
    return this.ranges.some(([first, last]) => step >= first && step <= last);
  }

  stepAt(index) {
    let left = Math.max(0, Math.min(index, this.count - 1));
    for (const [first, last] of this.ranges) {
      if (left <= last - first) return first + left;
      left -= last - first + 1;
    }
    return null;
  }

  indexOf(step) {
    let passed = 0;
    for (const [first, last] of this.ranges) {
      if (step < first) return Math.max(0, passed - 1);
      if (step <= last) return passed + step - first;
      passed += last - first + 1;
    }
    return Math.max(0, passed - 1);
  }

  neighbour(step, by) {
    return this.stepAt(this.indexOf(step) + by);
  }

  /** `chosen` is the step the viewer chose, null while following; `newer` a newer step that waits, or null. */
  update(shown, chosen, alive, newer = null) {
    this.slider.max = String(Math.max(0, this.count - 1));
    if (shown !== null) {
      this.slider.value = String(this.indexOf(shown));
      this.slider.setAttribute("aria-valuetext", t("step {step}", { step: shown }));
    }
    show(this.node, this.count > 0);
    setText(this.title, shown === null ? t("Samples") : t("Samples of step {shown}", { shown }));
    const following = chosen === null && newer === null;
    this.live.setAttribute("aria-pressed", String(following));
    setText(
      this.live.lastChild,
      newer !== null ? t("newest: step {newer}", { newer }) : alive ? t("live") : t("newest"),
    );
    this.live.classList.toggle("rs-on", following);
  }
}
