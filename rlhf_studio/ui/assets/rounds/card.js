// The card above the pages: what the teacher asks, how a student answers, and what the class answered.
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { Answering } from "./answering.js";
import { bars, curves } from "./results.js";
import { Steering } from "./steering.js";
import { t } from "../shared/language.js";

const WATCHING = t("You are watching. To answer, open the class link: ask your teacher for it.");
const REPLACED = t("You cannot answer: there is a new class link. Ask your teacher for it, and open it.");
const CLOSED = t("Your teacher has closed the round.");

/** On a small screen the inspector lies over the page: a question takes its place. */
function uncovered() {
  for (const sheet of document.querySelectorAll("dialog[open]"))
    if (sheet instanceof HTMLDialogElement && sheet.closest(".rs-inspector-place")) sheet.close();
}

export class RoundCard {
  /** @param poll  of the class */
  constructor(server, teaches, poll) {
    this.server = server;
    this.poll = poll;
    this.teaches = teaches;
    this.view = null;
    this.wasIn = false;
    /** @type {(() => void) | null} called when the round has changed */
    this.moved = null;
    this.lead = el("span", { class: "rs-class-lead" }, teaches ? t("You ask the class") : t("Your teacher asks"));
    this.count = el("span", { class: "rs-class-count", role: "status" });
    this.fold = pushButton("rs-link", t("Fold"), () => this.folded(!this.body.hidden));
    this.question = el("h2", { class: "rs-class-question" });
    this.answer = el("div", {});
    this.results = el("div", { class: "rs-class-results" });
    this.body = el("div", {}, this.answer, this.results);
    this.node = el(
      "section",
      {
        class: `rs-page rs-class-card${teaches ? " rs-class-of-teacher" : ""}`,
        "aria-label": t("A question to the class"),
        hidden: true,
      },
      el("div", { class: "rs-class-head" }, this.lead, this.count, this.fold),
      this.question,
      this.body,
    );
    this.jump = el("button", { type: "button", class: "rs-button rs-primary rs-class-jump", hidden: true });
    this.jump.addEventListener("click", () => this.node.scrollIntoView({ block: "start" }));
    this.node.append(this.jump);
    new IntersectionObserver((seen) => this.away(!seen.at(-1).isIntersecting)).observe(this.question);
    new ResizeObserver(() => this.width !== this.results.clientWidth && this.draw()).observe(this.results);
  }

  folded(away) {
    show(this.body, !away);
    setText(this.fold, away ? t("Unfold") : t("Fold"));
  }

  /** Who has scrolled away from the card is told of it at the foot of the window. */
  away(away) {
    this.isAway = away;
    const { view, own, may } = this;
    const asks = view?.state === "open" && may && own === null;
    setText(this.jump, asks ? t("Your teacher asks a question") : t("See what the class answered"));
    show(this.jump, Boolean(away && !this.teaches && (asks || view?.results)));
  }

  counted(answered) {
    if (answered !== this.answered) this.steering?.relist();
    this.answered = answered;
    setText(
      this.count,
      answered === 0 ? t("no answers yet") : answered === 1 ? t("1 answer") : t("{answered} answers", { answered }),
    );
  }

  /** What the server says of the round. */
  take({ round: view, own, may, answered, why_not: whyNot }) {
    const fresh = view.id !== this.view?.id;
    const before = JSON.stringify([this.view?.state, this.may, this.whyNot]);
    this.wasIn ||= may;
    this.view = view.id ? view : null;
    this.own = own;
    this.may = may;
    this.whyNot = whyNot;
    show(this.node, Boolean(view.id));
    if (fresh && view.id && !this.teaches) uncovered();
    if (!view.id) {
      this.steering?.end();
      fill(this.answer);
      return;
    }
    this.counted(answered);
    setText(this.question, view.question.text);
    if (fresh) {
      this.folded(false);
      if (!this.teaches) this.node.scrollIntoView({ block: "start" });
    }
    this.away(this.isAway);
    if (this.teaches) this.steer(fresh);
    else if (fresh || before !== JSON.stringify([view.state, may, whyNot])) this.ask();
    this.draw();
  }

  /** A sentence where putting the round away must be confirmed, because it is being answered; else empty. */
  get atStake() {
    const open = this.view?.state === "open" && this.answered > 0;
    return open ? t("The round is still open, with {answered}.", { answered: counted(this.answered, "answer") }) : "";
  }

  ask() {
    const { view, own, may } = this;
    const open = view.state === "open";
    if (open && may) {
      fill(this.answer, new Answering(this.server, view, own, (answer) => (this.own = answer)).node);
      return;
    }
    const said = may && own === null ? t("{closed} You have not answered.", { closed: CLOSED }) : CLOSED;
    fill(
      this.answer,
      open
        ? el("p", { class: "rs-help" }, this.whyNot || (this.wasIn ? REPLACED : WATCHING))
        : view.results
          ? null
          : el("p", { class: "rs-class-status" }, said),
    );
  }

  steer(fresh) {
    if (fresh) {
      this.steering?.end();
      this.steering = new Steering(this.server, this.view, this.poll, () => this.atStake);
      this.steering.moved = () => this.moved?.();
      fill(this.answer, this.steering.node);
    } else {
      this.steering.take(this.view);
      this.steering.relist();
    }
  }

  draw() {
    const { view, own } = this;
    this.width = this.results.clientWidth;
    if (!view?.results || !this.width) {
      if (!view?.results) fill(this.results);
      return;
    }
    fill(this.results, view.kind === "curve" ? curves(view, this.kept(own), this.width) : bars(view, own));
  }

  /** A student's own curve as the server has kept it: at equal distances. */
  kept(own) {
    return Array.isArray(own) && own.length === this.view.results.steps.length && !Array.isArray(own[0]) ? own : null;
  }
}
