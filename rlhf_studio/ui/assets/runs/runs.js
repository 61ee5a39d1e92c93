// The Runs page: a table of all runs that keeps itself up to date, and what may be done with each.
import { TakeHome } from "../export/take_home.js";
import { ask, forceStop } from "../shared/dialogs.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { NONE, counted, duration, integer, number, shortName } from "../shared/format.js";
import { handOver } from "../shared/handover.js";
import { Poller } from "../shared/poll.js";
import { isOnScreen, NO_ANSWER, onlyWatches, whenShown } from "../shared/visit.js";

const BUSY_WAIT = 2000;
const IDLE_WAIT = 5000;
const COLUMNS = ["Run", "State", "Recipe", "Model", "Steps", "Score", "Gold", "KL", "Time", "Started", ""];
const LABELS = { resume: "Resume", cancel: "Cancel", force_stop: "Force stop", rename: "Rename", delete: "Delete" };

/** "−0.31 → 1.42", or what there is of it. */
function fromTo(first, last) {
  return first === null || first === undefined || first === last
    ? number(last)
    : `${number(first)} \u2192 ${number(last)}`;
}

/** When a run started: the time today, else the day too. */
function moment(seconds, now) {
  if (!seconds) return NONE;
  const then = new Date(1000 * seconds);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (then.toDateString() === new Date(1000 * now).toDateString()) return time;
  return `${then.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

class RunsPage {
  constructor({ host, server, trigger, api }) {
    Object.assign(this, { host, server, trigger });
    this.takeHome = new TakeHome({ host, server, api });
    this.rows = [];
    this.version = "";
    this.operator = false;
    this.now = Date.now() / 1000;
    this.search = el("input", {
      type: "search",
      class: "rs-input rs-search",
      placeholder: "Search name, recipe, model or state",
      "aria-label": "Search runs",
      oninput: () => this.draw(),
    });
    this.count = el("span", { class: "rs-help", role: "status" });
    this.viewer = el("span", { class: "rs-help", hidden: true });
    this.lost = el("p", { class: "rs-message rs-problem", role: "status", hidden: true });
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "rs-run-table" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          COLUMNS.map((name) => el("th", { scope: "col" }, name || el("span", { class: "rs-hidden" }, "Actions"))),
        ),
      ),
      this.body,
    );
    this.none = el("p", { class: "rs-nothing", hidden: true }, "No run matches.");
    this.empty = el(
      "div",
      { class: "rs-no-runs", hidden: true },
      el("h2", {}, "No runs yet"),
      el("p", {}, "Press Start run on the Train page. The first recipe needs no download and takes about a minute."),
      el(
        "button",
        { type: "button", class: "rs-button rs-primary", onclick: () => this.trigger("go_train", {}) },
        "Go to Train",
      ),
    );
    this.list = el(
      "div",
      { hidden: true },
      el("div", { class: "rs-runs-tools" }, this.search, this.count, this.viewer),
      this.table,
      this.none,
    );
    fill(host, this.lost, this.list, this.empty);
    this.poll();
  }

  poll() {
    this.poller = new Poller({
      ask: () => this.server.runs({ version: this.version, view: onlyWatches() }),
      onreply: (reply) => this.receive(reply),
      onlost: (lost) => this.setLost(Boolean(lost)),
      awake: () => isOnScreen(this.host),
    });
    whenShown(this.host, () => this.poller.wake());
    this.poller.wake();
  }

  setLost(lost) {
    setText(this.lost, lost ? "The app does not answer. The table may be out of date; trying again." : "");
    show(this.lost, lost);
    this.table.classList.toggle("rs-stale", lost);
  }

  receive(reply) {
    this.now = reply.now;
    setText(this.lost, reply.problem || "");
    show(this.lost, Boolean(reply.problem));
    if (!reply.same && !reply.rows) return IDLE_WAIT;
    const roleChanged = this.operator !== reply.operator;
    this.operator = reply.operator;
    setText(this.viewer, reply.why_not);
    show(this.viewer, !reply.operator);
    if (!reply.same) {
      this.version = reply.version;
      this.rows = reply.rows;
    }
    if (!reply.same || roleChanged) this.draw();
    return this.rows.some((row) => row.alive || row.state === "queued") ? BUSY_WAIT : IDLE_WAIT;
  }

  get found() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.name, row.id, row.recipe, row.model, row.state].join(" ").toLowerCase();
    return this.rows.filter((row) => words.every((word) => text(row).includes(word)));
  }

  draw() {
    const rows = this.found;
    show(this.empty, !this.rows.length);
    show(this.list, this.rows.length > 0);
    show(this.none, !rows.length);
    show(this.table, rows.length > 0);
    const all = counted(this.rows.length, "run");
    setText(this.count, rows.length === this.rows.length ? all : `${rows.length} of ${all}`);
    const held = document.activeElement?.closest?.("[data-run]")?.dataset.run;
    const action = document.activeElement?.dataset?.action;
    fill(
      this.body,
      rows.map((row) => this.row(row)),
    );
    if (held && action) this.body.querySelector(`[data-run="${held}"] [data-action="${action}"]`)?.focus();
  }

  row(row) {
    const open = el(
      "a",
      { href: `?run=${row.id}`, "data-action": "open", onclick: (event) => this.open(event, row) },
      row.name,
    );
    const state = el(
      "span",
      { class: "rs-run-state", data: { state: row.state } },
      el("i", { "aria-hidden": "true" }),
      row.state,
    );
    const queue = row.queue_position
      ? el("small", {}, row.queue_position === 1 ? "next" : `number ${row.queue_position}`)
      : null;
    const note = row.silent
      ? "the engine does not answer"
      : row.state === "failed" || row.state === "interrupted"
        ? row.note
        : "";
    const cell = (label, ...content) => el("td", { "data-label": label }, ...content);
    const value = (label, text) => el("td", { "data-label": label, class: "rs-figure" }, text);
    return el(
      "tr",
      { data: { run: row.id } },
      cell("Run", open),
      cell("State", state, queue, note ? el("small", { class: "rs-cause", title: note }, note) : null),
      cell("Recipe", row.recipe || NONE),
      cell("Model", el("span", { class: "rs-model", title: row.model || "" }, shortName(row.model, NONE))),
      value("Steps", `${integer(row.step)}\u2009/\u2009${integer(row.total)}`),
      value("Score", fromTo(row.score_first, row.score_last)),
      value("Gold", fromTo(row.gold_first, row.gold_last)),
      value("KL", number(row.kl_last)),
      value("Time", duration(row.elapsed)),
      value("Started", moment(row.started_at || row.created_at, this.now)),
      el("td", { class: "rs-actions" }, this.actions(row)),
    );
  }

  actions(row) {
    const button = (action, label, onclick) =>
      el(
        "button",
        {
          type: "button",
          class: `rs-quiet ${action === "delete" ? "rs-delete" : ""}`,
          "data-action": action,
          "aria-label": `${label} ${row.name}`,
          onclick,
        },
        label,
      );
    const copy = button("settings", "Copy settings", () => this.copySettings(row));
    const home = button("export", "Take home", () => this.takeHome.open({ run: row.id, name: row.name }));
    if (!this.operator) return [copy, home];
    const own = row.actions.map((action) => button(action, LABELS[action], () => this[action](row)));
    const pick = (...wanted) => own.filter((node) => wanted.includes(node.dataset.action));
    return [...pick("delete"), ...pick("rename"), copy, home, ...pick("resume", "cancel", "force_stop")];
  }

  open(event, row) {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return; // the browser opens the address in a new window
    event.preventDefault();
    this.trigger("open_run", { run: row.id });
  }

  act(action, row, more) {
    this.trigger("act", { action, run: row.id, ...more });
  }

  async resume(row) {
    const answer = await this.wanted(this.server.resume_question({ run: row.id }));
    if (!answer) return;
    if (!answer.text) this.act("resume", row);
    else if (await ask(this.host, { ...answer, danger: true })) this.act("resume", row, { from_start: true });
  }

  cancel(row) {
    this.act("cancel", row);
  }

  async force_stop(row) {
    if (await forceStop(this.host, row.name)) this.act("force_stop", row);
  }

  async rename(row) {
    const name = await ask(this.host, {
      title: "Rename this run",
      confirm: "Rename",
      input: { label: "Name", value: row.name, maxlength: 120 },
    });
    if (name !== null) this.act("rename", row, { name });
  }

  async delete(row) {
    const answer = await this.wanted(this.server.loss({ run: row.id }));
    if (
      answer &&
      (await ask(this.host, { title: `Delete ${row.name}?`, text: answer.text, confirm: "Delete run", danger: true }))
    )
      this.act("delete", row);
  }

  /** The answer to something a person waits for; says what is wrong and gives null when there is none. */
  async wanted(question) {
    const answer = await question.catch(() => ({ problem: NO_ANSWER }));
    setText(this.lost, answer.problem || "");
    show(this.lost, Boolean(answer.problem));
    return answer.problem ? null : answer;
  }

  async copySettings(row) {
    const answer = await this.wanted(this.server.settings({ run: row.id }));
    if (!answer) return;
    handOver(answer, row.name);
    this.trigger("go_train", {});
  }

  /** Something was done: look at once. */
  refresh() {
    this.version = "";
    this.poller.wake();
  }
}

/** Draw the page into `host`; called once when the component appears. */
export function mount({ host, server, trigger, watch, api }) {
  const page = new RunsPage({ host, server, trigger, api });
  watch("value", () => page.refresh());
}
