// The Live page: it asks the server for news of one run again and again, and gives each part what concerns it.
// The script in ui/html.py calls mount().
import { loadPlotly, whenThemeChanges } from "../charts/plot.js";
import { TakeHome } from "../export/take_home.js";
import { Answers } from "./answers.js";
import { ChartPanel } from "./chart_panel.js";
import { address } from "../shared/address.js";
import { ask } from "../shared/dialogs.js";
import { el, fill, memory, show } from "../shared/dom.js";
import { Ending } from "./ending.js";
import { EventPanel } from "./events.js";
import { readable } from "../shared/format.js";
import { Guide } from "./guide.js";
import { handOver } from "../shared/handover.js";
import { Banner, Header, Restart, bannerOf } from "./header.js";
import { LearnedPanel } from "./learned.js";
import { pagePoll } from "../shared/lost.js";
import { RecordedReplay } from "../replay/recorded.js";
import { notices } from "../shared/notices.js";
import { OPENING, withLimit } from "../shared/poll.js";
import { isOnScreen, NO_ANSWER, Once, onlyWatches, reloadAfterRestart } from "../shared/visit.js";
import { Measures } from "./measures.js";
import { LiveReplay } from "./replay.js";
import { SettingsPanel } from "./settings.js";
import { applyStage, isAlive } from "./stage.js";
import { SeriesStore } from "./store.js";
import { Tiles } from "./tiles.js";
import { mountTips, setGlossary, setInWords } from "../shared/tips.js";
import { Verdict } from "./verdict.js";
import { Empty, Waiting } from "./waiting.js";
import { choiceOf, WorkArea } from "./work.js";
import { t } from "../shared/language.js";

const NOWHERE = { version: "", epoch: -1, step: -1, event: 0 }; // the position of a page that knows nothing of its run
const OPENING_WAIT = 150;
const IDLE_WAIT = 3000;
const MOST_POINTS = 6000;
const MARKED = new Set(["setting", "resume"]);

/** Whether more is to come of a run in this state. */
const isAhead = (state) => isAlive(state) || state === "queued";

class LivePage {
  constructor(options, page, begun) {
    this.begun = begun;
    this.host = options.host;
    this.server = options.server;
    this.trigger = options.trigger;
    this.api = options.api;
    this.props = options.props;
    this.watch = options.watch;
    this.plotly = options.plotly;
    this.page = page;
    this.store = new SeriesStore();
    this.run = "";
    this.jumps = false;
    this.fetch = this.fetch.bind(this);
    this.poll = pagePoll(this.host, {
      meanwhile: () => this.meanwhile(),
      onlost: (lost) => lost && this.restart.lost(),
      onfailure: () => reloadAfterRestart(this.api, () => this.server.poll({ run: "", view: true })),
      follows: () => Boolean(this.run) && isAhead(this.lastState),
    });
    this.news = this.poll.add({
      ask: () => this.firstNews() || this.server.poll(this.question()),
      receive: (reply) => this.receive(reply),
    });
    this.build();
    this.start();
  }

  build() {
    const { page } = this;
    this.once = new Once();
    this.replay = new LiveReplay({
      ask: (question) => this.server.replay(question),
      has: (step) => this.settings?.advantage === "gae" && this.work.picker.has(step),
      moved: (push) => this.keepChoice(push),
      film: page.replay,
      like: () => this.startLike(),
    });
    this.header = new Header((event, more) => this.steer(event, more), page.steered, this.replay.button);
    const home = new TakeHome({ host: this.host, server: this.server, api: this.api, poll: this.poll });
    this.ending = new Ending({
      host: this.host,
      server: this.server,
      trigger: this.trigger,
      run: () => ({ ...this.status, critic: this.settings?.advantage === "gae" }),
      film: page.replay,
      vary: (where) => this.vary(where),
      takeHome: ({ run, name }) => home.open({ run, name }),
      tell: (problem) => this.banner.say(problem),
      queued: () => this.news.wake(),
      open: (run) => this.open(run, {}),
      replay: () => this.replay.open(),
      response: {
        step: () => this.work.picker.newest(),
        best: () => this.store.has("objective/scores"),
        look: () => this.lookAtNewest(),
      },
    });
    this.banner = new Banner(this.ending);
    this.restart = new Restart();
    this.verdict = new Verdict({
      fetch: this.fetch,
      go: (place) => this.go(place),
      fork: (data) => this.fork(data),
      mend: (changes) => this.mend(changes),
      title: (name) => page.settings[name] || name,
      saved: () => this.status.checkpoints.map((point) => point.step),
    });
    this.tiles = new Tiles(page.tiles, (metric) => this.chartPanel.reveal(metric));
    this.chartPanel = new ChartPanel(page.charts, this.store, this.host);
    this.charts = this.chartPanel.charts;
    this.work = new WorkArea({ page, fetch: this.fetch, onchoice: () => this.keepChoice() });
    this.guide = new Guide({ work: this.work, fetch: this.fetch, go: (place) => this.goTo(place) });
    this.answers = new Answers(this.fetch, page.quantities);
    this.learned = new LearnedPanel(this.fetch, (place) => this.go(place));
    this.measures = new Measures(this.fetch);
    this.settingsPanel = new SettingsPanel(this.fetch, page);
    this.events = new EventPanel(this.fetch);
    const film = (words) =>
      new RecordedReplay({ ask: (question) => this.server.replay(question), run: page.replay, words });
    this.waiting = new Waiting(film, this.fetch);
    this.content = el(
      "div",
      { class: "rs-content" },
      this.tiles.node,
      this.waiting.node,
      el("div", { class: "rs-story" }, this.charts.first, this.learned.node, this.answers.node),
      this.measures.node,
      this.work.node,
      this.chartPanel.node,
      this.settingsPanel.node,
      this.events.node,
    );
    this.scene = el("div", { class: "rs-scene rs-column" }, this.verdict.node, this.banner.node);
    this.main = el(
      "div",
      { class: "rs-main", hidden: true },
      this.header.node,
      this.replay.node,
      this.scene,
      this.guide.offered,
      this.content,
    );
    this.empty = new Empty(this.trigger, film, (run) => (address.put("live", { run }, true), this.open(run, {})));
    this.opening = el("p", { class: "rs-hint" }, t("Opening the run"));
    fill(this.host, this.opening, this.poll.notice, this.main, this.empty.node);
    mountTips();
  }

  /** Send a button's event; gives false when the person went back. Only Resume can have a question. */
  async steer(event, more = {}) {
    const run = this.run;
    if (event === "resume_run") {
      // no answer: go on without a question; if the run cannot be resumed, the event says why
      const answer = await this.server.resume_question({ run, view: onlyWatches() }).catch(() => ({}));
      if (answer.text && !(await ask(this.host, { ...answer, danger: true }))) return false;
      if (answer.text) more.from_start = true;
    }
    this.trigger(event, { run, view: onlyWatches(), ...more });
    return true;
  }

  /** Start the run that a finding advises, from a checkpoint or (step null) from the beginning, and open it. */
  async fork({ run, step, changes }) {
    if (run !== this.run) return; // a finding of a run that is no longer shown
    this.banner.say("");
    const how = step === null ? "variation" : "fork";
    const reply = await this.ending.start({ how, step, changes });
    if (run !== this.run) return; // the person has gone on to another run
    if (reply.problem) this.banner.say(readable(reply.problem, 600));
    else this.open(reply.runs[0], {});
  }

  /** Start a run like the recording of a judge that is fooled; the server's answer shows it. */
  startLike() {
    const wanted = { ...this.page.like_it, view: onlyWatches() };
    const nonce = this.once.nonce(wanted);
    this.once.answered(nonce); // a second click, later, is a second wish
    this.trigger("start_like", { ...wanted, nonce });
  }

  /** Stop a run that has collapsed, as Stop does, and start the one that its alarms advise. */
  async mend(changes) {
    if (!this.status.stop_asked) this.trigger("stop_run", { run: this.run, view: onlyWatches() });
    await this.fork({ run: this.run, step: null, changes });
  }

  /** Show a place that a finding or a phrase points at: a metric's chart, or a response and its token or phrase. */
  go({ step = null, sample = null, token = null, phrase = null, metric = "" }) {
    if (metric) this.chartPanel.reveal(metric);
    if (step === null || (metric && sample === null)) return;
    this.goTo({ step, sample, token, phrase });
    if (!metric) this.work.node.scrollIntoView({ block: "start" });
  }

  /** Show a response that something on the page points at, as a new place: back leads to what was shown before. */
  goTo(place) {
    this.jumps = true;
    const shown = this.work.go(place);
    this.jumps = false;
    return shown;
  }

  /** Show the response with the best score of the newest step that has some. */
  async lookAtNewest() {
    const step = this.work.picker.newest();
    const reply = await this.fetch({ kind: "samples", step, sample: -1 });
    if (reply?.chosen) this.go({ step, sample: reply.chosen.sample });
  }

  /** Back and forward: another run, or another place in this one. */
  follow(params) {
    const run = params.run || params.replay || "";
    if (!this.status || run !== this.run) return this.open(run, choiceOf(params), params);
    this.replay.follow(params);
    return this.work.restore(choiceOf(params));
  }

  start() {
    const asked = runOfValue(this.props.value);
    const there = address.params("live");
    this.watch("value", () => {
      const wanted = runOfValue(this.props.value);
      if (wanted) this.open(wanted, {});
    });
    document.addEventListener("keydown", (event) => {
      const free =
        event.target === document.body || (this.host.contains(event.target) && !this.work.node.contains(event.target));
      if (!free || this.host.offsetParent === null || event.defaultPrevented) return;
      if (!this.replay.onkey(event)) this.work.onkey(event, false);
    });
    whenThemeChanges(() => this.charts.update());
    this.clock = setInterval(() => this.tick(), 1000);
    addEventListener("rlhf-studio:around", () => this.news.wake());
    address.watch("live", (params) => this.follow(params));
    if (asked) this.open(asked, {});
    else this.open(there.run || there.replay || "", choiceOf(there), there);
  }

  /** The news that were asked for before this page was built, where they are of the run that is opened first. */
  firstNews() {
    const { begun, run } = this;
    this.begun = null;
    if (begun?.run !== run) return null;
    this.asked = run;
    return begun.news;
  }

  /** What a poll sends: where this page stands. */
  question() {
    const { run, insight, position } = this;
    this.asked = run;
    return { run, view: onlyWatches(), insight, ...position, ...this.work.followed() };
  }

  tick() {
    if (!this.host.isConnected) {
      clearInterval(this.clock); // Gradio took the page away; a new one is mounted when it comes back
      this.poll.stop();
    } else if (document.visibilityState === "visible" && this.status) {
      this.header.tick(this.serverNow());
      this.waiting.tick(this.serverNow());
    }
  }

  /** Show a run from its beginning; `params` are those of the address that led to it. */
  open(run, choice, params = {}) {
    this.run = run;
    this.lastState = "";
    this.status = null;
    this.settings = null;
    this.ranges = [];
    this.store.reset();
    this.position = { ...NOWHERE };
    this.charts.run = run;
    this.charts.marks = [];
    this.work.reset(choice);
    this.insight = "";
    this.banner.say("");
    this.verdict.reset(run);
    this.learned.reset();
    this.measures.reset();
    this.answers.reset();
    this.settingsPanel.reset();
    this.events.reset();
    this.replay.reset(run, params);
    this.keepChoice();
    show(this.main, false);
    this.news.wake();
  }

  serverNow() {
    return Date.now() / 1000 + (this.clockOffset || 0);
  }

  async fetch(request) {
    const run = this.run;
    try {
      const reply = await withLimit(this.server.fetch({ ...request, run }), OPENING);
      return run === this.run ? reply : null;
    } catch (error) {
      console.debug("no answer from the app:", error);
      return null;
    }
  }

  /** One poll reply. Returns the milliseconds until the next poll, or nothing for the usual time. */
  receive(reply) {
    if (this.asked !== this.run) return undefined; // another run was opened meanwhile, and is asked for next
    show(this.opening, Boolean(reply.opening) && !this.status && this.empty.node.hidden);
    if (reply.opening) return OPENING_WAIT;
    if (!this.run) return this.receiveListing(reply);
    if (reply.run !== this.run || reply.missing)
      return this.say(
        t("This run is not here"),
        t("It was deleted, or the address is wrong. Runs lists what there is."),
        IDLE_WAIT,
      );
    if (reply.problem) return this.say(t("This run cannot be shown"), reply.problem, IDLE_WAIT);
    if (this.status && !isOnScreen(this.host)) return this.glance(reply);
    this.clockOffset = reply.now - Date.now() / 1000;
    this.operator = reply.operator;
    this.steers = reply.operator || Boolean(reply.owns);
    this.starts = reply.starts;
    this.header.limit = reply.owns ? Number(document.body.dataset.limit || 0) : 0;
    this.header.whyNot(reply.why_not);
    if (reply.same) this.work.retry();
    else this.takeIn(reply);
    this.answers.follow(this.watched);
    if (reply.insight !== undefined) {
      this.insight = reply.insight;
      this.verdict.update(reply.verdict, this.status.state === "failed");
      this.store.directions = reply.verdict?.directions || {};
      this.tiles.update(this.store, this.settings, this.status);
    }
    for (const panel of [this.verdict, this.learned, this.measures]) panel.follow(this.insight);
    const newest = isAlive(this.status.state) ? this.store.lastStep : 0; // what is said of an ended run is of all of it
    for (const panel of [this.verdict, this.learned]) panel.date(newest);
    if (this.insight) this.work.compare(); // the verdict first: both are made by one thread
    this.verdict.allow(reply.operator && !this.status.only_read);
    this.showStatus();
    if (memory.get("around", false)) return this.around();
    return isAhead(this.status.state) ? undefined : IDLE_WAIT;
  }

  /** Show somebody around who asked for it in the menu: in a recording where this run has no tokens, or is broken. */
  around() {
    const { around } = this.page;
    const bare = this.status.stage !== "ppo" || !this.ranges.length || !this.status.keeps_model;
    const broken = this.verdict.broken || this.verdict.verdict?.kind === "exploiting the reward";
    if ((bare || broken || this.status.state === "failed") && this.run !== around) this.open(around, {});
    else if (!this.verdict.verdict && this.run !== around)
      return OPENING_WAIT; // on its way
    else if (this.work.inspector.sample) {
      memory.set("around", false);
      this.guide.open();
    }
    return OPENING_WAIT;
  }

  /** News while nobody sees the page: only the title changes. The page catches up when it is seen again. */
  glance({ status }) {
    if (!status) return;
    this.lastState = status.state;
    notices.show(status);
  }

  takeIn(reply) {
    const { status } = reply;
    const failedNow = status.state === "failed" && this.status?.state !== "failed";
    this.status = status;
    if (status.stage !== this.stage) applyStage(this, (this.stage = status.stage));
    this.host.dataset.unit = this.charts.unit = status.unit;
    if (reply.settings) this.settings = reply.settings;
    this.ranges = reply.sample_steps;
    this.samples = reply.samples;
    this.store.apply(reply.series, reply.full, reply.last_step, status.last, status.first);
    this.position = {
      version: reply.version,
      epoch: reply.epoch,
      step: reply.last_step,
      event: reply.events.at(-1)?.id ?? this.position.event,
    };
    if (this.store.points > MOST_POINTS) this.position.step = -1; // the next reply brings a thinned copy of everything
    this.events.update(reply.events, reply.full);
    const marks = reply.events
      .filter((event) => MARKED.has(event.kind) && event.step > 0)
      .map((event) => ({ step: event.step, text: event.text }));
    this.charts.marks = reply.full ? marks : [...this.charts.marks, ...marks];
    this.charts.settings = this.settings;
    if (failedNow) this.events.open("log");
    this.showNews();
  }

  showNews() {
    const begun = this.store.lastStep > 0; // step 0 is what was measured before training
    for (const node of [this.verdict.node, this.tiles.node, this.learned.node, this.chartPanel.node]) show(node, begun);
    for (const node of this.charts.first) if (!begun) show(node, false);
    this.tiles.update(this.store, this.settings, this.status);
    if (begun) {
      this.chartPanel.suggestSmoothing(this.store.points);
      this.chartPanel.offerAxes();
      this.chartPanel.offer(this.stage, isAlive(this.status.state));
      this.charts.update();
      loadPlotly(this.plotly).then(
        () => this.drawn || ((this.drawn = true), this.charts.update()),
        (error) => console.error(error),
      );
    }
    this.work.update({
      ranges: this.ranges,
      samples: this.samples,
      epoch: this.position.epoch,
      settings: this.settings,
      unit: this.status.unit,
      alive: isAlive(this.status.state),
      waiting: this.status.state === "paused" ? this.position.version : "",
    });
  }

  /** What the watched answers depend on: empty while there are none. */
  get watched() {
    const { state, step } = this.status;
    const watched = Math.floor(step / (this.settings?.watch_every || 1));
    return state === "queued" ? "" : `${this.run}:${this.position.epoch}:${watched}:${step > 0}:${state}`;
  }

  showStatus() {
    const { status } = this;
    show(this.empty.node, false);
    show(this.main, true);
    this.host.dataset.state = this.lastState = status.state;
    notices.show(status);
    this.header.update(status, this.steers, this.serverNow(), this.settingsNow());
    const { operator, steers } = this;
    // of a failure its cause counts most
    const first = status.state === "failed" ? this.banner.node : this.verdict.node;
    if (this.scene.firstChild !== first) this.scene.prepend(first);
    status.verdict = this.verdict.verdict?.kind; // what ends the run leads to what explains it
    status.lesson = this.verdict.verdict?.lesson;
    this.banner.update(bannerOf(status, { operator, steers, coming: this.restart.isUnderWay(status) }));
    this.waiting.update(status, this.store.lastStep < 1, this.settings, this.serverNow());
    this.replay.offer(status, !isAhead(status.state), (metric) => this.store.has(metric), this.starts);
    const { inspector } = this.work;
    const whole = status.keeps_model && status.stage === "ppo"; // others record a part of what it tells
    this.guide.allow(whole);
    const { broken } = this.verdict;
    const alive = steers && isAlive(status.state);
    this.verdict.offer(alive && operator && !status.only_read && !status.stop_asked);
    this.guide.offer(status.run, alive && whole && !broken && Boolean(inspector.sample));
  }

  /** The settings as they are now: an adaptive controller moves the KL coefficient by itself. */
  settingsNow() {
    const moved = this.settings?.kl_target ? this.store.last("objective/kl_coef") : null;
    if (moved === null) return this.settings;
    return { ...this.settings, steered: { ...this.settings.steered, "ppo.kl_coef": Number(moved.toPrecision(3)) } };
  }

  /** Open the form with this run's settings at `field`; for a `failed` run, where its cause or a finding points. */
  async vary({ failed = false, field = "" }) {
    const { name, run, cause, blamed } = this.status;
    const answer = await this.fetch({ kind: "settings" });
    if (!answer || answer.problem) return this.banner.say(answer?.problem || NO_ANSWER);
    const marked = failed ? blamed || (await this.verdict.suspect()) : field;
    handOver(answer, name || run, marked, failed ? cause : "");
    return this.trigger("open_train", {});
  }

  receiveListing(reply) {
    const around = memory.get("around", false) && this.page.around;
    if (reply.newest || around) {
      this.open(reply.newest || around, {});
      return OPENING_WAIT;
    }
    show(this.main, false);
    notices.none();
    this.empty.none(reply.recordings, reply.operator);
    return undefined;
  }

  say(title, text, wait) {
    show(this.main, false);
    this.lastState = "";
    notices.none();
    this.empty.say(title, text);
    return wait;
  }

  /** What does not need this page. Whether a run goes on is not known: the app may have ended, and its runs with it. */
  meanwhile() {
    const free = this.status && isAlive(this.status.state) && !this.status.stop_asked;
    return free ? t("The run does not need this page.") : "";
  }

  /** The choice lives in the address: a reload or a link shows the same token. Back leads to what was before. */
  keepChoice(push = false) {
    const { step, sample, token } = this.work.choice;
    const before = address.params("live").run;
    const other = Boolean(before && this.run && before !== this.run);
    const place = { run: this.run, step, sample, token, ...this.replay.params };
    address.put("live", place, other || this.jumps || push);
  }
}

const runOfValue = (value) =>
  typeof value === "string" && value.includes("@") ? value.slice(0, value.lastIndexOf("@")) : "";

/** Ask for the news of the run that the address names while the page is on its way: {run, news}, null without one. */
function beginNews({ server, props }) {
  const { run: named, replay, step, sample } = address.params("live");
  const run = runOfValue(props.value) || named || replay;
  if (!run) return null;
  const follows = step || sample ? {} : { follows: -1 };
  const news = server.poll({ run, view: onlyWatches(), insight: "", ...NOWHERE, ...follows });
  news.catch(() => {}); // whoever takes the news hears of it
  return { run, news };
}

export async function mount(options) {
  const { host, server } = options;
  const poll = pagePoll(host);
  fill(host, poll.notice);
  const begun = beginNews(options);
  const page = await poll.first(() => server.fetch({ kind: "page" }));
  poll.stop();
  setGlossary(page.glossary);
  setInWords(page.in_words);
  return new LivePage(options, page, begun);
}
