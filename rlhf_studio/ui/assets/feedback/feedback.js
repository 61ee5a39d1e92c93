// The Feedback page: tasks, one of them being answered, or what it has found.
import { address } from "../shared/address.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { pagePoll } from "../shared/lost.js";
import { isOnScreen, onlyWatches } from "../shared/visit.js";
import { NewTask } from "./create.js";
import { Rating } from "./rating.js";
import { Results } from "./results.js";
import { TaskList } from "./tasks.js";

const LOOK_AGAIN = 4000; // milliseconds between two looks at how far the tasks are
const WHILE_RATING = 15000;

class FeedbackPage {
  constructor({ host, server, trigger, props }) {
    this.host = host;
    this.props = props;
    this.wanted = "";
    this.tasks = [];
    this.server = withView(server);
    this.message = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.poll = pagePoll(host, { meanwhile: () => t("What you have answered is kept.") });
    this.taskNews = this.poll.add({ ask: () => this.server.boot({}), receive: (reply) => this.receive(reply) });
    const leave = () => this.go("", "");
    this.list = new TaskList(this.server, {
      go: (task, view) => this.go(task, view),
      say: (text) => this.say(text),
      changed: () => this.taskNews.wake(),
    });
    this.rating = new Rating(this.server, { leave, poll: this.poll, onScreen: () => isOnScreen(this.host) });
    this.results = new Results(this.server, {
      leave,
      openTrain: () => trigger("feedback_train", {}),
      change: (task) => this.go(task.id, "new"),
    });
    this.create = new NewTask(this.server, { leave, made: (task) => this.made(task) });
    this.views = { list: this.list, rate: this.rating, results: this.results, new: this.create };
    fill(
      host,
      el("h2", { class: "rs-hidden" }, t("Feedback")),
      this.poll.notice,
      this.message,
      Object.values(this.views).map((view) => view.node),
    );
    this.taskNews.wake();
    this.route(address.params("feedback"));
  }

  say(text) {
    setText(this.message, text);
    show(this.message, Boolean(text));
  }

  receive(reply) {
    this.say(reply.problem || "");
    if (reply.problem) return LOOK_AGAIN;
    this.rights = reply;
    this.tasks = reply.tasks;
    this.list.update(reply);
    this.create.update(reply);
    if (this.wanted) this.openRun();
    this.showView();
    return this.view === "rate" ? WHILE_RATING : LOOK_AGAIN;
  }

  /** A run's button leads to the task that it waits for, once that is in the list. */
  openRun() {
    const task = this.tasks.find(({ run, open }) => open && run === this.wanted);
    if (!task) return;
    this.wanted = "";
    this.go(task.id, "rate");
  }

  open(value) {
    const asked = typeof value === "string" ? value.slice(0, value.lastIndexOf("@")) : "";
    if (!asked.startsWith("run:")) return;
    this.wanted = asked.slice(4);
    this.go("", "");
    this.openRun();
    this.taskNews.wake();
  }

  go(task, view) {
    address.put("feedback", { task, show: view === "rate" ? "" : view }, true);
    this.route(address.params("feedback"));
  }

  made(task) {
    this.taskNews.wake();
    this.go(task, "results");
  }

  route({ task = "", show: view = "" }) {
    this.task = task;
    this.view = view === "new" ? "new" : task ? (view === "results" ? "results" : "rate") : "list";
    this.showView();
  }

  showView() {
    if (!this.rights) return;
    const task = this.tasks.find(({ id }) => id === this.task);
    let view = this.view;
    if (this.task && !task) view = "list"; // deleted, or from an old address
    if (view !== "list" && view !== "rate" && !this.rights.operator) view = "list";
    if (view === "rate" && !this.rights.rater) view = "list";
    for (const [name, part] of Object.entries(this.views)) show(part.node, name === view);
    if (view === "rate") this.rating.show(task, this.rights);
    else this.rating.hide();
    if (view === "results") this.results.show(task);
    if (view === "new") this.create.edit(task);
  }
}

/** Every question says whether this page was opened only to watch. */
const withView = (server) =>
  new Proxy(server, { get: (functions, name) => (sent) => functions[name]({ ...sent, view: onlyWatches() }) });

/** Draw the page into `host`; called once when the component appears. */
export function mount(options) {
  const page = new FeedbackPage(options);
  address.watch("feedback", (params) => page.route(params));
  page.open(options.props.value);
  options.watch("value", () => page.open(options.props.value));
}
