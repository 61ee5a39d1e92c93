// Break it on purpose: two runs from one seed, a question before them, and the way from the chart to the line of code.
import { address } from "../shared/address.js";
import { el, elEach, fill, pushButton, setText, show } from "../shared/dom.js";
import { PictureView } from "../pictures/view.js";
import { pageLink } from "../shared/links.js";
import { pagePoll } from "../shared/lost.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";
import { Prediction } from "./lesson/prediction.js";
import { blocks, inline, putSlot } from "./lesson/text.js";
import { bracketed, clauses, colon, t, tn } from "../shared/language.js";

const RESTING = 5000; // milliseconds between two looks while no run is under way
const WHICH = ["first", "second"];
const STATES = {
  "": t("Not started"),
  queued: t("Waiting in the queue"),
  loading: "Loading",
  running: "Running",
  paused: "Paused",
  finished: "Finished",
  stopped: t("Stopped before its end"),
  failed: "Failed",
  interrupted: t("Interrupted before its end"),
};
const GONE = ["stopped", "interrupted", "failed"];
const KEPT = t("Your answer is kept. Run both to see what happens.");
const OPENED = t("Run both to see what happens.");

/** A question that may be answered before its runs have ended: the answer is marked, and kept until then. */
class EarlyPrediction extends Prediction {
  answer(given) {
    if (this.known) return super.answer(given);
    this.kept = given;
    for (const button of this.buttons) {
      const own = Boolean(given) && button.dataset.answer === given;
      button.dataset.state = own ? "kept" : "";
      button.setAttribute("aria-pressed", String(own));
    }
    fill(this.verdict, el("p", {}, given ? KEPT : OPENED));
    show(this.verdict, true);
    return undefined;
  }

  know(slots) {
    super.know(slots);
    if (this.kept === undefined || this.explained) return;
    super.answer(this.kept);
  }
}

export class Breaking {
  /** @param page  (article, server, language(), choose(params), mark(name), tell(problem)) */
  constructor(page) {
    this.page = page;
    /** @type {any} */
    this.shelf = null;
    this.once = new Once();
    /** @type {ReturnType<typeof pagePoll> | null} */
    this.poll = null;
    this.news = null;
    this.show = "";
    this.seed = null;
    this.key = "";
    this.kept = new Map();
  }

  async go({ show: wanted = "", seed = "" }) {
    this.left = false;
    this.shelf ||= await this.page.need("break_shelf", {}, () => !this.left);
    if (this.left || !this.shelf) return;
    const names = this.shelf.experiments.map(({ name }) => name);
    this.experiment = names.includes(wanted) ? wanted : "";
    this.seed = /^\d{1,3}$/.test(seed) ? Number(seed) : null;
    this.unfollow();
    this.page.tell(wanted && !this.experiment ? t("There is no such experiment.") : "");
    if (this.experiment) this.open();
    else this.list();
  }

  /** Another place of the page is shown. */
  leave() {
    this.left = true;
    this.unfollow();
  }

  // --- all experiments ---

  list() {
    const items = this.shelf.experiments.map(({ name, title }, place) =>
      el(
        "li",
        {},
        pushButton(
          "rs-learn-broken",
          [el("span", { class: "rs-learn-number", "aria-hidden": "true" }, String(place + 1)), el("span", {}, title)],
          () => this.page.choose({ place: "break", show: name }),
        ),
      ),
    );
    fill(
      this.page.article,
      el("h2", { class: "rs-learn-title" }, t("Break it on purpose")),
      el(
        "div",
        { class: "rs-learn-text" },
        el(
          "p",
          {},
          t("Most mistakes in PPO raise no error. The run goes on, and the curves look almost right."),
          " ",
          t("Each experiment here trains two small runs from one seed, which differ in one thing."),
        ),
        el(
          "p",
          {},
          t("Say first what you expect. Then follow the way to the mistake: which chart, which token, which line."),
        ),
      ),
      el("ol", { class: "rs-learn-breaks" }, items),
    );
  }

  // --- one experiment ---

  open() {
    this.text = this.shelf.texts[this.experiment];
    this.slots = [];
    this.pictures = new Map();
    this.waiting = [];
    this.key = "";
    this.word = (label) => (label.startsWith("@") ? (this.text.words[label.slice(1)] ?? label.slice(1)) : label);
    this.reading = {
      words: this.text.words,
      lesson: (lesson) => this.page.choose({ lesson }),
      slot: (key, node) => this.slots.push([key, node]),
    };
    const back = { type: "button", class: "rs-button rs-small", onclick: () => this.page.choose({ place: "break" }) };
    this.panel = this.runPanel();
    this.said = el("div", { class: "rs-learn-said" });
    const scenes = this.text.scenes.map((scene) => this.scene(scene));
    fill(
      this.page.article,
      el("div", { class: "rs-learn-back" }, el("button", back, t("All experiments"))),
      el("h2", { class: "rs-learn-title" }, this.text.title),
      el("div", { class: "rs-learn-text" }, blocks(this.text.introduction, this.reading)),
      scenes,
    );
    this.reveal(false);
    if (this.kept.has(this.experiment)) this.prediction?.answer(this.kept.get(this.experiment));
    this.follow();
  }

  /** A part of the text. The runs stand behind the question, what the program noticed behind the way to the bug. */
  scene({ name, blocks: list }) {
    const node = el("section", { class: "rs-learn-part", "data-part": name });
    for (const block of list) node.append(this.block(block));
    if (name === "ask") node.append(this.panel);
    else if (name !== "change") this.waiting.push(node);
    if (name === "path") node.append(this.said);
    return node;
  }

  block(block) {
    if (block.kind === "picture") {
      const view = new PictureView(inline(block.caption, this.reading), this.word);
      this.pictures.set(block.name, view);
      return view.node;
    }
    if (block.kind === "predict") {
      this.prediction = new EarlyPrediction(block, this.reading, this.word, {
        reveal: () => this.reveal(true),
        again: null,
      });
      const { experiment, prediction } = this;
      prediction.node.addEventListener("click", () => prediction.known || this.kept.set(experiment, prediction.kept));
      return prediction.node;
    }
    return el("div", { class: "rs-learn-text" }, blocks([block], this.reading));
  }

  reveal(visible) {
    for (const node of this.waiting) show(node, visible);
    if (visible) for (const view of this.pictures.values()) view.redraw();
  }

  // --- the two runs ---

  runPanel() {
    this.rows = Object.fromEntries(WHICH.map((which) => [which, this.row(which)]));
    const start = { type: "button", class: "rs-button rs-primary", hidden: true, onclick: () => this.run() };
    this.start = el("button", start, t("Run both"));
    this.again = el(
      "button",
      { type: "button", class: "rs-button rs-small", hidden: true, onclick: () => this.runAgain() },
      t("Run again with another seed"),
    );
    this.compare = el("span", {});
    this.note = el("p", { class: "rs-help", role: "status" });
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.lost = el("div", {});
    const rows = WHICH.map((which) => this.rows[which].node);
    const tools = el("div", { class: "rs-learn-answers rs-flow" }, this.start, this.again, this.compare);
    return el(
      "div",
      { class: "rs-learn-both" },
      el("div", { class: "rs-learn-sides" }, rows),
      this.note,
      this.lost,
      this.problem,
      tools,
    );
  }

  row(which) {
    const called = el("span", { class: "rs-learn-called" }, t("Looking for the run"));
    const state = el("span", { class: "rs-muted" });
    const bar = el("progress", { max: "1", value: "0", hidden: true });
    const link = el("span", {});
    const node = el("div", { class: `rs-learn-side rs-learn-side-${which}` }, el("i", {}), called, state, bar, link);
    return { node, called, state, bar, link };
  }

  follow() {
    this.poll ||= pagePoll(this.page.article, { meanwhile: () => t("The runs do not need this page.") });
    this.lost.replaceChildren(this.poll.notice);
    const { experiment } = this;
    const question = () => ({
      show: experiment,
      ...(this.seed === null ? {} : { seed: this.seed }),
      known: this.key,
      language: this.page.language(),
      view: onlyWatches(),
    });
    this.news = this.poll.add({
      ask: () => this.page.server.break_news(question()),
      receive: (reply) => this.receive(reply),
    });
    this.news.wake();
  }

  unfollow() {
    if (this.news) this.poll.remove(this.news);
    this.news = null;
  }

  receive(reply) {
    if (reply.error) {
      this.say(reply.error);
      return RESTING;
    }
    this.reply = reply;
    if (this.seed === null) {
      this.seed = reply.seed;
      address.put("learn", { place: "break", show: this.experiment, seed: reply.seed });
    }
    for (const which of WHICH) this.drawRun(this.rows[which], reply.runs[which], reply.seed);
    this.drawTools(reply);
    if (reply.problem) this.say(reply.problem);
    if (reply.result) this.draw(reply.result);
    if (reply.key) this.key = reply.key;
    return reply.under_way ? undefined : RESTING;
  }

  drawRun(row, run, seed) {
    const going = ["loading", "running", "paused"].includes(run.state);
    setText(row.called, t("{called}, seed {seed}", { called: this.word(run.called), seed }));
    const phase = run.state === "loading" && run.phase ? colon("", run.phase) : "";
    const steps = run.state ? t(", step {step} of {steps}", run) : tn(", {count} step", ", {count} steps", run.steps);
    setText(row.state, `${STATES[run.state] || run.state}${phase}${steps}${run.cause ? t(". {cause}", run) : ""}`);
    show(row.bar, going);
    row.bar.value = run.steps ? run.step / run.steps : 0;
    row.bar.setAttribute("aria-label", t("Steps of {run}", { run: this.word(run.called) }));
    if (row.run === run.run) return;
    row.run = run.run;
    fill(row.link, run.run ? this.link(t("Open on Live"), "live", { run: run.run }) : "");
  }

  drawTools({ runs, under_way, operator, why_not, recorded, key, next_seed, takes }) {
    const done = Boolean(key);
    const partly = WHICH.some((which) => GONE.includes(runs[which].state));
    const busy = WHICH.some((which) => ["queued", "loading", "running", "paused"].includes(runs[which].state));
    show(this.start, operator && !done && !busy);
    show(this.again, operator && done);
    setText(this.start, partly ? t("Run what is missing") : t("Run both"));
    setText(this.again, t("Run again with seed {next_seed}", { next_seed }));
    for (const button of [this.start, this.again]) button.disabled = under_way || !operator;
    const other = under_way && !busy ? t("Another pair is under way. One pair runs at a time.") : "";
    const instead = recorded ? t("A recorded run shows the same.") : why_not;
    const viewer = operator || done ? "" : t("You cannot start these two runs here. {instead}", { instead });
    setText(this.note, other || viewer || takes || "");
    if (this.compared === done) return;
    this.compared = done;
    const compare = { compare: `${runs.first.run},${runs.second.run}` };
    const watch =
      recorded && !operator
        ? this.link(t("Watch: {name}", { name: recorded.name }), "live", { run: recorded.run })
        : "";
    fill(this.compare, done ? this.link(t("Compare both"), "runs", compare) : watch);
  }

  link(label, page, params) {
    return pageLink(label, page, params, "rs-button rs-small");
  }

  async run(seed = this.seed ?? 0) {
    for (const button of [this.start, this.again]) button.disabled = true;
    const asked = { show: this.experiment, seed, view: onlyWatches() };
    const reply = await this.once
      .ask(asked, (request) => this.page.server.break_start(request))
      .catch((error) => (console.error(error), { problem: NO_ANSWER }));
    this.say(reply.problem || "");
    if (!reply.problem && seed !== this.seed) await this.page.choose({ place: "break", show: this.experiment, seed });
    this.news?.wake();
  }

  runAgain() {
    this.kept.delete(this.experiment);
    return this.run(this.reply.next_seed);
  }

  say(problem) {
    setText(this.problem, problem);
    show(this.problem, Boolean(problem));
  }

  // --- what they did ---

  draw(result) {
    for (const [key, node] of this.slots) {
      putSlot(node, this.word(result.slots[key] ?? ""));
      node.classList.add("rs-learn-there");
    }
    for (const [name, picture] of Object.entries(result.pictures)) this.pictures.get(name)?.put(picture);
    this.prediction?.know(result.slots);
    fill(this.said, this.toToken(result), this.noticed(result.said.second));
  }

  toToken({ token }) {
    const run = this.reply.runs.second.run;
    if (!token || !run) return "";
    const { step, sample, token: place } = token;
    return this.link(t("Open this token on Live"), "live", { run, step, sample, token: place });
  }

  noticed({ noticed, refused, found }) {
    const lead = refused
      ? t("The check before training would refuse this run. It said:")
      : t("What the engine put on record:");
    const items = found.map(({ title, level, when }) => el("li", {}, `${title}${bracketed(clauses([level, when]))}`));
    return [
      el("h4", {}, t("Would the program have told you?")),
      noticed.length ? el("p", {}, lead) : el("p", {}, t("The engine noticed nothing.")),
      noticed.length ? elEach("ul", {}, noticed, (text) => el("li", {}, text)) : "",
      el("p", {}, items.length ? t("The doctor on Live found:") : t("The doctor on Live found nothing.")),
      items.length ? el("ul", {}, items) : "",
    ].filter(Boolean);
  }
}
