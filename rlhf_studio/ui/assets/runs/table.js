// The table of runs. A row is made again only when its run has changed; sorting and searching move the rows there are.
import { onPlainClick } from "../shared/links.js";
import { each, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { NONE, called, counted, withStart } from "../shared/format.js";
import { lasting } from "../shared/lasting.js";
import { COLUMNS, NAME, STAGES, dayOf, textOf } from "./columns.js";
import { t, tn, tp, tx } from "../shared/language.js";

const MOST_TAGS = 6;
const AT_FIRST = 30; // rows; more come at a click
const MORE = 60;
const HEADED = 8; // from so many runs on, sorted by their start, each day has a line of its own
const MOST_TICKED = 20;
const STARTED = "started"; // the column of the start

export class RunTable {
  /**
   * @param open    called with a row when a run is to be shown
   * @param menu    called with (button, row) when the menu of a row is asked for
   * @param ticked  called with the ids of the ticked runs, in the order in which they were ticked
   * @param find    called with a text that is to be searched for
   * @param other   called when other rows are shown than before
   */
  constructor({ open, menu, ticked, find, other }) {
    this.open = open;
    this.menu = menu;
    this.ticked = ticked;
    this.find = find;
    this.other = other;
    this.rows = new Map();
    this.nodes = new Map();
    this.order = [];
    this.ticks = [];
    this.words = [];
    this.mine = new Set(); // runs that this visitor or student has started
    this.archived = false;
    this.recordings = { shown: false, first: false };
    this.sort = lasting.get("runs.sort", { key: "started", way: -1 });
    this.chosen = lasting.get("runs.columns", null) || COLUMNS.filter((column) => !column.off).map(({ key }) => key);
    this.stages = []; // of all runs
    this.stage = ""; // the one that is shown; empty for all
    this.stageChoice = el("select", {
      class: "rs-input rs-stage-choice",
      "aria-label": t("Stage"),
      hidden: true,
      onchange: () => this.only(this.stageChoice.value),
    });
    this.head = el("tr");
    this.body = el("tbody");
    this.table = el("table", { class: "rs-run-table" }, el("thead", {}, this.head), this.body);
    this.most = AT_FIRST;
    this.heads = new Map(); // the lines above the days, by what they say
    this.more = pushButton("rs-button rs-more-runs", "", () => this.showMore());
    this.node = el("div", {}, this.table, this.more);
    this.sorting = el("select", {
      class: "rs-input rs-sorting",
      "aria-label": t("Sort by"),
      onchange: () => this.pick(),
    });
    this.chooser = this.buildChooser();
    this.recordingsButton = pushButton("rs-quiet", "", () => this.chooseRecordings());
    this.drawHead();
  }

  get columns() {
    return COLUMNS.filter(({ key, several }) => (several ? this.stages.length > 1 : this.chosen.includes(key)));
  }

  titleOf(column) {
    return (this.stages.length > 1 && column.titleOfSeveral) || column.title;
  }

  /** Show the runs of one stage, or (empty) of all. */
  only(stage) {
    this.stage = stage;
    this.most = AT_FIRST;
    this.draw();
    this.other();
  }

  /** The stages that there are now: a column and a choice where there are several. */
  countStages() {
    const there = new Set([...this.rows.values()].map((row) => row.stage));
    const stages = Object.keys(STAGES).filter((stage) => there.has(stage));
    if (stages.join() === this.stages.join()) return;
    this.stages = stages;
    if (!there.has(this.stage)) this.stage = "";
    const options = [["", t("All stages")], ...stages.map((stage) => [stage, STAGES[stage]])];
    each(this.stageChoice, options, ([value, label]) => el("option", { value }, label));
    this.stageChoice.value = this.stage;
    show(this.stageChoice, stages.length > 1);
    this.nodes.clear();
    this.drawHead();
  }

  buildChooser() {
    const boxes = COLUMNS.filter(({ several }) => !several).map(({ key, title }) => {
      const box = el("input", {
        type: "checkbox",
        checked: this.chosen.includes(key),
        onchange: (event) => this.choose(key, event.target.checked),
      });
      return el("label", {}, box, title);
    });
    const node = el(
      "details",
      { class: "rs-column-choice" },
      el("summary", { class: "rs-button rs-small" }, t("Columns")),
      el("div", { class: "rs-columns-list", role: "group", "aria-label": t("Columns") }, boxes),
    );
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !node.open) return;
      node.open = false;
      node.firstChild.focus();
    });
    node.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !node.contains(event.relatedTarget)) node.open = false;
    });
    return node;
  }

  choose(key, on) {
    this.chosen = COLUMNS.map((column) => column.key).filter((own) => (own === key ? on : this.chosen.includes(own)));
    lasting.set("runs.columns", this.chosen);
    this.drawHead();
    this.nodes.clear();
    this.order = [];
    this.draw();
  }

  drawHead() {
    const heads = [NAME, ...this.columns].map((column) => {
      const sorted = this.sort.key === column.key;
      return el(
        "th",
        { scope: "col", "aria-sort": sorted ? (this.sort.way > 0 ? "ascending" : "descending") : null },
        el(
          "button",
          {
            type: "button",
            class: "rs-sort",
            "data-sort": column.key,
            "data-term": column.term,
            "data-tip": column.tip,
            onclick: () => this.sortBy(column),
          },
          el("span", { class: column.term ? "rs-word" : null }, this.titleOf(column)),
          el("span", { "aria-hidden": "true" }, sorted ? (this.sort.way > 0 ? " \u2191" : " \u2193") : ""),
        ),
      );
    });
    const hidden = (text) => el("th", { scope: "col" }, el("span", { class: "rs-hidden" }, text));
    fill(this.head, hidden(t("Compare")), heads, hidden(t("Actions")));
    const options = [NAME, ...COLUMNS].flatMap(({ key, title }) => [
      el("option", { value: `${key} 1` }, `${title} \u2191`),
      el("option", { value: `${key} -1` }, `${title} \u2193`),
    ]);
    fill(this.sorting, options);
    this.sorting.value = `${this.sort.key} ${this.sort.way}`;
  }

  pick() {
    const [key, way] = this.sorting.value.split(" ");
    this.sorted({ key, way: Number(way) });
  }

  sortBy({ key, first }) {
    this.sorted({ key, way: this.sort.key === key ? -this.sort.way : first });
    this.head.querySelector(`[data-sort="${key}"]`)?.focus();
  }

  sorted(sort) {
    this.sort = sort;
    lasting.set("runs.sort", sort);
    this.drawHead();
    this.draw();
  }

  /** From now on recordings are shown as the person says, no longer as the server does. */
  chooseRecordings() {
    this.decided = true;
    this.recordings.shown = !this.recordings.shown;
    this.offerRecordings();
    this.draw();
    this.other();
  }

  /** How many recordings there are, where they are hidden. */
  offerRecordings() {
    const count = [...this.rows.values()].filter((row) => row.recording).length;
    const hidden = tn("{count} recording hidden \u00b7 Show", "{count} recordings hidden \u00b7 Show", count);
    setText(this.recordingsButton, this.recordings.shown ? t("Hide recordings") : hidden);
    show(this.recordingsButton, count > 0);
  }

  /** News from the server: `ids` are all runs, `rows` those that have changed; `recordings` says how they are shown. */
  receive({ ids, rows, recordings, mine }) {
    this.mine = new Set(mine);
    this.recordings = { first: recordings.first, shown: this.decided ? this.recordings.shown : recordings.shown };
    for (const row of rows) {
      this.rows.set(row.id, { ...row, text: textOf(row) });
      this.nodes.delete(row.id);
    }
    const there = new Set(ids);
    for (const id of [...this.rows.keys()]) if (!there.has(id)) this.drop(id);
    this.offerRecordings();
    this.countNames();
    this.countStages();
    this.draw();
  }

  /** How often each name occurs; rows whose name is no longer the only one, or is again, are drawn anew. */
  countNames() {
    const before = this.names || new Map();
    this.names = new Map();
    for (const { name } of this.rows.values()) this.names.set(name, (this.names.get(name) || 0) + 1);
    const repeats = (names, name) => names.get(name) > 1;
    for (const { id, name } of this.rows.values())
      if (repeats(before, name) !== repeats(this.names, name)) this.nodes.delete(id);
  }

  /** A run's name; where other runs have it too, with the settings that differ, or else with the time of its start. */
  toldApart(row) {
    return this.names.get(row.name) > 1 && !row.apart ? withStart(row) : called(row);
  }

  drop(id) {
    this.rows.delete(id);
    this.nodes.delete(id);
    if (this.ticks.includes(id)) this.setTicks(this.ticks.filter((own) => own !== id));
  }

  /** Every row anew: who may act has changed, or the names of other runs. */
  redraw() {
    this.nodes.clear();
    this.order = [];
    this.draw();
  }

  search(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.most = AT_FIRST;
    this.draw();
  }

  /** Whether a row is there at all, whatever is searched for. */
  isWanted(row) {
    return (this.archived || !row.archived) && (this.recordings.shown || !row.recording);
  }

  /**
   * Rows of one group stand together: own runs; those at work, where recordings come first or the start orders the
   * rows; then all others, with the recordings before or behind them.
   */
  group({ id, recording, alive, state }) {
    if (this.mine.has(id)) return 0;
    if ((this.recordings.first || this.sort.key === STARTED) && (alive || state === "queued")) return 1;
    return Boolean(recording) === this.recordings.first ? 2 : 3;
  }

  get found() {
    const column = [NAME, ...COLUMNS].find(({ key }) => key === this.sort.key) || NAME;
    const rows = [...this.rows.values()].filter(
      (row) =>
        this.isWanted(row) &&
        (!this.stage || row.stage === this.stage) &&
        this.words.every((word) => row.text.includes(word)),
    );
    const keyed = rows.map((row) => [column.value(row), row]);
    const compared = ([one, first], [other, second]) => {
      const apart = this.group(first) - this.group(second);
      if (apart) return apart;
      if (one === null || other === null) return Number(one === null) - Number(other === null) || newest(first, second);
      return this.sort.way * (one > other ? 1 : one < other ? -1 : 0) || newest(first, second);
    };
    return keyed.sort(compared).map(([, row]) => row);
  }

  showMore() {
    this.most += MORE;
    this.draw();
  }

  /** What stands above a row and those like it: at work, a recording, or the day of its start. */
  headingOf(row) {
    const group = this.group(row);
    if (group === 1) return t("At work");
    return row.recording ? t("Recordings") : dayOf(row.started_at || row.created_at);
  }

  /** The rows with a line above each day, where they are many and their start orders them. */
  headed(rows) {
    const wanted = this.sort.key === STARTED && rows.length >= HEADED;
    const heads = new Map();
    const nodes = rows.flatMap((row) => {
      if (!this.nodes.has(row.id)) this.nodes.set(row.id, this.row(row));
      const node = this.nodes.get(row.id);
      const words = wanted ? this.headingOf(row) : "";
      if (!words || heads.has(words)) return [node];
      heads.set(words, this.heads.get(words) || el("th", { scope: "rowgroup" }, words));
      heads.get(words).colSpan = this.columns.length + 3;
      return [heads.get(words).parentNode || el("tr", { class: "rs-run-day" }, heads.get(words)), node];
    });
    this.heads = heads;
    return nodes;
  }

  draw() {
    const rows = this.found;
    const held = this.heldFocus();
    const nodes = this.headed(rows.slice(0, this.most));
    const hidden = Math.max(0, rows.length - this.most);
    setText(this.more, t("Show {more} more of {hidden}", { more: Math.min(MORE, hidden), hidden }));
    show(this.more, hidden > 0);
    if (nodes.length !== this.order.length || nodes.some((node, index) => node !== this.order[index])) {
      this.order = nodes;
      this.place(nodes);
    }
    this.restoreFocus(held);
    show(this.node, rows.length > 0);
    this.shown = rows.length;
  }

  /** Put the rows in order; those that stay where they are are not touched. */
  place(nodes) {
    const wanted = new Set(nodes);
    for (const node of [...this.body.children]) if (!wanted.has(node)) node.remove();
    if (nodes.length - this.body.children.length > 40) {
      this.body.replaceChildren(...nodes);
      return;
    }
    nodes.forEach((node, index) => {
      const there = this.body.children[index];
      if (there !== node) this.body.insertBefore(node, there || null);
    });
  }

  heldFocus() {
    const activeElement = /** @type {HTMLElement} */ (document.activeElement);
    if (!this.body.contains(activeElement)) return null;
    const run = /** @type {HTMLElement} */ (activeElement.closest("[data-run]"))?.dataset.run;
    return { node: activeElement, run, action: activeElement.dataset.action };
  }

  restoreFocus(held) {
    if (!held || document.activeElement === held.node) return;
    this.nodes.get(held.run)?.querySelector(`[data-action="${held.action}"]`)?.focus({ preventScroll: true });
  }

  row(row) {
    const cell = (key, label, content) => {
      const filled = el("td", { "data-label": label, "data-key": key }, content);
      filled.classList.toggle("rs-empty-cell", filled.textContent === NONE);
      return filled;
    };
    const tick = el("input", {
      type: "checkbox",
      "data-action": "tick",
      "aria-label": t("Compare {row}", { row: this.toldApart(row) }),
      onchange: (event) => this.tick(row.id, event.target),
    });
    tick.checked = this.ticks.includes(row.id);
    const open = el(
      "a",
      { href: `?tab=live&run=${row.id}`, "data-action": "open", onclick: onPlainClick(() => this.open(row)) },
      row.name,
    );
    const more = el(
      "button",
      {
        type: "button",
        class: "rs-button rs-small",
        "data-action": "menu",
        "aria-haspopup": "menu",
        "aria-expanded": "false",
        "aria-label": t("Actions for {row}", { row: this.toldApart(row) }),
        onclick: (event) => this.menu(event.currentTarget, row),
      },
      t("Actions \u25be"),
    );
    const node = el(
      "tr",
      { data: { run: row.id }, class: row.archived ? "rs-run-row rs-put-away" : "rs-run-row" },
      el("td", { class: "rs-tick" }, tick),
      el("td", { class: "rs-run-name" }, open, this.about(row)),
      this.columns.map((column) => cell(column.key, this.titleOf(column), column.cell(row))),
      el("td", { class: "rs-actions" }, more),
    );
    node.classList.toggle("rs-ticked", tick.checked);
    return node;
  }

  /** The button of a run's menu as it is drawn now; null where its row is not shown. */
  menuButton(id) {
    const node = this.nodes.get(id);
    return node?.isConnected ? node.querySelector("[data-action=menu]") : null;
  }

  /** Below a name: who else trains it, that it is a recording, where the run comes from, its sweep, tags and note. */
  about(row) {
    const apart = row.same ? t("same settings as another run of this name") : row.apart;
    const parts = apart ? [el("span", {}, apart)] : [];
    if (row.told) parts.push(el("span", { class: "rs-lineage" }, row.told));
    const parent = this.rows.get(row.parent);
    if (row.parent) {
      const link = parent
        ? el("a", { href: `?tab=live&run=${parent.id}`, onclick: onPlainClick(() => this.open(parent)) }, parent.name)
        : t("a run that is gone");
      const from =
        row.parent_step === null
          ? tx("varied from {parent}", { parent: link })
          : tx("forked from {parent}, step {step}", { parent: link, step: row.parent_step });
      parts.push(el("span", { class: "rs-lineage" }, from));
    }
    if (row.sweep) parts.push(pushButton("rs-link", t("sweep"), () => this.tickSweep(row.sweep)));
    if (row.starter)
      parts.push(
        el(
          "span",
          { class: "rs-lineage" },
          this.mine.has(row.id) ? t("started by you") : t("started by {who}", { who: row.starter }),
        ),
      );
    if (row.recording)
      parts.push(
        el("span", { class: "rs-chip" }, tp("chip", "Recording")),
        el("span", { class: "rs-recorded" }, row.recording),
      );
    if (row.archived) parts.push(el("span", { class: "rs-chip" }, t("archived")));
    for (const tag of row.tags.slice(0, MOST_TAGS)) parts.push(pushButton("rs-run-tag", tag, () => this.find(tag)));
    if (row.tags.length > MOST_TAGS) parts.push(el("span", {}, `+${row.tags.length - MOST_TAGS}`));
    if (row.remark) parts.push(el("span", { class: "rs-remark rs-cut", title: row.remark }, row.remark));
    return parts.length ? el("div", { class: "rs-run-about rs-flow" }, parts) : null;
  }

  tick(id, box) {
    if (box.checked && this.ticks.length >= MOST_TICKED) {
      box.checked = false;
      this.ticked(this.ticks, t("At most {MOST_TICKED} runs can be compared.", { MOST_TICKED }));
      return;
    }
    this.setTicks(box.checked ? [...this.ticks, id] : this.ticks.filter((own) => own !== id));
  }

  tickSweep(sweep) {
    const ids = [...this.rows.values()].filter((row) => row.sweep === sweep).map(({ id }) => id);
    this.setTicks(ids.slice(0, MOST_TICKED).reverse());
  }

  /** Tick exactly these runs. */
  setTicks(ids) {
    this.ticks = ids;
    for (const [id, node] of this.nodes) {
      const on = ids.includes(id);
      node.querySelector('[data-action="tick"]').checked = on;
      node.classList.toggle("rs-ticked", on);
    }
    this.ticked(ids, "");
  }

  /** "3 of 12 runs". */
  said(node) {
    const wanted = [...this.rows.values()].filter((row) => this.isWanted(row));
    const some = wanted.length;
    const recorded = some && wanted.every((row) => row.recording);
    const all = recorded ? counted(some, "recording") : counted(some, "run");
    setText(node, this.shown === some ? all : t("{shown} of {all}", { shown: this.shown, all }));
  }
}

const newest = (first, second) => second.created_at - first.created_at;
