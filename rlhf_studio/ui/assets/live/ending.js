// What there is to do when a run is over. No button for what this app does not have.
import { ask } from "../shared/dialogs.js";
import { each, el, fill, memory, pushButton, setText } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { lessonAddress, rewardAddress } from "../shared/handover.js";
import { nextStages } from "../shared/next_stage.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";

const WRITES = ["ppo", "sft", "dpo"]; // the stages whose model writes

const tryLink = (run) => el("a", { class: "rs-button rs-small rs-primary", href: rewardAddress(run) }, "Try it");

function learnLink({ run, verdict, critic }) {
  const href = lessonAddress(run, verdict, critic);
  return href && el("a", { class: "rs-button rs-small", href }, "Learn why");
}

export class Ending {
  /**
   * @param host      where questions are asked
   * @param server    suggests and starts experiments
   * @param trigger   sends an event to the server: (name, data)
   * @param run       gives {run, name, state, total, checkpoints, imported, program, recording, critic, verdict} of the
   *                  run that is shown
   * @param vary      opens the form with the run's settings; true marks the setting that made it fail
   * @param takeHome  opens the dialog that exports a run: ({run, name})
   * @param tell      shows why something could not be started; an empty text takes it away
   * @param queued    called when the run that is shown waits in the queue
   */
  constructor({ host, server, trigger, run, vary, takeHome, tell, queued }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.run = run;
    this.vary = vary;
    this.takeHome = takeHome;
    this.tell = tell;
    this.queued = queued;
    this.once = new Once();
  }

  /** The row of buttons for a banner of this tone; null when there is nothing to do. */
  buttons(tone, operator) {
    if (tone === "rating")
      return el(
        "div",
        { class: "rs-ending rs-wrap" },
        this.button("Rate now", () => this.send("open_feedback"), true),
      );
    const failed = tone === "failed";
    if (!failed && tone !== "finished") return null;
    const { checkpoints, imported, program, recording, state, stage } = this.run();
    const saved = checkpoints.length > 0; // without one there is no policy to talk to
    const evaluation = stage === "evaluation";
    // Of a recording, and of a run whose records were read from a file, there is no model to train.
    // An evaluation trains none.
    // What a person's own program has made, only that program can go on with.
    const trains = operator && !imported && !program && !recording;
    const some = !failed &&
      !evaluation &&
      saved && [
        operator && WRITES.includes(stage) && this.button("Talk to it", () => this.send("open_talk"), true),
        operator && stage === "reward_model" && tryLink(this.run().run),
        this.button("Take it home", () => this.takeHome(this.run()), false),
      ];
    const variation = recording ? "Train with its settings" : "Run a variation";
    const list = [
      !failed && evaluation && this.table(),
      failed && trains && this.button("Fix settings", () => this.vary(true), true),
      ...(some || []),
      operator && !failed && !imported && !program && this.button(variation, () => this.vary(false), false),
      recording && operator && this.button("Take it home", () => this.takeHome(this.run()), false),
      this.button("Compare", () => this.compare(), false),
      !failed && !imported && stage === "ppo" && learnLink(this.run()),
      state === "finished" &&
        trains &&
        stage === "ppo" &&
        this.button("Go on with more steps", () => this.goOn(), false),
    ].filter(Boolean);
    const row = el("div", { class: "rs-ending rs-wrap", role: "group", "aria-label": "What next" }, list);
    return !failed && trains && !evaluation ? el("div", {}, row, this.suggested()) : row;
  }

  /** The way to what an evaluation is for. */
  table() {
    const { run } = this.run();
    const query = new URLSearchParams({ tab: "evaluate", evaluation: run });
    if (onlyWatches()) query.set("view", "1");
    return el("a", { class: "rs-button rs-small rs-primary", href: `?${query}` }, "Open the table");
  }

  button(label, act, primary) {
    return pushButton(primary ? "rs-button rs-small rs-primary" : "rs-button rs-small", label, act);
  }

  /** Experiments that would show something new, found out when a person asks for them. */
  suggested() {
    const list = el("ul", {});
    const stages = el("div", {});
    const said = el("p", { class: "rs-muted", role: "status" });
    const node = el("details", { class: "rs-next" }, el("summary", {}, "Suggested next"), stages, list, said);
    const load = async () => {
      setText(said, "Looking at the run");
      const reply = await this.question("experiment_ideas", {});
      const some = reply.ideas?.length || reply.next?.length;
      setText(said, reply.problem || (some ? "" : "There is nothing to suggest for this run."));
      fill(
        stages,
        nextStages(reply.next || [], () => this.send("open_train")),
      );
      each(list, reply.ideas || [], (idea) => this.idea(idea, said));
    };
    node.addEventListener("toggle", () => node.open && !list.children.length && load());
    node.open = this.run().stage !== "ppo"; // what a stage is for is the next one
    return node;
  }

  async question(name, data) {
    const { run } = this.run();
    const reply = await this.server[name]({ run, view: onlyWatches(), ...data }).catch(() => null);
    return reply || { problem: NO_ANSWER };
  }

  /** Start an experiment: gives {runs, names}, or a {problem}. */
  start(how) {
    const { run } = this.run();
    const send = (data) => this.server.experiment_start({ ...data, view: onlyWatches() });
    return this.once.ask({ run, ...how }, send).catch(() => ({ problem: NO_ANSWER }));
  }

  idea(idea, said) {
    const start = async () => {
      button.disabled = true;
      const how = { how: idea.how, changes: idea.changes, axes: idea.sweep };
      const reply = await this.start(how);
      button.disabled = !reply.problem;
      if (reply.problem) {
        setText(said, readable(reply.problem, 600));
        return;
      }
      const links = reply.runs.map((run, place) => {
        return el("a", { href: `?tab=live&run=${run}` }, readable(reply.names[place], 120));
      });
      fill(
        said,
        "Queued: ",
        links.flatMap((link, place) => (place ? ["; ", link] : [link])),
      );
    };
    const button = this.button(idea.title, start, false);
    return el("li", {}, button, el("span", { class: "rs-muted" }, idea.why));
  }

  send(event) {
    this.trigger(event, { run: this.run().run });
  }

  /** Open the list of runs with this one ticked, and the one that it was varied or forked from. */
  compare() {
    const { run, parent } = this.run();
    const runs = parent ? [parent, run] : [run];
    memory.set("compare", runs);
    window.dispatchEvent(new CustomEvent("rlhf-studio:compare", { detail: runs }));
    this.send("open_compare");
  }

  async goOn() {
    const { run, total } = this.run();
    const steps = await ask(this.host, {
      title: "How many more steps?",
      text: `The run has ${total}. It goes on from its last checkpoint, with the same settings.`,
      confirm: "Go on",
      input: { label: "Steps to add", value: String(total), maxlength: 7 },
    });
    if (steps === null) return;
    const more = /^\d+$/.test(steps.trim()) ? Number(steps) : 0;
    if (!more) {
      this.tell("The steps to add must be a whole number above 0.");
      return;
    }
    this.tell("");
    const longer = { how: "more steps", changes: { "ppo.steps": total + more } };
    const reply = await this.start(longer);
    if (run !== this.run()?.run) return; // the person has gone on to another run
    if (reply.problem) this.tell(readable(reply.problem, 600));
    else this.queued();
  }
}
