// The Runs page: a table of all runs that keeps itself up to date, what may be done with each, and runs side by side.
import { loadPlotly } from "../charts/plot.js";
import { TakeHome } from "../export/take_home.js";
import { address } from "../shared/address.js";
import { ask, forceStop } from "../shared/dialogs.js";
import { debounce, el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { counted, neverBegan, readable } from "../shared/format.js";
import { handOver, rewardAddress } from "../shared/handover.js";
import { pageLink } from "../shared/links.js";
import { pagePoll } from "../shared/lost.js";
import { isOnScreen, NO_ANSWER, onlyWatches } from "../shared/visit.js";
import { CompareView, MOST_COMPARED, offers } from "./compare.js";
import { Forms, askMarks } from "./forms.js";
import { RowMenu } from "./menu.js";
import { openLog, openedLine } from "./open_log.js";
import { RunTable } from "./table.js";
import { isTwin, partners } from "./values.js";
import { t, tn } from "../shared/language.js";

const STOPS = { watched: t("Stop"), log: t("Stop following") };
const BUSY_WAIT = 2000;
const IDLE_WAIT = 5000;

const listOf = (text) => [...new Set((text || "").split(",").filter(Boolean))];

class RunsPage {
  constructor({ host, server, trigger, api, plotly }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.plotly = plotly;
    this.poll = pagePoll(host);
    this.runNews = this.poll.add({
      ask: () => server.runs({ version: this.version, view: onlyWatches() }),
      receive: (reply) => this.receive(reply),
    });
    this.takeHome = new TakeHome({ host, server, api, poll: this.poll });
    this.forms = new Forms({
      host,
      server,
      wanted: (question) => this.wanted(question),
      started: (made, from) => this.started(made, from),
      train: () => this.trigger("go_train", {}),
    });
    this.version = "";
    this.operator = false;
    this.prepare = debounce(300, (ids) => isOnScreen(this.table.node) && this.compareView.prepare(ids));
    this.rowMenu = new RowMenu(host);
    this.table = new RunTable({
      open: (row) => this.open(row),
      menu: (button, row) => this.menu(button, row),
      ticked: (ids, told) => this.ticked(ids, told),
      find: (text) => this.lookFor(text),
      other: () => this.afterDraw(),
    });
    this.compareView = new CompareView({
      host,
      server,
      plotly,
      poll: this.poll,
      back: () => this.goTo([], []),
      go: (ids, metrics, again) => (again ? this.goTo(ids, metrics) : this.say(ids, metrics, false)),
      open: (row) => this.open(row),
      rows: () => this.table.rows,
    });
    this.build();
    this.runNews.wake();
    address.watch("runs", (params) => this.follow(params, true));
    this.looks = 0; // how many more lists to wait for a run that another page asked for
    addEventListener("rlhf-studio:compare", () => {
      this.looks = 2; // an older list may be on its way
      this.takeTicks();
    });
    this.follow(address.params("runs"), false);
  }

  build() {
    this.search = el("input", {
      type: "search",
      class: "rs-input rs-search",
      placeholder: t("Search name, tag, model, state"),
      "aria-label": t("Search runs"),
      oninput: debounce(80, () => this.redraw()),
    });
    this.count = el("span", { class: "rs-help", role: "status" });
    this.viewer = el("span", { class: "rs-help", hidden: true });
    const problem = () => el("p", { class: "rs-message rs-problem", role: "status", hidden: true });
    this.problem = problem();
    this.refusal = problem();
    this.news = el("p", { class: "rs-message", role: "status", hidden: true });
    this.archived = el("input", { type: "checkbox", onchange: () => this.redraw() });
    this.archivedBox = el("label", { class: "rs-check" }, this.archived, t("Archived too"));
    const button = (label, act, look = "rs-button rs-small") => pushButton(look, label, act);
    this.log = button(t("Open a log"), () => this.openLog());
    this.compareButton = button(t("Compare"), () => this.compare(), "rs-button rs-small rs-primary");
    this.toCompare = el(
      "button",
      { type: "button", class: "rs-button rs-small", disabled: true },
      t("Compare: tick two"),
    );
    this.tickedText = el("span", { role: "status" });
    this.offers = el("div", { class: "rs-compare-offers rs-wrap", role: "group", "aria-label": t("Compare it with") });
    this.bar = el(
      "div",
      { class: "rs-compare-bar rs-flow rs-box", hidden: true },
      this.tickedText,
      this.offers,
      this.compareButton,
      button(t("Clear"), () => this.table.setTicks([])),
    );
    this.none = el("p", { class: "rs-nothing", hidden: true }, t("No run matches."));
    this.emptyLog = button(t("Open a log"), () => this.openLog());
    this.emptyMore = el("p", {}, t("The recordings below came with the program, and open like runs of your own."));
    this.empty = el(
      "div",
      { class: "rs-no-runs", hidden: true },
      el("h2", {}, t("No runs of your own yet")),
      el("p", {}, t("Press Start run on the Train page. The first recipe needs no download and takes about a minute.")),
      this.emptyMore,
      el(
        "div",
        { class: "rs-buttons-row rs-flow" },
        button(t("Go to Train"), () => this.trigger("go_train", {}), "rs-button rs-primary"),
        this.emptyLog,
      ),
    );
    this.list = el(
      "div",
      { class: "rs-runs-list", hidden: true },
      el(
        "div",
        { class: "rs-runs-tools rs-flow" },
        this.search,
        this.table.stageChoice,
        this.table.sorting,
        this.count,
        this.archivedBox,
        this.table.recordingsButton,
        this.table.chooser,
        this.log,
        this.toCompare,
        this.viewer,
      ),
      this.table.node,
      this.none,
      this.bar,
    );
    this.listView = el("div", {}, this.empty, this.list);
    fill(this.host, this.poll.notice, this.problem, this.refusal, this.news, this.listView, this.compareView.node);
  }

  /** Said in `place`: news of the table take nothing away of what a person asked for. */
  sayProblem(place, problem) {
    setText(place, problem || "");
    show(place, Boolean(problem));
  }

  receive(reply) {
    this.sayProblem(this.problem, reply.problem);
    if (!reply.same && !reply.rows) return IDLE_WAIT;
    this.operator = reply.operator;
    setText(this.viewer, reply.why_not);
    show(this.viewer, !reply.operator);
    show(this.log, reply.operator);
    if (!reply.same) {
      this.version = reply.version;
      const before = (id) => this.table.rows.get(id)?.state;
      const changed = reply.rows.filter(({ id, state }) => before(id) && before(id) !== state).map(({ id }) => id);
      this.table.receive(reply);
      const of = this.table.rows.get(this.menuOf);
      this.rowMenu.move(this.table.menuButton(this.menuOf), of ? this.itemsFor(of) : []);
      this.compareView.refresh(changed);
      this.compareView.drawWorst();
      this.afterDraw();
    }
    this.takeTicks();
    const busy = [...this.table.rows.values()].some((row) => row.alive || row.state === "queued");
    return busy ? BUSY_WAIT : IDLE_WAIT;
  }

  redraw() {
    this.table.archived = this.archived.checked;
    this.table.search(this.search.value);
    this.afterDraw();
  }

  afterDraw() {
    const rows = [...this.table.rows.values()];
    const none = rows.every((row) => row.recording);
    show(this.empty, none && !(rows.length && !this.operator));
    show(this.list, rows.length > 0);
    show(this.emptyMore, rows.length > 0);
    show(this.emptyLog, this.operator && !rows.length); // else it stands above the table
    show(this.none, rows.length > 0 && !this.table.shown);
    this.compareView.offerAnother();
    show(
      this.archivedBox,
      rows.some((row) => row.archived),
    );
    this.table.said(this.count);
  }

  lookFor(text) {
    this.search.value = text;
    this.redraw();
    this.search.focus();
  }

  // --- comparing ---

  ticked(ids, told) {
    show(this.bar, ids.length > 0);
    show(this.toCompare, !ids.length);
    const found = ids.length === 1 ? partners(this.table.rows, ids) : [];
    const count = counted(ids.length, "run");
    const words = found.length
      ? t("{count} ticked; tick another, or compare it with", { count })
      : t("{count} ticked", { count });
    setText(this.tickedText, told || words);
    setText(
      this.compareButton,
      ids.length < 2 ? t("Look at it alone") : tn("Compare {count} run", "Compare {count} runs", ids.length),
    );
    if (!ids.length) return;
    fill(
      this.offers,
      offers(found, (id) => (this.table.setTicks([...ids, id]), this.compare())),
    );
    loadPlotly(this.plotly).catch(() => null); // it is large: there when the charts need it
    this.prepare(ids);
  }

  /** Runs that another page asked to compare. */
  takeTicks() {
    const asked = memory.get("compare", null);
    if (!Array.isArray(asked) || !this.table.rows.size) return;
    const ids = asked.filter((id) => this.table.rows.has(id));
    if (ids.length < asked.length && this.looks-- > 0) {
      this.runNews.wake(); // a run that has just begun is not in this list yet
      return;
    }
    memory.set("compare", null);
    if (!ids.length) return;
    const ticked = [...new Set([...this.table.ticks, ...ids])];
    const others = ticked.length < 2 ? partners(this.table.rows, ticked).slice(0, 1) : [];
    this.table.setTicks([...ticked, ...others.map((row) => row.id)]);
    this.say(this.table.ticks, [], false); // the other page's click has made a place in the history already
    this.follow({ compare: this.table.ticks.join(","), metric: "" }, true);
  }

  compare() {
    this.goTo(this.table.ticks, []);
  }

  /** A new place: back leads to where the person was. */
  goTo(ids, metrics) {
    this.say(ids, metrics, true);
    this.follow({ compare: ids.join(","), metric: metrics.join(",") }, true);
  }

  say(ids, metrics, push) {
    address.put("runs", { compare: ids.join(","), metric: metrics.join(",") }, push);
  }

  /** Show what the address says. */
  follow({ compare, metric }, focus) {
    const ids = listOf(compare);
    const was = !this.compareView.node.hidden;
    this.rowMenu.close(false);
    show(this.compareView.node, ids.length > 0);
    show(this.listView, !ids.length);
    if (ids.length) show(this.news, false);
    if (ids.length) this.compareView.show(ids, listOf(metric), focus);
    else if (was && focus) (this.bar.hidden ? this.search : this.compareButton).focus();
    if (!ids.length) this.runNews.wake();
  }

  // --- what may be done with a run ---

  open(row) {
    this.trigger("open_run", { run: row.id });
  }

  menu(button, row) {
    this.menuOf = row.id;
    this.rowMenu.open(button, t("Actions for {name}", { name: row.name }), this.itemsFor(row));
  }

  itemsFor(row) {
    const own = this.operator || this.table.mine.has(row.id);
    const stop = () => this.trigger("stop_run", { run: row.id, view: onlyWatches() });
    const may = (action) => this.operator && row.actions.includes(action);
    const item = (label, act, action = "") => ((action ? may(action) : true) ? { label, act } : false);
    const groups = [
      [
        item(t("Open"), () => this.trigger("open_run", { run: row.id })),
        this.beside(row),
        item(t("Settings"), () => this.forms.settings(row)),
        item(t("Copy settings to Train"), () => this.copySettings(row), "copy"),
        this.operator &&
          row.stage === "reward_model" &&
          row.state === "finished" &&
          item(t("Try it"), () => location.assign(rewardAddress(row.id))),
        (this.operator || !row.recording) &&
          item(t("Send or save"), () => this.takeHome.open({ run: row.id, name: row.name })),
      ],
      [
        this.operator &&
          row.only_read && {
            label: t("Fork or variation"),
            why: t("This run {why}", { why: row.only_read }),
          },
        item(t("Suggested next"), () => this.forms.ideas(row), "follow"),
        item(t("Fork or variation"), () => this.forms.fork(row), "follow"),
        item(t("Another seed"), () => this.forms.seed(row, this.twins(row)), "follow"),
        item(t("Vary settings"), () => this.forms.vary(row), "follow"),
        item(neverBegan(row) ? t("Start again") : t("Resume"), () => this.resume(row), "resume"),
        item(t("Go on with more steps"), () => this.goOn(row), "go_on"),
        row.queue_position > 1 && item(t("Move up"), () => this.move(row, row.queue_position - 1), "move"),
        item(t("Move down"), () => this.move(row, row.queue_position + 1), "move"),
        item(t("Cancel"), () => this.act("cancel", row), "cancel"),
        own && !this.operator && row.state === "queued" && item(t("Take out of the queue"), stop),
        own && row.alive && row.may_stop && item(STOPS[row.kind] || t("Stop and save"), stop),
        item(t("Force stop"), () => this.forceStop(row), "force_stop"),
      ],
      [
        item(t("Rename"), () => this.rename(row), "rename"),
        item(t("Tags and note"), () => this.mark(row), "mark"),
        item(t("Archive"), () => this.act("archive", row), "archive"),
        item(t("Take out of the archive"), () => this.act("unarchive", row), "unarchive"),
      ],
      [may("delete") && { label: t("Delete"), act: () => this.delete(row), danger: true }],
    ];
    const filled = groups.map((group) => group.filter(Boolean)).filter((group) => group.length);
    return filled.flatMap((group, index) => (index ? [null, ...group] : group));
  }

  /** The runs that differ from one in the seed alone. */
  twins(row) {
    return [...this.table.rows.values()].filter((other) => isTwin(row, other));
  }

  /** What lays a run beside those that differ from it in the seed alone; false where there are none. */
  beside(row) {
    const twins = this.twins(row).filter(({ step }) => step > 0);
    if (!row.step || !twins.length) return false;
    const [{ seed }] = twins;
    const label = twins.length > 1 ? t("Compare all seeds") : t("Compare with seed {seed}", { seed });
    const ids = [row, ...twins].slice(0, MOST_COMPARED).map(({ id }) => id);
    return { label, act: () => this.goTo(ids, []) };
  }

  act(action, row, more) {
    this.trigger("act", { action, run: row.id, view: onlyWatches(), ...more });
  }

  move(row, to) {
    this.act("move", row, { to });
  }

  async resume(row) {
    const answer = await this.wanted(this.server.resume_question({ run: row.id, view: onlyWatches() }));
    if (!answer) return;
    if (!answer.text) this.act("resume", row);
    else if (await ask(this.host, { ...answer, danger: true })) this.act("resume", row, { from_start: true });
  }

  async forceStop(row) {
    if (await forceStop(this.host, row.name)) this.act("force_stop", row);
  }

  async goOn(row) {
    const steps = await ask(this.host, {
      title: t("How many more steps?"),
      text: t("The run has {total}. It goes on from its last checkpoint, with the same settings.", {
        total: row.total,
      }),
      confirm: t("Go on"),
      input: { label: t("Steps to add"), value: String(row.total), maxlength: 7 },
    });
    if (steps === null) return;
    const wanted = /^\d+$/.test(steps.trim()) ? row.total + Number(steps) : steps;
    const reply = await this.wanted(
      this.forms.send({ run: row.id, how: "more steps", changes: { "ppo.steps": wanted } }),
    );
    if (reply) this.refresh();
  }

  async rename(row) {
    const name = await ask(this.host, {
      title: t("Rename this run"),
      confirm: t("Rename"),
      input: { label: t("Name"), value: row.name, maxlength: 120 },
    });
    if (name !== null) this.act("rename", row, { name });
  }

  async mark(row) {
    const marks = await askMarks(this.host, row);
    if (marks) this.act("mark", row, marks);
  }

  async delete(row) {
    const answer = await this.wanted(this.server.loss({ run: row.id }));
    if (
      answer &&
      (await ask(this.host, {
        title: t("Delete \u201c{name}\u201d?", { name: row.name }),
        text: answer.text,
        confirm: t("Delete run"),
        danger: true,
      }))
    )
      this.act("delete", row);
  }

  async openLog() {
    const opened = await openLog(this.host, this.server);
    if (!opened) return;
    this.tell(...openedLine(opened));
    this.refresh();
  }

  /** Runs were queued: what they come to is seen beside the run that they follow from, as soon as they have steps. */
  started({ runs, names }, from) {
    const queued = t("Queued: {names}", { names: names.map((name) => readable(name, 120)).join("; ") });
    const name = readable(this.table.rows.get(from)?.name ?? from, 80);
    const label = tn("Compare it with {name}", "Compare them with {name}", runs.length, { name });
    const compare = [from, ...runs].join(",");
    const link = !runs.includes(from) && pageLink(label, "runs", { compare }, "rs-link rs-opened");
    this.tell(...[queued, link && [". ", link]].filter(Boolean).flat());
    this.refresh();
  }

  tell(...words) {
    fill(this.news, ...words);
    show(this.news, true);
    this.news.scrollIntoView({ block: "nearest" }); // the row that it is about may be far below
  }

  /** The answer to something a person waits for; says what is wrong and gives null when there is none. */
  async wanted(question) {
    const answer = await question.catch(() => ({ problem: NO_ANSWER }));
    this.sayProblem(this.refusal, answer.problem);
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
    this.runNews.wake();
  }
}

/** Draw the page into `host`; called once when the component appears. */
export function mount({ host, server, trigger, watch, api, plotly }) {
  const page = new RunsPage({ host, server, trigger, api, plotly });
  watch("value", () => page.refresh());
}
