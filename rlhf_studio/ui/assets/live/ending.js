// The last scene of a run: one large next step, chosen by the verdict, and the smaller ones in a row. No button for
// what this app does not have.
import { ask } from "../shared/dialogs.js";
import { each, el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { lessonAddress, rewardAddress } from "../shared/handover.js";
import { pageLink } from "../shared/links.js";
import { stageLink, nextStages } from "../shared/next_stage.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";
import { t, tx } from "../shared/language.js";

const WRITES = ["ppo", "sft", "dpo"]; // the stages whose model writes
const SMALL = "rs-button rs-small";
const LARGE = "rs-button rs-primary rs-ending-large";
const MORE = "more steps"; // a person says how many
const FOOLED = "exploiting the reward";

const UNTOLD = ["too early", "not known", "cannot tell yet", "cannot be told"]; // there is nothing to explain yet

function learnLink({ run, lesson, critic, verdict }) {
  if (!lesson && UNTOLD.includes(verdict)) return null;
  const href = lessonAddress(run, lesson, critic);
  return href && el("a", { class: SMALL, href }, t("Learn why"));
}

const PURPOSES = { repair: t("Repair"), experiment: t("Experiment") };

/** Whether an idea mends what was found, or shows something and may be meant to go wrong. */
const purposeOf = (idea) =>
  PURPOSES[idea?.purpose] ? [el("b", { class: "rs-chip rs-purpose" }, PURPOSES[idea.purpose]), " "] : null;

/** Where the run was repaired. */
const mended = ({ run, name }) =>
  el("p", {}, tx("Repaired in {run}.", { run: pageLink(readable(name, 120), "live", { run }, "rs-link") }));

export class Ending {
  /**
   * @param host      where questions are asked
   * @param server    suggests and starts experiments
   * @param trigger   sends an event to the server: (name, data)
   * @param run       gives {run, name, state, total, checkpoints, kind, only_read, recording, critic, verdict, lesson}
   *                  of the run that is shown
   * @param film      id of the recording of a judge that is fooled
   * @param vary      opens the form with the run's settings, at the setting that made it fail (`failed`) or at `field`
   * @param takeHome  opens the dialog that exports a run: ({run, name})
   * @param tell      shows why something could not be started; an empty text takes it away
   * @param queued    called when the run that is shown waits in the queue
   * @param open      shows another run, by its id
   * @param replay    plays the run that is shown
   * @param response  the newest `step` with responses, null without one; whether one is `best`, as they have scores;
   *                  and `look`, which shows it
   */
  constructor({ host, server, trigger, run, film, vary, takeHome, tell, queued, open, replay, response }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.run = run;
    this.film = film;
    this.vary = vary;
    this.takeHome = takeHome;
    this.tell = tell;
    this.queued = queued;
    this.open = open;
    this.replay = replay;
    this.response = response;
    this.once = new Once();
  }

  /** What there is to do for a banner of this tone; null when there is nothing. */
  buttons(tone, operator) {
    if (tone === "rating") {
      const rate = this.button(t("Rate now"), () => this.send("open_feedback"), `${SMALL} rs-primary`);
      return el("div", { class: "rs-ending rs-wrap" }, rate);
    }
    const failed = tone === "failed";
    if (!failed && tone !== "finished") return null;
    const { only_read: read, recording, stage, verdict } = this.run();
    const trains = operator && !read;
    const others = el("div");
    const large = el("div", { class: "rs-ending-next rs-flow" });
    this.field = ""; // the setting that the large button changes
    if (failed && trains)
      fill(
        large,
        this.button(t("Fix settings"), () => this.vary({ failed: true }), LARGE),
      );
    else if (failed) show(large, false);
    else if (stage === "evaluation") fill(large, this.table());
    else if (trains) this.suggest(large, others);
    else if (read && !recording && verdict !== FOOLED) fill(large, this.look());
    else this.watch(large, LARGE);
    return el("div", { class: "rs-ending rs-column" }, large, this.row({ failed, operator, trains }), others);
  }

  /** The smaller steps. */
  row({ failed, operator, trains }) {
    const { checkpoints, kind, only_read: read, recording, stage } = this.run();
    const ours = kind === "studio" || kind === "program"; // by our engine: a lesson can compute with its numbers
    const saved = checkpoints.length > 0; // without one there is no policy to talk to
    const some = !failed && stage !== "evaluation" && saved;
    const variation = recording ? t("Train with its settings") : t("Run a variation");
    const reward = () => el("a", { class: SMALL, href: rewardAddress(this.run().run) }, t("Try it"));
    const home = () => this.button(t("Send or save"), () => this.takeHome(this.run()));
    const list = [
      some && operator && WRITES.includes(stage) && this.button(t("Talk to it"), () => this.send("open_talk")),
      some && operator && stage === "reward_model" && reward(),
      (some || (recording && operator)) && home(),
      this.button(t("Compare"), () => this.compare()),
      !failed && ours && stage === "ppo" && learnLink(this.run()),
      operator && !failed && (!read || recording) && this.button(variation, () => this.vary({ field: this.field })),
      trains && !failed && this.button(t("Another seed"), () => this.seed()),
      trains && failed && saved && home(),
    ].filter(Boolean);
    return el("div", { class: "rs-wrap rs-ending-row", role: "group", "aria-label": t("What next") }, list);
  }

  /** The way to what an evaluation is for. */
  table() {
    const { run } = this.run();
    const query = new URLSearchParams({ tab: "evaluate", evaluation: run });
    if (onlyWatches()) query.set("view", "1");
    return el("a", { class: LARGE, href: `?${query}` }, t("Open the table"));
  }

  /** Of a run that only others can train: what it wrote in the end, or another run beside it. */
  look() {
    const step = this.response.step();
    if (step === null) return this.button(t("Compare it with another run"), () => this.compare(), LARGE);
    const words = this.response.best()
      ? t("Look at the best response of step {step}", { step })
      : t("Look at the responses of step {step}", { step });
    return this.button(words, () => this.response.look(), LARGE);
  }

  button(label, act, look = SMALL) {
    return pushButton(look, label, act);
  }

  /** How a judge is fooled, in this PPO run where it was, else in the recording: nobody shall miss it. */
  watch(large, look) {
    const { run, stage, verdict } = this.run();
    const here = run === this.film || verdict === FOOLED;
    const words = here ? t("Watch how the judge was fooled") : t("Watch a judge being fooled, in a recording");
    const link = () => pageLink(words, "live", { replay: this.film }, look);
    if (stage === "ppo") large.append(here ? this.button(words, () => this.replay(), look) : link());
    show(large, large.childElementCount > 0);
  }

  /** Ask for what would show something new: the first becomes the large button, the others wait below. */
  async suggest(large, others) {
    const said = el("p", { class: "rs-muted", role: "status" }, t("Looking for what would tell most next"));
    fill(large, said);
    const { ideas = [], next = [], repaired, before, problem } = await this.ideas();
    const { stage, state } = this.run();
    setText(said, problem || "");
    const toTrain = () => this.send("open_train");
    const [idea, ...moreIdeas] = repaired ? [null, ...ideas] : ideas;
    const stages = idea || repaired ? next : next.slice(1);
    const why = el("div", { class: "rs-ending-why rs-column" });
    if (idea) {
      this.field = Object.keys(idea.changes)[0] || "";
      fill(large, this.large(idea, said), why, said);
    } else if (repaired) fill(large, this.repair(repaired), why, said);
    else if (next.length) fill(large, stageLink(next[0], toTrain, LARGE), why, said);
    const reason = el("p", {}, purposeOf(idea), readable((idea || next[0])?.why || "", 300));
    fill(why, repaired ? mended(repaired) : reason);
    this.watch(idea || repaired || next.length ? why : large, "rs-link");
    if (before) large.prepend(el("p", { class: "rs-ending-before" }, readable(before, 400)));
    // where it is none of the ideas
    const longer = state === "finished" && stage === "ppo" && !ideas.some(({ how }) => how === MORE);
    if (!moreIdeas.length && !stages.length && !longer) return;
    const told = el("p", { class: "rs-muted", role: "status" });
    const list = el("ul", {});
    each(list, moreIdeas, (other) => this.idea(other, told));
    const goOn = longer && this.button(t("Go on with more steps"), () => this.goOn());
    const summary = el("summary", {}, t("More to try"));
    fill(others, el("details", { class: "rs-next" }, summary, nextStages(stages, toTrain), list, goOn, told));
  }

  /** Beside the run that was started to mend this one. */
  repair({ run }) {
    return this.button(t("Compare it with its repair"), () => this.compare([this.run().run, run]), LARGE);
  }

  /** What may follow, asked once for each state of a run. */
  async ideas() {
    const { run, state, total } = this.run();
    const key = `${run} ${state} ${total}`;
    if (this.known?.key !== key) this.known = { key, reply: this.question("experiment_ideas", {}) };
    const reply = await this.known.reply;
    if (reply.problem) this.known = null;
    return reply;
  }

  async question(name, data) {
    const { run } = this.run();
    try {
      return (await this.server[name]({ run, view: onlyWatches(), ...data })) || { problem: NO_ANSWER };
    } catch {
      return { problem: NO_ANSWER };
    }
  }

  /** Start an experiment: gives {runs, names}, or a {problem}. */
  start(how) {
    const { run } = this.run();
    const send = (data) => this.server.experiment_start({ ...data, view: onlyWatches() });
    return this.once.ask({ run, ...how }, send).catch(() => ({ problem: NO_ANSWER }));
  }

  /** Start an idea by its button; gives what was started, null where it could not be. */
  async begin(idea, button, said) {
    button.disabled = true;
    const { how, changes, sweep: axes, purpose } = idea;
    const reply = await this.start({ how, changes, axes, repair: purpose === "repair" });
    button.disabled = !reply.problem;
    setText(said, readable(reply.problem || "", 600));
    return reply.problem ? null : reply;
  }

  /** The large button: one click starts it, and shows it; for more steps it asks how many. */
  large(idea, said) {
    const { run } = this.run();
    const click = async () => {
      if (idea.how === MORE) return void this.goOn();
      const reply = await this.begin(idea, button, said);
      if (!reply || run !== this.run()?.run) return; // the person has gone on to another run
      this.open(reply.runs[0]);
    };
    const words = [el("span", {}, idea.title), idea.takes && el("small", {}, idea.takes)].filter(Boolean);
    const button = this.button(words, click, LARGE);
    return button;
  }

  idea(idea, said) {
    const start = async () => {
      if (idea.how === MORE) return void this.goOn();
      const reply = await this.begin(idea, button, said);
      if (!reply) return;
      const links = reply.runs.map((run, place) => {
        return el("a", { href: `?tab=live&run=${run}` }, readable(reply.names[place], 120));
      });
      fill(
        said,
        t("Queued:"),
        " ",
        links.flatMap((link, place) => (place ? ["; ", link] : [link])),
      );
    };
    const button = this.button(idea.title, start);
    const time = idea.takes ? t(" It takes {takes}.", { takes: idea.takes }) : "";
    return el("li", {}, button, el("span", { class: "rs-muted" }, purposeOf(idea), idea.why + time));
  }

  /** The same run with the next seed: how far two such runs lie apart is luck. */
  async seed() {
    const { run } = this.run();
    const form = await this.question("experiment_form", {});
    const seed = { "engine.seed": (form.values?.["engine.seed"] ?? 0) + 1 };
    const reply = form.problem ? form : await this.start({ how: "variation", step: null, changes: seed });
    if (run !== this.run()?.run) return; // the person has gone on to another run
    if (reply.problem) this.tell(readable(reply.problem, 600));
    else this.open(reply.runs[0]);
  }

  send(event) {
    this.trigger(event, { run: this.run().run });
  }

  /** Open the list of runs with this one ticked, and the one that it was varied or forked from; or with these. */
  compare(runs = [this.run().parent, this.run().run].filter(Boolean)) {
    memory.set("compare", runs);
    window.dispatchEvent(new CustomEvent("rlhf-studio:compare", { detail: runs }));
    this.send("open_compare");
  }

  async goOn() {
    const { run, total } = this.run();
    const steps = await ask(this.host, {
      title: t("How many more steps?"),
      text: t("The run has {total}. It goes on from its last checkpoint, with the same settings.", { total }),
      confirm: t("Go on"),
      input: { label: t("Steps to add"), value: String(total), maxlength: 7 },
    });
    if (steps === null) return;
    const more = /^\d+$/.test(steps.trim()) ? Number(steps) : 0;
    if (!more) {
      this.tell(t("The steps to add must be a whole number above 0."));
      return;
    }
    this.tell("");
    const longer = { how: MORE, changes: { "ppo.steps": total + more } };
    const reply = await this.start(longer);
    if (run !== this.run()?.run) return; // the person has gone on to another run
    if (reply.problem) this.tell(readable(reply.problem, 600));
    else this.queued();
  }
}
