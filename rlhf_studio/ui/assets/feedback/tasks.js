// The list of tasks: how far each is, what can be done with it, and the link for raters.
import { copyButton } from "../shared/take.js";
import { ask } from "../shared/dialogs.js";
import { el, fill, pushButton, redraw, setText, show } from "../shared/dom.js";
import { clock, counted, integer, number, readable } from "../shared/format.js";
import { NO_ANSWER } from "../shared/visit.js";

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
    this.make = pushButton("rs-button rs-primary", "New task", () => go("", "new"));
    this.rows = el("div", { class: "rs-tasks" });
    this.tools = el("div", { class: "rs-feedback-tools rs-wrap" }, this.make, this.link.button);
    this.node = el("section", { class: "rs-feedback-list" }, this.why, this.tools, this.link.node, this.rows);
  }

  update(reply) {
    const { tasks, operator, why_not: why } = reply;
    show(this.tools, operator);
    if (!operator) show(this.link.node, false);
    setText(this.why, why);
    show(this.why, Boolean(why));
    const text = JSON.stringify([tasks, operator, why]);
    if (text === this.drawn) return;
    this.drawn = text;
    redraw(this.rows, this.make, () =>
      fill(this.rows, tasks.length ? tasks.map((task) => this.row(task, reply)) : nothing(operator, why)),
    );
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

export const ALPHA =
  "Krippendorff's alpha: 1 is full agreement, 0 what chance would give. 0.8 and more is good; below 0.67, look at " +
  "the guidelines and the disagreements.";

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
  el(
    "div",
    { class: "rs-feedback-empty" },
    el("h3", {}, "No task yet"),
    el(
      "p",
      {},
      operator
        ? "A task asks people which of two responses is better, to put several in order, or to rate them. Make " +
            "one from a file of prompts and responses, or of an evaluation; a run with the reward Ask people " +
            "makes its own."
        : why
          ? "Tasks that ask people to rate responses are listed here."
          : "As soon as there is something to rate, it appears here.",
    ),
  );

/** The link that makes people raters, for operators. */
class RatingLink {
  constructor(server, say) {
    this.server = server;
    this.say = say;
    this.button = pushButton("rs-button", "Rating link", () => this.open());
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
    this.field.value = `${location.origin}${location.pathname}?rate=${encodeURIComponent(reply.token)}`;
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
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
