// The blind arena: two answers without names; a person says which is better, and is told afterwards who they were.
import { answerCard, sideBySide } from "../shared/answers.js";
import { el, pushButton, setText, show } from "../shared/dom.js";
import { counted, readable } from "../shared/format.js";
import { t } from "../shared/language.js";
import { NO_ANSWER } from "../shared/visit.js";
import { leftOut } from "./results.js";

const KEYS = { a: "left", b: "right", t: "tie", ArrowLeft: "left", ArrowRight: "right" };

export class Arena {
  /** @param voted  called after each vote */
  constructor({ ask, voted }) {
    this.ask = ask;
    this.voted = voted;
    this.policies = [];
    this.key = "";
    this.busy = false;
    this.prompt = el("p", { class: "rs-evaluate-prompt" });
    this.left = el("p", {});
    this.right = el("p", {});
    this.told = el("p", { class: "rs-help", role: "status" });
    this.last = el("p", { class: "rs-help rs-evaluate-last", role: "status" });
    this.gone = el("p", { class: "rs-help", hidden: true });
    const vote = (choice, label, key) =>
      pushButton("rs-button", [label, " ", el("kbd", { "aria-hidden": "true" }, key)], () => this.vote(choice));
    this.buttons = [
      vote("left", t("A is better"), "A"),
      vote("tie", t("Equally good"), "T"),
      vote("right", t("B is better"), "B"),
    ];
    this.duel = el(
      "div",
      { class: "rs-evaluate-duel", hidden: true },
      this.prompt,
      sideBySide(answerCard("A", this.left), answerCard("B", this.right)),
      el("div", { class: "rs-evaluate-votes rs-wrap" }, this.buttons),
    );
    this.node = el(
      "div",
      { class: "rs-evaluate-part", onkeydown: (event) => this.press(event) },
      this.told,
      this.duel,
      this.last,
      this.gone,
    );
  }

  clear() {
    this.key = "";
    setText(this.last, "");
    show(this.duel, false);
  }

  lock(why) {
    this.locked = why;
    if (why) setText(this.told, why);
  }

  draw(report) {
    this.policies = report.policies;
    setText(this.gone, leftOut(report));
    show(this.gone, Boolean(this.gone.textContent));
  }

  shown() {
    if (!this.key && !this.locked && this.policies.length > 1) this.next();
    else if (this.policies.length < 2) setText(this.told, t("The arena needs two policies."));
  }

  async next() {
    const reply = await this.ask("duel", { policies: this.policies }).catch(() => ({ problem: NO_ANSWER }));
    this.key = reply.key || "";
    show(this.duel, Boolean(reply.key));
    setText(this.told, reply.problem || t("Which answer is better? You are told afterwards who wrote them."));
    if (reply.problem) return;
    setText(this.prompt, readable(reply.prompt));
    setText(this.left, readable(reply.left).trimStart());
    setText(this.right, readable(reply.right).trimStart());
  }

  async vote(choice) {
    if (this.busy || !this.key) return;
    this.busy = true; // until the next pair is there: a second key must not vote on the pair that was just judged
    await this.send(this.key, choice).finally(() => (this.busy = false));
  }

  async send(key, choice) {
    const reply = await this.ask("vote", { key, choice }).catch(() => ({ problem: NO_ANSWER }));
    if (this.key !== key) return; // another evaluation is shown now
    if (reply.problem === NO_ANSWER) {
      setText(this.told, reply.problem);
      return;
    }
    await this.next();
    setText(this.last, reply.problem || voteLine(reply));
    if (!reply.problem) this.voted();
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const choice = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!choice) return;
    event.preventDefault();
    this.vote(choice);
  }
}

const voteLine = ({ left, right, votes }) =>
  t("Last pair: A was {left}, B was {right}. {votes} so far.", {
    left: readable(left, 60),
    right: readable(right, 60),
    votes: counted(votes, "vote"),
  });
