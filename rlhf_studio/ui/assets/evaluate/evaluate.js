// The Evaluate page: policies answer the same prompts, and what comes out stands side by side.
import { address } from "../shared/address.js";
import { firstOne, recorded } from "../pictures/recorded.js";
import { each, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted, duration, readable, stateWord, toldApart } from "../shared/format.js";
import { pageLink } from "../shared/links.js";
import { pagePoll } from "../shared/lost.js";
import { Segments } from "../shared/segments.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";
import { Arena } from "./arena.js";
import { Form } from "./form.js";
import { Matrix } from "./matrix.js";
import { Results } from "./results.js";
import { t, tn } from "../shared/language.js";

const WORKING = 1500; // milliseconds between two looks at an evaluation that goes on
const RESTING = 8000;
const ALIVE = ["queued", "loading", "running", "paused"];
const VIEWS = [
  { value: "results", label: t("Results") },
  { value: "matrix", label: t("Side by side") },
  { value: "arena", label: t("Blind arena") },
];

const COMES = t(
  "What comes here: who wins how often, score and gold against the distance, and all answers side by side.",
);
const MOST_NAME = 32; // characters of a run's name on a button
const PROMPTS = 64; // of the evaluation that one click makes

class EvaluatePage {
  constructor({ host, server }) {
    this.host = host;
    this.server = server;
    this.run = address.params("evaluate").evaluation || "";
    this.seen = "";
    this.opened = false;
    this.first = "";
    const ask = (name, data = {}) => server[name]({ ...data, run: this.run, view: onlyWatches() });
    this.message = el("p", { class: "rs-message rs-problem", role: "status", hidden: true });
    this.chosen = el("select", {
      class: "rs-input",
      "aria-label": t("Evaluation"),
      onchange: () => this.open(this.chosen.value),
    });
    this.once = new Once();
    this.viewer = el("p", { class: "rs-help", hidden: true });
    this.form = new Form({ begin: (data) => this.begin(data) });
    this.compareEnds = pushButton("rs-button rs-primary", "", () => this.quick());
    this.train = pageLink(t("Train a first run"), "train", {}, "rs-button rs-primary");
    this.about = el("span", {});
    this.first_ = show(firstOne([this.compareEnds, this.train], this.about), false); // until the runs are known
    this.newOne = el(
      "details",
      { class: "rs-evaluate-new" },
      el("summary", {}, t("Other choices: policies, prompts, answers per prompt, judge")),
      this.form.node,
    );
    this.recorded = el(
      "div",
      { hidden: true },
      recorded(
        t(
          "A run of the tiny world with a KL coefficient of 0, so that nothing held it near its start. Its " +
            "policy, the model that writes, answered the same 64 prompts after every sixth step. Your own " +
            "evaluation will look like this.",
        ),
      ),
    );
    this.parts = {
      results: new Results({ ask, compare: (first) => this.compare(first) }),
      matrix: new Matrix({ ask }),
      arena: new Arena({ ask, voted: () => this.lookAgain() }),
    };
    this.state = el("p", { class: "rs-evaluate-state", role: "status" });
    this.bar = el("progress", { class: "rs-progress-bar", "aria-label": t("The evaluation"), max: 1 });
    this.time = el("span", { class: "rs-help" });
    this.working = el("div", { class: "rs-evaluate-working", hidden: true }, this.bar, this.time);
    this.view = viewOf(address.params("evaluate").show);
    this.views = new Segments({ "aria-label": t("View") }, VIEWS, this.view, (view) => {
      this.turn(view);
      this.keepPlace();
    });
    this.sentence = el("p", { class: "rs-evaluate-sentence", hidden: true });
    const own = Object.values(this.parts).map(({ node }) => node);
    this.body = el("div", { class: "rs-evaluate-body", hidden: true });
    fill(this.body, this.sentence, this.state, this.working, this.views.node, own);
    this.poll = pagePoll(host);
    this.news = this.poll.add({
      ask: () => server.boot(this.question()),
      receive: (reply) => this.receive(reply),
    });
    fill(
      host,
      this.poll.notice,
      this.message,
      el(
        "div",
        { class: "rs-evaluate-head" },
        el("h2", {}, t("Evaluate")),
        el("label", { class: "rs-evaluate-choice" }, el("span", { class: "rs-hidden" }, t("Evaluation")), this.chosen),
      ),
      this.viewer,
      this.first_,
      this.newOne,
      this.recorded,
      this.body,
    );
    this.turn(this.view);
    address.watch("evaluate", ({ evaluation, show: named }) => {
      if (!evaluation) return;
      this.view = viewOf(named);
      this.open(evaluation);
      this.turn(this.view);
    });
    this.news.wake();
  }

  /** What is shown; the answer tells of it where it has changed. */
  question() {
    const { run, first, seen } = this;
    this.asked = true;
    return { run, first, seen, view: onlyWatches() };
  }

  /** Ask for a report at once. One that is on its way is about something else. */
  lookAgain() {
    this.seen = "";
    this.asked = false;
    this.news.wake();
  }

  say(text) {
    setText(this.message, text);
    show(this.message, Boolean(text));
  }

  receive(reply) {
    this.say(reply.problem || "");
    if (reply.problem) return RESTING;
    const runs = toldApart(reply.runs);
    this.ends = endsOf(reply);
    this.form.setRuns(runs, this.ends);
    setText(this.viewer, reply.why_not);
    show(this.viewer, Boolean(reply.why_not));
    show(this.newOne, !reply.why_not);
    show(this.first_, !reply.why_not);
    this.drawFirst();
    this.example = reply.example;
    this.listed = reply.evaluations;
    this.setChoice();
    const newest = reply.evaluations[0]?.id;
    if (newest && (!this.run || this.shownUnasked)) this.open(newest);
    else if (!this.run && this.example) this.openExample();
    else if (reply.report && this.asked) this.draw(reply.report, reply.seen);
    this.parts.arena.lock(reply.why_not || (this.isRecorded() ? t("Nobody votes on a recorded example.") : ""));
    this.drawTime();
    const here = reply.evaluations.find(({ id }) => id === this.run);
    return here && ALIVE.includes(here.state) ? WORKING : RESTING;
  }

  isRecorded() {
    return Boolean(this.run) && !this.listed?.some(({ id }) => id === this.run) && this.run.startsWith("example-");
  }

  /** Show the recorded example as long as there is no evaluation; the address does not name it. */
  openExample() {
    this.clear();
    this.run = this.example;
    this.shownUnasked = true;
    this.lookAgain();
  }

  drawFirst() {
    const ends = this.ends;
    show(this.compareEnds, Boolean(ends));
    show(this.train, !ends);
    this.compareEnds.classList.toggle("rs-primary", !this.listed?.length);
    if (!this.asking) setText(this.compareEnds, this.offer());
    setText(
      this.about,
      ends
        ? t(
            "As it began against step {step}, on {count} prompts that it has not trained on, judged by the gold " +
              "score; without one by its own reward.",
            { step: ends.step, count: PROMPTS },
          )
        : t(
            "An evaluation compares what a run was at its start and at its end. The tiny world trains in about a " +
              "minute.",
          ),
    );
  }

  /** What the button says: which run it is about. */
  offer() {
    return t("Compare start and end of \u201c{name}\u201d", { name: readable(this.ends?.name || "", MOST_NAME) });
  }

  /** One click: the start and the end of a run that has finished. */
  async quick() {
    if (this.asking || !this.ends) return;
    this.asking = true;
    setText(this.compareEnds, t("Checking\u2026"));
    const { id, name, step } = this.ends;
    const title = t("{name}: start and end", { name }).slice(0, 120);
    const reply = await this.begin({ policies: `${id}@start\n${id}@${step}`, prompts: PROMPTS, name: title });
    this.asking = false;
    setText(this.compareEnds, this.offer());
    this.say(reply.problem || "");
  }

  setChoice() {
    show(this.chosen.parentNode, this.listed.length > 0);
    const rows = this.listed.map(({ id, name, state, created_at }) => [id, name, state, created_at]);
    if (JSON.stringify(rows) === this.rows) return;
    this.rows = JSON.stringify(rows);
    const when = (seconds) => new Date(1000 * seconds).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    each(this.chosen, rows, ([id, name, state, at]) =>
      el("option", { value: id }, `${name} \u00b7 ${stateWord(state)} \u00b7 ${when(at)}`),
    );
    if (this.example) this.chosen.append(el("option", { value: this.example }, t("A recorded example")));
    this.chosen.value = this.run;
  }

  open(run) {
    this.shownUnasked = false;
    if (run !== this.run) this.clear();
    this.run = run;
    this.chosen.value = run;
    this.keepPlace();
    this.lookAgain();
  }

  clear() {
    this.seen = "";
    this.first = "";
    show(this.sentence, false);
    for (const part of Object.values(this.parts)) part.clear();
  }

  compare(first) {
    this.first = first;
    this.lookAgain();
  }

  /** Say in the address what is shown, so that a reload shows it again. */
  keepPlace() {
    address.put("evaluate", { evaluation: this.run, show: this.view === VIEWS[0].value ? "" : this.view });
  }

  turn(view) {
    this.view = view;
    this.views.show(view);
    for (const [name, part] of Object.entries(this.parts)) show(part.node, name === view);
    this.parts[view].shown?.();
  }

  draw(report, seen) {
    if (report.problem && this.first) return this.compare(""); // it may have begun again without that policy
    if (report.problem) return this.say(report.problem);
    this.seen = seen;
    show(this.body, true);
    const isRecorded = this.isRecorded();
    show(this.recorded, isRecorded);
    for (const button of this.views.buttons) show(button, !(isRecorded && button.dataset.value === "arena"));
    if (isRecorded && this.view === "arena") this.turn(VIEWS[0].value);
    setText(this.state, stateOf(report));
    this.state.classList.toggle("rs-problem", report.state === "failed");
    const isAlive = ALIVE.includes(report.state);
    show(this.working, isAlive);
    this.goesOn = isAlive ? { ...report, at: performance.now() } : null;
    this.drawTime();
    const { over_optimised: over, sentence } = report.frontier;
    setText(this.sentence, over.length ? readable(sentence, 400) : "");
    show(this.sentence, over.length > 0);
    show(this.views.node, report.policies.length > 0);
    if (!report.policies.length) for (const part of Object.values(this.parts)) show(part.node, false);
    for (const part of Object.values(this.parts)) part.draw(report);
    if (report.policies.length) this.turn(this.view);
    return undefined;
  }

  /** How far an evaluation is that goes on, for how long it has worked, and how long it will. */
  drawTime() {
    if (!this.goesOn) return;
    const { step, total, elapsed, left, at } = this.goesOn;
    const since = (performance.now() - at) / 1000;
    if (total) this.bar.value = step / total;
    else this.bar.removeAttribute("value");
    const about = { elapsed: duration(elapsed + since), left: duration(Math.max(0, left - since)) };
    const sofar = left === null ? t("{elapsed} so far.", about) : t("{elapsed} so far, about {left} left.", about);
    setText(this.time, `${sofar} ${COMES}`);
  }

  async begin(data) {
    const asked = this.once.ask({ ...data, view: onlyWatches() }, (request) => this.server.begin(request));
    const reply = await asked.catch(() => ({ problem: NO_ANSWER }));
    if (reply.problem) return reply;
    this.newOne.open = false;
    this.shownUnasked = false;
    this.run = reply.run;
    this.clear();
    show(this.body, false);
    this.keepPlace();
    this.lookAgain();
    return reply;
  }
}

/** The run whose start and end one click compares: its id, name and last step. */
function endsOf({ runs, ends }) {
  const run = runs.find(({ id }) => id === ends);
  return run ? { id: run.id, name: run.name, step: run.steps.at(-1) } : null;
}

/** The view of this name; the results for any other name, and for none. */
const viewOf = (name) => (VIEWS.find(({ value }) => value === name) || VIEWS[0]).value;

const capital = (text) => text[0].toUpperCase() + text.slice(1);

function stateOf({ state, step, total, phase, cause, policies, prompts }) {
  const who = tn("{count} policy", "{count} policies", policies.length);
  const done = t("{prompts} answered by {who}", { prompts: counted(prompts, "prompt"), who });
  if (state === "finished") return t("Finished: {done}.", { done });
  if (state === "failed") return t("Failed: {cause}", { cause });
  if (state === "queued") return t("Queued: it starts when the runs before it have ended.");
  if (state === "loading") return t("Loading: {phase}", { phase });
  const far = total ? t("step {step} of {total}", { step, total }) : t("step {step}", { step });
  const about = { state: stateWord(state), far, done };
  if (ALIVE.includes(state)) return capital(t("{state}, {far}: {done} so far.", about));
  return capital(t("{state}, {far}: {done} so far. It can be resumed on the Runs page.", about));
}

export function mount(parts) {
  return new EvaluatePage(parts);
}
