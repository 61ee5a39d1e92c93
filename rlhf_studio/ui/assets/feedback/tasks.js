// The list of tasks: how far each is, what can be done with it, and the link for raters.
import { firstOne, recorded } from "../pictures/recorded.js";
import { t } from "../shared/language.js";
import { copyButton } from "../shared/take.js";
import { ask } from "../shared/dialogs.js";
import { el, fill, pushButton, redraw, setText, show } from "../shared/dom.js";
import { clock, counted, integer, number, readable } from "../shared/format.js";
import { pageLink } from "../shared/links.js";
import { NO_ANSWER, Once } from "../shared/visit.js";
import { ALPHA, pictured } from "./results.js";

const KINDS = {
  pair: t("which of two is better"),
  ranking: t("put in order"),
  rating: t("rate each"),
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
    this.fromRun = pushButton("rs-button rs-primary", t("Make a task from my run"), () => this.makeFromRun());
    this.train = pageLink(t("Train a first run"), "train", {}, "rs-button rs-primary");
    this.about = el("span", {});
    this.first = firstOne([this.fromRun, this.train], this.about);
    this.make = pushButton("rs-button rs-small", t("Other task"), () => go("", "new"));
    this.rows = el("div", { class: "rs-tasks" });
    this.tools = el("div", { class: "rs-feedback-tools rs-wrap" }, this.make, this.link.button);
    this.example = el("section", { class: "rs-results-body", "aria-label": t("Recorded example"), hidden: true });
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
        ? t("the first policy\u2019s answer and the last one\u2019s to the same prompt")
        : t("an early and a late answer to the same prompt");
    setText(
      this.about,
      suggested
        ? t("Up to 40 pairs of \u201c{name}\u201d: {from}, in random places. Two people for each pair.", {
            name: readable(suggested.name, 60),
            from,
          })
        : t("People compare what a run wrote at its start and at its end. The tiny world trains in about a minute."),
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
    const about = t(
      "40 pairs of the start and the end of a run with a KL coefficient of 0, so that nothing held it near its " +
        "start. The four raters are rules with some noise, in place of people. Your own task will look like this " +
        "when it is done.",
    );
    fill(this.example, recorded(about), pictured(reply.task, reply.results));
  }

  row(task, { operator, rater }) {
    const { items, done, votes } = task.progress;
    const complete = items > 0 && done === items;
    const wanted = items * task.annotators;
    const share = complete ? 1 : wanted ? Math.min(1, votes / wanted) : 0;
    const far =
      votes > done && !complete
        ? t("{done} of {items} complete \u00b7 {votes}", {
            done: integer(done),
            items: integer(items),
            votes: counted(votes, "answer"),
          })
        : t("{done} of {items} complete", { done: integer(done), items: counted(items, "item") });
    const look = complete ? "rs-button rs-small" : "rs-button rs-small rs-primary";
    const rate = pushButton(look, isAwaited(task) ? t("Rate now") : t("Start"), () => this.go(task.id, "rate"));
    const small = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    const tools = operator
      ? [
          small(t("Results"), () => this.go(task.id, "results")),
          task.run
            ? null
            : small(task.open ? t("Close") : t("Open"), () => this.manage(task, task.open ? "close" : "open")),
          isAwaited(task) ? null : small(t("Delete"), () => this.remove(task)),
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
            "aria-label": t("Complete"),
            "aria-valuemin": "0",
            "aria-valuemax": "100",
            "aria-valuenow": String(Math.round(100 * share)),
          },
          el("i", { style: { width: `${100 * share}%` } }),
        ),
        el("span", {}, far),
        task.alpha === null || task.alpha === undefined
          ? null
          : el("span", { class: "rs-task-alpha", title: ALPHA }, t("agreement {alpha}", { alpha: number(task.alpha) })),
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
    const lost = votes
      ? t("{votes} will be lost. Export them first if you need them.", { votes: counted(votes, "answer") })
      : "";
    const title = t('Delete "{name}"?', { name: readable(task.name, 80) });
    if (await ask(this.node, { title, text: lost, confirm: t("Delete"), danger: true })) this.manage(task, "delete");
  }
}

/** Whether a run works just now and waits for this task. */
const isAwaited = (task) => Boolean(task.run && task.open);

/** What a run does that does not wait for its task, where it has not ended for good. */
const STANDS = {
  running: t("the run needs no ratings just now"),
  paused: t("the run needs no ratings just now"),
  loading: t("the run starts"),
  queued: t("the run is in the queue"),
  stopped: t("the run has stopped; resume it to go on"),
  interrupted: t("the run has stopped; resume it to go on"),
  failed: t("the run has failed"),
};

function about(task) {
  const parts = [KINDS[task.kind]];
  if (task.criterion) parts.push(t("judged by: {criterion}", { criterion: readable(task.criterion, 80) }));
  parts.push(
    task.annotators === 1
      ? t("one annotator each")
      : t("{annotators} annotators each", { annotators: task.annotators }),
  );
  if (isAwaited(task))
    parts.push(
      t("the run waits{deadline}", {
        deadline: task.deadline ? t(" until {deadline}", { deadline: clock(task.deadline) }) : "",
      }),
    );
  else if (task.run)
    parts.push(STANDS[task.run_state] || (task.run_state ? t("the run has ended") : t("the run was deleted")));
  else if (!task.open) parts.push(t("closed"));
  return parts.join(" · ");
}

const nothing = (operator, why) =>
  operator
    ? null
    : el("p", { class: "rs-help" }, why ? "" : t("As soon as there is something to rate, it appears here."));

/** The link that makes people raters, for operators. */
class RatingLink {
  constructor(server, say) {
    this.server = server;
    this.say = say;
    this.button = pushButton("rs-button rs-small", t("Rating link"), () => this.open());
    this.field = el("input", { class: "rs-input", readonly: true, "aria-label": t("Rating link") });
    const button = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    this.local = el("p", { class: "rs-help" });
    this.node = el(
      "div",
      { class: "rs-rating-link rs-box", hidden: true },
      el(
        "p",
        {},
        t("Whoever opens this link may vote, and nothing else. Thirty people can rate at once, on their phones too."),
      ),
      el(
        "div",
        { class: "rs-rating-link-row rs-flow" },
        this.field,
        copyButton(() => this.field.value, this.field, "rs-button rs-small"),
        button(t("New link"), () => this.renew()),
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
      here ? t("This address works on this machine only. Start the app with --host 0.0.0.0 for others.") : "",
    );
    show(this.node, true);
    this.field.focus();
    this.field.select();
    return undefined;
  }

  async renew() {
    const text = t("The old link ends at once. People who opened it need the new one to go on.");
    if (await ask(this.node, { title: t("Make a new rating link?"), text, confirm: t("Make a new link") }))
      await this.open(true);
  }
}
