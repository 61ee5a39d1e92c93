// One item fills the screen and waits for its answer. The browser keeps an answer until the app says that it is stored.
import { el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { counted, integer, readable } from "../shared/format.js";
import { t } from "../shared/language.js";
import { lasting } from "../shared/lasting.js";
import { REST } from "../shared/poll.js";
import { NO_ANSWER } from "../shared/visit.js";
import { Pair, Ranking, Stars } from "./answers.js";

const LOOK_AGAIN = 3000; // milliseconds, while there is nothing to rate
const SEND_AGAIN = 1500;
const NAMES = [t("A guess"), t("Fairly sure"), t("Sure")];
const ANSWERS = { pair: Pair, ranking: Ranking, rating: Stars };
const isTyping = (node) => node.closest?.("input, textarea, select, [contenteditable]");

const randomName = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

/** This browser's own key, which keeps an annotator's name from being used by others. */
function secret() {
  let known = lasting.get("feedback.secret", "") || memory.get("feedback.secret", "");
  if (!known) known = randomName();
  lasting.set("feedback.secret", known);
  memory.set("feedback.secret", known);
  return known;
}

export class Rating {
  /** @param poll  the page's: it asks for another turn while there is nothing to rate, and sends again what is kept */
  constructor(server, { leave, poll, onScreen }) {
    this.server = server;
    this.leave = leave;
    this.onScreen = onScreen;
    this.task = null;
    this.turn = null;
    this.again = poll.add({ asleep: true, ask: () => this.askAgain(), receive: () => this.wait });
    this.wait = REST;
    this.busy = false;
    this.name = lasting.get("feedback.name", "");
    this.title = el("h3", { class: "rs-rate-title" });
    this.count = el("span", { class: "rs-rate-count", role: "status" });
    this.meter = el("i", {});
    this.who = el("button", { type: "button", class: "rs-quiet", title: t("Rate under another name") });
    this.who.addEventListener("click", () => this.signIn());
    this.far = el("div", { class: "rs-rate-far" }, this.who, this.count, el("div", { class: "rs-meter" }, this.meter));
    this.guidelines = el("details", { class: "rs-guidelines" }, el("summary", {}, t("Guidelines")), el("p", {}));
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.told = el("p", { class: "rs-message rs-told", role: "status", hidden: true });
    this.body = el("div", { class: "rs-rate-body", tabindex: "-1" });
    const back = pushButton("rs-quiet", t("\u2190 All tasks"), leave);
    this.node = el(
      "section",
      { class: "rs-rate", hidden: true },
      el("div", { class: "rs-rate-head" }, back, this.title, this.far),
      this.guidelines,
      this.problem,
      this.told,
      this.body,
    );
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("online", () => this.task && this.refresh());
  }

  get me() {
    return { task: this.task.id, name: this.name, secret: secret() };
  }

  hide() {
    this.task = null;
    this.later(REST);
  }

  show(task, rights) {
    if (this.task?.id === task.id) return this.head(task);
    this.task = task;
    this.rights = rights;
    this.turn = null;
    this.shown = null;
    setText(this.title, readable(task.name, 200));
    this.head(task);
    this.say("");
    show(this.told, false);
    show(this.far, false);
    this.guidelines.open = !this.name; // whoever is new reads them while giving a name
    if (task.warning && !memory.get(`feedback.warned.${task.id}`, false)) return this.warn();
    return this.begin();
  }

  head(task) {
    this.task = task;
    setText(this.guidelines.lastChild, readable(task.guidelines, 20000));
    show(this.guidelines, Boolean(task.guidelines));
    setText(this.who, this.name ? readable(this.name, 40) : "");
    show(this.who, Boolean(this.name));
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }

  warn() {
    const go = () => {
      memory.set(`feedback.warned.${this.task.id}`, true);
      this.begin();
    };
    this.card(
      t("Before you begin"),
      readable(this.task.warning, 20000),
      button(t("Continue"), "rs-primary", go),
      button(t("Go back"), "", this.leave),
    );
  }

  card(title, text, ...buttons) {
    this.shown = null;
    const first = buttons[0];
    fill(
      this.body,
      el(
        "div",
        { class: "rs-rate-card" },
        el("h3", {}, title),
        text ? el("p", {}, text) : null,
        el("div", { class: "rs-rate-buttons rs-wrap" }, buttons),
      ),
    );
    first?.focus?.({ preventScroll: true });
  }

  begin() {
    if (this.name) this.refresh();
    else this.signIn();
  }

  signIn() {
    const field = el("input", {
      class: "rs-input",
      id: "rs-rate-name",
      maxlength: String(this.rights.longest_name),
      autocomplete: "nickname",
      value: this.name,
    });
    const wrong = el("p", { class: "rs-problem", role: "alert", hidden: true });
    const form = el(
      "form",
      { class: "rs-rate-card" },
      el("h3", {}, t("Who rates?")),
      el("p", {}, t("Your answers are kept under this name. Use the same one next time.")),
      el("label", { class: "rs-label", for: "rs-rate-name" }, t("Your name")),
      field,
      wrong,
      el(
        "div",
        { class: "rs-rate-buttons rs-wrap" },
        el("button", { type: "submit", class: "rs-button rs-primary" }, t("Begin")),
      ),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const reply = await this.server.join({ ...this.me, name: field.value }).catch(() => ({ problem: NO_ANSWER }));
      this.say("");
      setText(wrong, reply.problem || "");
      show(wrong, Boolean(reply.problem));
      if (!reply.name) return;
      this.name = reply.name;
      this.guidelines.open = false;
      lasting.set("feedback.name", this.name);
      setText(this.who, readable(this.name, 40));
      this.refresh();
    });
    this.shown = null;
    fill(this.body, form);
    field.focus();
  }

  /** Ask for this annotator's turn; first send what was answered before the connection, or the tab, was lost. */
  async refresh() {
    const waiting = lasting.get("feedback.pending", null);
    if (waiting?.name === this.name && waiting.task === this.task.id) return this.send(waiting);
    if (waiting) {
      // to another task, or under another name: it must not be replaced by the next answer
      const reply = await this.server.vote(waiting).catch(() => null);
      if (reply === null || reply.retry) return this.sendLater(reply);
      lasting.set("feedback.pending", null);
      if (!this.task) return undefined;
    }
    return this.ask("turn", this.me);
  }

  askAgain() {
    this.wait = REST;
    return this.refresh();
  }

  async ask(name, sent) {
    if (this.busy) return;
    this.busy = true;
    const task = this.task;
    const reply = await this.server[name](sent).catch(() => null);
    this.busy = false;
    if (this.task?.id !== task?.id || !this.task) return;
    if (reply === null || reply.retry) {
      this.sendLater(reply);
      return;
    }
    if (name === "vote") lasting.set("feedback.pending", null);
    this.say(reply.problem || "");
    if (reply.problem) {
      if (name === "vote" || name === "undo") await this.ask("turn", this.me).then(() => this.say(reply.problem));
      else if (name === "turn") this.signIn();
      return;
    }
    this.receive(reply);
  }

  sendLater(reply) {
    this.say(t("{problem} Your answers are kept, and are sent again.", { problem: reply?.problem || NO_ANSWER }));
    this.later(SEND_AGAIN);
  }

  later(wait) {
    this.wait = wait;
    this.again.later(wait);
  }

  receive(turn) {
    this.turn = turn;
    show(this.far, true);
    show(this.who, true);
    const { progress, calibration, expected } = turn;
    const round = turn.item?.calibration;
    const far = t("{done} of {items} complete", { done: integer(progress.done), items: integer(progress.items) });
    setText(
      this.count,
      round
        ? t("known answer {answered} of {total}", { answered: calibration.answered + 1, total: calibration.total })
        : t("{mine} by you \u00b7 {far}", { mine: integer(progress.mine), far }),
    );
    const share = round
      ? calibration.answered / calibration.total
      : progress.items
        ? progress.done / progress.items
        : 0;
    this.meter.style.width = `${100 * share}%`;
    this.tell(expected);
    if (turn.state === "item") return this.draw(turn);
    if (turn.state === "failed") return this.failed(calibration);
    this.later(LOOK_AGAIN);
    if (this.shown === turn.state) return undefined;
    this.over(turn);
    this.shown = turn.state;
    return undefined;
  }

  tell(expected) {
    show(this.told, Boolean(expected));
    if (!expected) return;
    this.told.dataset.right = String(expected.right);
    const words = expected.right ? t("As expected.") : t("Another answer was expected.");
    setText(this.told, `${words} ${readable(expected.why, 1000)}`.trim());
  }

  over({ state, progress }) {
    const undo = this.turn.may_undo ? button(t("Undo the last answer"), "", () => this.undo()) : null;
    const back = button(t("All tasks"), "", this.leave);
    if (this.task.run)
      this.card(
        t("Nothing to rate just now"),
        t("When the run has new responses, they appear here by themselves."),
        back,
        undo,
      );
    else if (state === "closed") this.card(t("This task is closed"), t("Thank you. Your answers are kept."), back);
    else if (progress.done < progress.items)
      this.card(
        t("Nothing for you just now"),
        t("You have answered or skipped all that is there for you. What is left is for others."),
        back,
        undo,
      );
    else
      this.card(
        t("All done"),
        t("Thank you. You gave {mine}.", { mine: counted(progress.mine, "answer") }),
        back,
        undo,
      );
  }

  failed({ correct, total }) {
    const needed = Math.ceil(this.task.pass_mark * total - 1e-9);
    this.guidelines.open = true;
    this.card(
      t("Once more, please"),
      t("{correct} of {total} answers were as expected; {needed} are needed. Read the guidelines and try again.", {
        correct,
        total,
        needed,
      }),
      button(t("Try again"), "rs-primary", () => this.ask("begin_again", this.me)),
      button(t("All tasks"), "", this.leave),
    );
  }

  draw({ item, may_undo: mayUndo }) {
    const key = `${item.id} ${item.calibration} ${this.turn.calibration.attempt}`;
    if (this.shown === key) return;
    this.shown = key;
    this.since = performance.now();
    this.confidence = null; // nobody is sure before saying so
    this.answer = new ANSWERS[this.task.kind](item, (verdict, value) => this.vote(verdict, value), this.task);
    this.sure = NAMES.map((label, index) =>
      el(
        "button",
        { type: "button", class: "rs-segment", "aria-pressed": "false", onclick: () => this.be(index) },
        label,
        this.task.kind === "pair" ? el("kbd", { "aria-hidden": "true" }, String(index + 1)) : null,
      ),
    );
    const buttons = [
      item.calibration ? null : keyed(t("Skip"), "S", () => this.vote("skip", null)),
      mayUndo ? keyed(t("Undo"), "U", () => this.undo()) : null,
    ].filter(Boolean);
    const question = t("How sure are you?");
    const confidence = el(
      "div",
      { class: "rs-how-sure rs-flow" },
      el("span", { class: "rs-help" }, question, t(" Optional, before you answer.")),
      el("div", { class: "rs-segments", role: "group", "aria-label": question }, this.sure),
    );
    fill(
      this.body,
      item.prompt
        ? el("div", { class: "rs-rate-prompt" }, el("h4", {}, t("Prompt")), el("div", {}, readable(item.prompt, 20000)))
        : null,
      el(
        "div",
        { class: "rs-judge rs-flow" },
        this.task.criterion ? el("p", {}, t("Judge by: "), el("b", {}, readable(this.task.criterion, 200))) : null,
        this.task.ask_confidence ? confidence : null,
      ),
      this.answer.node,
      buttons.length
        ? el("div", { class: "rs-rate-foot rs-flow" }, el("div", { class: "rs-rate-buttons rs-wrap" }, buttons))
        : null,
    );
    this.body.focus({ preventScroll: true });
    if (this.node.getBoundingClientRect().top < 0) this.node.scrollIntoView({ block: "start" });
  }

  /** How sure the person is; the same said again takes it back. */
  be(index) {
    this.confidence = this.confidence === index ? null : index;
    this.sure.forEach((one, place) => one.setAttribute("aria-pressed", String(place === this.confidence)));
  }

  vote(verdict, value) {
    if (this.busy || this.turn?.state !== "item") return;
    const seconds = (performance.now() - this.since) / 1000;
    const said = this.task.ask_confidence && this.confidence !== null;
    const confidence = said ? this.rights.confidences[this.confidence] : null;
    const sent = { ...this.me, id: randomName(), item: this.turn.item.id, verdict, value, confidence, seconds };
    this.send(sent);
  }

  send(sent) {
    lasting.set("feedback.pending", sent);
    return this.ask("vote", sent);
  }

  undo() {
    const vote = this.turn?.may_undo;
    if (vote && !this.busy) this.ask("undo", { ...this.me, vote });
  }

  key(event) {
    if (!this.task || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !this.onScreen()) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && event.target.closest?.("button:not(.rs-pick), summary, a")) return;
    const key = event.key.toLowerCase();
    if (key === "u" && this.turn?.may_undo) this.undo();
    else if (this.turn?.state !== "item" || !this.answer || this.shown === null) return;
    else if (key === "s" && !this.turn.item.calibration) this.vote("skip", null);
    else if (this.task.kind === "pair" && this.task.ask_confidence && "123".includes(key)) this.be(Number(key) - 1);
    else if (!this.answer.key(key, event)) return;
    event.preventDefault();
  }
}

const button = (label, look, onclick) => pushButton(`rs-button ${look}`, label, onclick);

const keyed = (label, key, onclick, look = "") =>
  el(
    "button",
    { type: "button", class: `rs-button ${look}`, onclick, "aria-keyshortcuts": key },
    label,
    el("kbd", { "aria-hidden": "true" }, key),
  );
