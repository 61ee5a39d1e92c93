// The Talk page: two policies answer one prompt side by side, token by token.
import { address } from "../shared/address.js";
import { RewardPlayground } from "../playground/playground.js";
import { el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { pagePoll } from "../shared/lost.js";
import { ColourChoice } from "../shared/answers.js";
import { firstOne } from "../pictures/recorded.js";
import { Segments } from "../shared/segments.js";
import { NO_ANSWER, onlyWatches, whyNot } from "../shared/visit.js";
import { Chooser } from "./chooser.js";
import { Composer } from "./composer.js";
import { Exchange, followJob, invitation } from "./exchange.js";
import { clauses, t, tp } from "../shared/language.js";

const LOOK_AGAIN = 10000; // milliseconds between two looks at which runs there are
const MOST_KEPT = 10;
const NOT_YET = t("The run you asked for has no checkpoint yet. It is shown here as soon as it has one.");

class TalkPage {
  constructor({ host, server, trigger, props }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.props = props;
    this.exchanges = [];
    this.running = null;
    this.warmed = "";
    this.listed = [];
    this.awaited = "";
    this.student = null; // what a student of a class may ask
    this.opened = this.reward = ""; // the runs that the two parts were opened for
    this.asked = address.params("talk").talk || ""; // by the first address, which may change before the runs are known
    this.known = new Map();
    this.problem = el("p", { class: "rs-message rs-problem", role: "status", hidden: true });
    this.noTalk = el("p", { class: "rs-muted" });
    this.toTrain = el(
      "div",
      {},
      firstOne(
        pushButton("rs-button rs-primary", t("Train a first run"), () => trigger("talk_train", {})),
        t("A run can answer you once it has written a checkpoint. The tiny world trains in about a minute."),
      ),
    );
    this.example = el("section", { class: "rs-talk-example-of rs-column", "aria-label": t("Recorded example") });
    this.empty = el(
      "div",
      { class: "rs-talk-empty rs-column", hidden: true },
      el("h2", {}, t("No policy to talk to yet")),
      this.toTrain,
      this.noTalk,
      this.example,
    );
    this.build();
    this.poll = pagePoll(host);
    this.runNews = this.poll.add({
      ask: () => server.boot({ view: onlyWatches() }),
      receive: (reply) => this.receive(reply),
    });
    this.policyView = el("div", {}, this.problem, this.empty, this.body);
    this.playground = new RewardPlayground(server, this.poll);
    this.viewChoice = this.views();
    fill(host, this.poll.notice, this.viewChoice.node, this.policyView, this.playground.node);
    this.runNews.wake();
  }

  build() {
    this.classNote = el("p", { class: "rs-help", hidden: true });
    const policies = (run) => this.policies(run);
    const chosen = () => {
      this.awaited = "";
      this.say("");
      this.changed();
    };
    this.left = new Chooser(t("Left"), policies, chosen);
    this.right = new Chooser(t("Right"), policies, chosen);
    this.composer = new Composer({ ask: () => this.ask(), stop: () => this.stop(), warm: () => this.warm() });
    const onchoice = (quantity) => this.exchanges.forEach((exchange) => exchange.colour(quantity));
    this.colour = new ColourChoice({ key: "talk-colour", first: "kl", label: t("Colour tokens by"), onchoice });
    const words = el("span", { class: "rs-help" }, this.colour.label);
    this.colours = el("div", { class: "rs-talk-colours rs-flow", hidden: true }, words, this.colour.node);
    this.log = el("div", { class: "rs-talk-log rs-column" }, invitation());
    this.body = el(
      "div",
      { class: "rs-talk-body rs-column", hidden: true },
      el("h2", { class: "rs-hidden" }, t("Talk to policies")),
      this.classNote,
      el("div", { class: "rs-talk-sides" }, this.left.node, this.right.node),
      this.colours,
      this.log,
      this.composer.node,
    );
  }

  /** The two parts of the page: policies that answer, and a reward model that scores. */
  views() {
    const options = [
      { value: "policies", label: t("Policies") },
      { value: "reward", label: t("Reward model") },
    ];
    // a link leads to the policies of a run
    const chosen = this.wanted() ? "policies" : memory.get("talk-view", "policies");
    this.turn(chosen);
    return new Segments({ class: "rs-segments rs-talk-views", "aria-label": t("Talk to") }, options, chosen, (view) => {
      memory.set("talk-view", view);
      this.turn(view);
      this.tellAddress();
    });
  }

  turn(view) {
    show(this.policyView, view === "policies");
    show(this.playground.node, view === "reward");
  }

  /** The address leads to the part that is shown. */
  tellAddress() {
    const talk = this.awaited || this.opened || this.wanted();
    address.put("talk", this.policyView.hidden ? { reward: this.reward } : { talk });
  }

  /** Show one of the two parts, as if a person had chosen it. */
  choose(view) {
    memory.set("talk-view", view);
    this.viewChoice.show(view);
    this.turn(view);
  }

  /** Another page leads to the policies of a run. */
  openPolicies(run) {
    this.choose("policies");
    this.open(run);
  }

  /** Another page leads to the reward model that a run has trained. */
  tryReward(run) {
    this.choose("reward");
    this.reward = run;
    this.tellAddress();
    this.playground.choose(run);
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }

  receive(reply) {
    this.say(reply.problem || "");
    if (reply.problem) return LOOK_AGAIN;
    this.words = reply.glossary;
    this.colour.offer(reply.quantities);
    show(this.empty, !reply.runs.length);
    if (!reply.runs.length) this.showExample(reply.replay);
    show(this.body, reply.runs.length > 0);
    show(this.toTrain, !reply.why_not);
    const why = reply.students ? reply.students.why : reply.why_not;
    setText(this.noTalk, why);
    show(this.noTalk, Boolean(why));
    this.setStudent(reply.students);
    if (this.locked !== why) this.composer.lock(why, reply.students ? "" : why); // students read it above
    this.locked = why;
    const runs = JSON.stringify(reply.runs.map(({ id, name, step, state, broken }) => [id, name, step, state, broken]));
    if (runs !== this.runs) this.setRuns(reply.runs);
    this.runs = runs;
    if (this.awaited) this.say(NOT_YET);
    return LOOK_AGAIN;
  }

  /** Once, and only where there is nothing of one's own to show. */
  async showExample(run) {
    if (this.exampled) return;
    this.exampled = true;
    try {
      const { showExample } = await import("./example.js");
      await showExample(this.example, this.server.replay, run);
    } catch (error) {
      console.error(error);
      this.exampled = false; // asked again with the next news
    }
  }

  /** A student asks the run that the teacher has chosen, with that run's own sampling. */
  setStudent(told) {
    const run = this.student?.run;
    this.student = told?.run ? told : null;
    for (const chooser of [this.left, this.right]) chooser.fix(this.student !== null);
    this.composer.brief(this.student);
    const on = t(
      "Your teacher lets you ask a model. Left answers as it was before training, right as it is now, each with at " +
        "most {tokens} tokens. One question at a time.",
      { tokens: told?.tokens },
    );
    show(this.classNote, Boolean(told));
    setText(this.classNote, told?.why || on);
    if (!this.student) return;
    if (run !== told.run && this.listed.length) this.open(told.run);
  }

  /** The function that tells of a job, and the one that ends it. */
  get news() {
    return this.student ? this.server.student_news : this.server.news;
  }

  get quantity() {
    return this.colour.quantity;
  }

  setRuns(runs) {
    this.known.clear(); // there may be newer checkpoints
    this.listed = runs.map(({ id }) => id);
    for (const chooser of [this.left, this.right]) chooser.setRuns(runs);
    if (!runs.length) return;
    const asked = this.opened ? this.awaited : this.wanted();
    if (this.listed.includes(asked)) this.open(asked);
    else if (!this.opened) {
      this.open(runs.find(({ first }) => first).id);
      this.awaited = asked;
    } else for (const chooser of [this.left, this.right]) chooser.open(chooser.run.value, null);
  }

  /** The run that the address, or another page, asks for. */
  wanted() {
    if (this.student) return this.student.run;
    return runOf(this.props.value) || address.params("talk").talk || this.asked;
  }

  /** Show a run, once it is in the list: its start on the left, its newest checkpoint on the right. */
  async open(run) {
    const here = this.listed.includes(run);
    this.awaited = here ? "" : run;
    if (!here) {
      this.runNews.wake(); // the list may be older than the run's first checkpoint
      return;
    }
    this.say("");
    this.opened = run;
    this.tellAddress();
    await Promise.all([this.left.open(run, "start"), this.right.open(run, "newest")]);
    if (this.isReady) this.changed();
  }

  async policies(run) {
    if (!this.known.has(run))
      this.known.set(
        run,
        this.server.policies({ run }).catch(() => ({ problem: NO_ANSWER })),
      );
    const known = await this.known.get(run);
    if (!known.problem) return known;
    this.known.delete(run);
    this.composer.fail(known.problem);
    return null;
  }

  changed() {
    if (this.right.known) this.composer.setRun(this.right.known);
    if (this.locked) this.composer.lock(this.locked, this.classNote.hidden ? this.locked : "");
    this.composer.fail("");
  }

  /** Whether both sides know their run's checkpoints. */
  get isReady() {
    return this.left.isReady && this.right.isReady;
  }

  get sides() {
    return [this.left.side, this.right.side];
  }

  /** Load both policies while the prompt is being typed. */
  async warm() {
    const sides = JSON.stringify(this.sides);
    if (this.locked || this.student || this.running || sides === this.warmed || !this.right.known) return;
    this.warmed = sides;
    const reply = await this.server.ask({ sides: this.sides, view: onlyWatches() }).catch(() => null);
    if (!reply?.key) return;
    const status = (text) => !this.running && setText(this.composer.status, text);
    await followJob(this.poll, this.server.news, reply.key, ({ events, state }) => {
      const last = events.at(-1);
      if (state === "done") status("");
      else status(last?.event === "progress" ? last.text : this.composer.status.textContent || t("Getting ready"));
    });
  }

  /** The reply to a prompt, which may come before the policies are known; null when they cannot be read. */
  async send(request) {
    if (!this.isReady) setText(this.composer.status, t("Waiting for the policies"));
    await Promise.all([this.left.opening, this.right.opening]);
    setText(this.composer.status, "");
    if (!this.isReady) return null;
    const question = { ...request, sides: this.sides, view: onlyWatches() };
    if (this.student) return this.askInClass(request.prompt);
    return this.server.ask(question).catch(() => ({ error: NO_ANSWER, field: "" }));
  }

  async ask() {
    if (this.asking || this.running || this.locked) return;
    this.asking = true;
    const { request } = this.composer;
    const reply = await this.send(request).finally(() => (this.asking = false));
    if (reply) this.composer.fail(reply.error || "", reply.field);
    if (!reply?.key) return;
    const alone = this.left.run.value === this.right.run.value;
    const names = this.student
      ? [tp("step", "Start"), t("Step {step}", { step: reply.step })]
      : [this.left.name(alone), this.right.name(alone)];
    const line = this.student
      ? clauses([t("up to {count} tokens", { count: reply.tokens }), t("seed {seed}", { seed: reply.seed })])
      : this.composer.sentence();
    const exchange = new Exchange({ prompt: request.prompt, names, line }, this);
    this.add(exchange);
    this.running = { exchange, key: reply.key };
    this.warmed = JSON.stringify(this.sides);
    setText(this.composer.status, "");
    this.composer.busy(true);
    await exchange.run(reply.key);
    this.running = null;
    this.composer.busy(false);
  }

  /** As a student. */
  async askInClass(prompt) {
    const question = { prompt, view: onlyWatches() };
    const reply = await this.server.student_ask(question).catch((error) => ({ error: whyNot(error), field: "" }));
    if (!reply.key) this.runNews.wake(); // it may have been turned off
    return reply;
  }

  add(exchange) {
    if (!this.exchanges.length) fill(this.log);
    this.exchanges.push(exchange);
    this.log.append(exchange.node);
    while (this.exchanges.length > MOST_KEPT) this.exchanges.shift().node.remove();
    show(this.colours, true);
    exchange.node.scrollIntoView({ block: "nearest" });
  }

  stop() {
    const halt = this.student ? this.server.student_halt : this.server.halt;
    if (this.running) halt({ key: this.running.key, view: onlyWatches() }).catch(() => null);
  }
}

const runOf = (value) =>
  typeof value === "string" && value.includes("@") ? value.slice(0, value.lastIndexOf("@")) : "";

/** Draw the page into `host`; called once when the component appears. */
export function mount(options) {
  const page = new TalkPage(options);
  const { reward } = address.params("talk");
  if (reward) page.tryReward(reward);
  address.watch("talk", ({ talk, reward: asked }) => {
    if (asked) page.tryReward(asked);
    else if (talk) page.openPolicies(talk);
  });
  options.watch("value", () => {
    const run = runOf(options.props.value);
    if (run) page.openPolicies(run);
  });
}
