// The list of tasks: how far each is, what can be done with it, and the link for raters.
import { firstOne, recorded } from "../pictures/recorded.js";
import { copyButton } from "../shared/take.js";
import { ask } from "../shared/dialogs.js";
import { el, fill, pushButton, redraw, setText, show } from "../shared/dom.js";
import { clock, counted, integer, number, readable } from "../shared/format.js";
import { pageLink } from "../shared/links.js";
import { NO_ANSWER, Once } from "../shared/visit.js";
import { ALPHA, pictured } from "./results.js";

const KINDS = {
  pair: "which of two is better",
  ranking: "put in order",
  rating: "rate each",
};

export class TaskList {
  constructor(server, { go, say, changed }) {
    this.server = server;
    this.go = go;
    this.say = say;
    this.changed = changed;
    this.drawn = "";
    this.why = el("p", { class: "rs-help", hidden: true });
    this.link = new RatingLink(server, say);
    this.once = new Once();
    this.fromRun = pushButton("rs-button rs-primary", "Make a task from my run", () => this.makeFromRun());
    this.train = pageLink("Train a first run", "train", {}, "rs-button rs-primary");
    this.about = el("span", {});
    this.first = firstOne([this.fromRun, this.train], this.about);
    this.make = pushButton("rs-button rs-small", "Other task", () => go("", "new"));
    this.rows = el("div", { class: "rs-tasks" });
    this.tools = el("div", { class: "rs-feedback-tools rs-wrap" }, this.make, this.link.button);
    this.example = el("section", { class: "rs-results-body", "aria-label": "Recorded example", hidden: true });
    this.node = el(
      "section",
      { class: "rs-feedback-list" },
      this.why,
      this.first,
      this.tools,
      this.link.node,
      this.rows,
      this.example,
    );
  }

  update(reply) {
    const { tasks, operator, why_not: why } = reply;
    show(this.tools, operator);
    show(this.first, operator);
    this.drawFirst(reply);
    show(this.example, reply.example && !tasks.length);
    if (reply.example && !tasks.length) this.drawExample();
    if (!operator) show(this.link.node, false);
    setText(this.why, why);
    show(this.why, Boolean(why));
    const text = JSON.stringify([tasks, operator, why]);
    if (text === this.drawn) return;
    this.drawn = text;
    redraw(this.rows, this.make, () =>
      fill(this.rows, tasks.length ? tasks.map((task) => this.row(task, reply)) : [nothing(operator, why)]),
    );
  }

  drawFirst({ suggested, tasks }) {
    this.suggested = suggested;
    show(this.fromRun, Boolean(suggested));
    show(this.train, !suggested);
    this.fromRun.classList.toggle("rs-primary", !tasks.length);
    const from =
      suggested?.stage === "evaluation"
        ? "the first policy\u2019s answer and the last one\u2019s to the same prompt"
        : "an early and a late answer to the same prompt";
    setText(
      this.about,
      suggested
        ? `Up to 40 pairs of \u201c${readable(suggested.name, 60)}\u201d: ${from}, in random places. Two people ` +
            `for each pair; ` +
            "everything can be changed afterwards."
        : "People compare what a run wrote at its start and at its end. The tiny world trains in about a minute.",
    );
  }

  /** One click: pairs of the newest run, which open for rating. */
  async makeFromRun() {
    if (this.making) return;
    this.making = true;
    const asked = this.once.ask({ run: this.suggested.run }, (sent) => this.server.from_run(sent));
    const reply = await asked.catch(() => ({ problem: NO_ANSWER }));
    this.making = false;
    this.say(reply.problem || "");
    if (!reply.task) return;
    this.changed();
    this.go(reply.task, "rate");
  }

  /** What a finished task looks like, asked for once. */
  async drawExample() {
    if (this.asked) return;
    this.asked = true;
    const reply = await this.server.example({}).catch(() => null);
    this.asked = Boolean(reply?.task);
    if (!reply?.task) return;
    const about =
      "40 pairs of the start and the end of a run with a KL coefficient of 0, so that nothing held it near its " +
      "start. The four raters are rules with some noise, in place of people. Your own task will look like this when " +
      "it is done.";
    const title = el("h3", {}, readable(reply.task.name, 200));
    fill(this.example, recorded(about), title, pictured(reply.task, reply.results));
  }

  row(task, { operator, rater }) {
    const { items, done, votes } = task.progress;
    const complete = items > 0 && done === items;
    const wanted = items * task.annotators;
    const share = complete ? 1 : wanted ? Math.min(1, votes / wanted) : 0;
    const far =
      votes > done && !complete
        ? `${integer(done)} of ${integer(items)} complete \u00b7 ${counted(votes, "answer")}`
        : `${integer(done)} of ${counted(items, "item")} complete`;
    const look = complete ? "rs-button rs-small" : "rs-button rs-small rs-primary";
    const rate = pushButton(look, isAwaited(task) ? "Rate now" : "Start", () => this.go(task.id, "rate"));
    const small = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    const tools = operator
      ? [
          small("Results", () => this.go(task.id, "results")),
          task.run ? null : small(task.open ? "Close" : "Open", () => this.manage(task, task.open ? "close" : "open")),
          isAwaited(task) ? null : small("Delete", () => this.remove(task)),
        ]
      : [];
    return el(
      "article",
      { class: "rs-task rs-box", "data-task": task.id, "data-waiting": String(isAwaited(task)) },
      el(
        "div",
        { class: "rs-task-head" },
        el("h3", {}, readable(task.name, 200)),
        el("p", { class: "rs-help" }, about(task)),
      ),
      el(
        "div",
        { class: "rs-task-progress" },
        el(
          "div",
          {
            class: "rs-meter",
            role: "progressbar",
            "aria-label": "Complete",
            "aria-valuemin": "0",
            "aria-valuemax": "100",
            "aria-valuenow": String(Math.round(100 * share)),
          },
          el("i", { style: { width: `${100 * share}%` } }),
        ),
        el("span", {}, far),
        task.alpha === null || task.alpha === undefined
          ? null
          : el("span", { class: "rs-task-alpha", title: ALPHA }, `agreement ${number(task.alpha)}`),
      ),
      el("div", { class: "rs-task-buttons rs-wrap" }, rater && task.open ? rate : null, tools),
    );
  }

  async manage(task, op) {
    const reply = await this.server.manage({ task: task.id, op }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem || "");
    this.changed();
  }

  async remove(task) {
    const votes = task.progress.votes;
    const lost = votes ? `${counted(votes, "answer")} will be lost. Export them first if you need them.` : "";
    const title = `Delete "${readable(task.name, 80)}"?`;
    if (await ask(this.node, { title, text: lost, confirm: "Delete", danger: true })) this.manage(task, "delete");
  }
}

/** Whether a run works just now and waits for this task. */
const isAwaited = (task) => Boolean(task.run && task.open);

/** What a run does that does not wait for its task, where it has not ended for good. */
const STANDS = {
  running: "the run needs no ratings just now",
  paused: "the run needs no ratings just now",
  loading: "the run starts",
  queued: "the run is in the queue",
  stopped: "the run has stopped; resume it to go on",
  interrupted: "the run has stopped; resume it to go on",
  failed: "the run has failed",
};

function about(task) {
  const parts = [KINDS[task.kind]];
  if (task.criterion) parts.push(`judged by: ${readable(task.criterion, 80)}`);
  parts.push(task.annotators === 1 ? "one annotator each" : `${task.annotators} annotators each`);
  if (isAwaited(task)) parts.push(`the run waits${task.deadline ? ` until ${clock(task.deadline)}` : ""}`);
  else if (task.run)
    parts.push(STANDS[task.run_state] || (task.run_state ? "the run has ended" : "the run was deleted"));
  else if (!task.open) parts.push("closed");
  return parts.join(" · ");
}

const nothing = (operator, why) =>
  operator ? null : el("p", { class: "rs-help" }, why ? "" : "As soon as there is something to rate, it appears here.");

/** The link that makes people raters, for operators. */
class RatingLink {
  constructor(server, say) {
    this.server = server;
    this.say = say;
    this.button = pushButton("rs-button rs-small", "Rating link", () => this.open());
    this.field = el("input", { class: "rs-input", readonly: true, "aria-label": "Rating link" });
    const button = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    this.local = el("p", { class: "rs-help" });
    this.node = el(
      "div",
      { class: "rs-rating-link rs-box", hidden: true },
      el(
        "p",
        {},
        "Whoever opens this link may vote, and nothing else. Thirty people can rate at once, on their phones too.",
      ),
      el(
        "div",
        { class: "rs-rating-link-row rs-flow" },
        this.field,
        copyButton(() => this.field.value, this.field, "rs-button rs-small"),
        button("New link", () => this.renew()),
      ),
      this.local,
    );
  }

  async open(renew = false) {
    if (!renew && !this.node.hidden) return show(this.node, false);
    const reply = await this.server.rating_link({ renew }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem || "");
    if (!reply.token) return undefined;
    const here = reply.only_here;
    const at = reply.address || `${location.origin}${location.pathname}`;
    this.field.value = `${at}?rate=${encodeURIComponent(reply.token)}`;
    setText(
      this.local,
      here ? "This address works on this machine only. Start the app with --host 0.0.0.0 for others." : "",
    );
    show(this.node, true);
    this.field.focus();
    this.field.select();
    return undefined;
  }

  async renew() {
    const text = "The old link ends at once. People who opened it need the new one to go on.";
    if (await ask(this.node, { title: "Make a new rating link?", text, confirm: "Make a new link" }))
      await this.open(true);
  }
}
