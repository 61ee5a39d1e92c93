// The way from a model of one's own to a run in steps. It fills the form, which stays one click away ("All settings").
import { each, el, fill, memory, pushButton, setText, show } from "../../shared/dom.js";
import { t } from "../../shared/language.js";
import { NO_ANSWER, isOnScreen, onlyWatches } from "../../shared/visit.js";
import { Borrowed } from "./borrowed.js";
import { NOTHING, stepsOf } from "./steps.js";

export class Picker {
  /** @param page  the Train page: its state, its form, what it asks */
  constructor(page) {
    this.page = page;
    this.borrowed = new Borrowed();
    this.said = { problems: [], missing: [] };
    this.steps = [];
    this.sections = this.stage = null; // that the steps were made for
    this.wanted = !memory.get("train.form", false);
    this.went = false; // whether a person has gone to a step
    this.bar = el("ol", { class: "rs-way" });
    this.body = el("div", { class: "rs-way-body rs-box" });
    this.back = pushButton("rs-button", t("Back"), () => this.move(-1));
    this.next = pushButton("rs-button rs-primary", "", () => {
      this.step.next();
      this.move(1);
    });
    this.toForm = pushButton("rs-quiet", t("All settings"), () => this.prefer(false));
    this.foot = el("div", { class: "rs-way-foot rs-flow" }, this.back, this.next, this.toForm);
    this.node = el(
      "div",
      { class: "rs-own-way" },
      el("nav", { "aria-label": t("Steps to a run") }, this.bar),
      this.body,
      this.foot,
    );
    this.toSteps = pushButton("rs-button rs-small rs-to-steps", t("Step by step"), () => this.prefer(true));
  }

  /** Whether the steps are shown: on the card of a model of one's own, to who may choose what is on this machine. */
  get active() {
    return this.offered && this.wanted;
  }

  get offered() {
    return this.page.boot.operator && this.page.state.own.has(this.page.state.card) && !this.page.state.origin;
  }

  /** What the server answers; its `problem` is empty where there is none. */
  ask(name, question) {
    const { stage } = this.page.state;
    return this.page.server[name]({ stage, view: onlyWatches(), ...question }).catch((error) => {
      console.error("no answer from the app:", error);
      return { problem: NO_ANSWER };
    });
  }

  /** Steps or form, as the person prefers. */
  prefer(steps) {
    this.wanted = steps;
    memory.set("train.form", !steps);
    this.arrange();
    (steps ? this.step.heading : this.toSteps).focus({ preventScroll: true });
  }

  /** Before the form is made anew: it gets back what is its own. */
  leave() {
    this.borrowed.giveBack();
    this.steps = [];
    this.sections = this.stage = null;
    this.said = { problems: [], missing: [] };
  }

  /** Show the steps or the form, as the card and the person's preference say. */
  arrange() {
    const { active, page } = this;
    page.root.classList.toggle("rs-picking", active);
    show(this.node, active);
    show(this.toSteps, this.offered && !this.wanted);
    if (!active) {
      this.borrowed.giveBack();
      this.lent = false;
      return;
    }
    if (this.sections !== page.sections) {
      this.leave();
      this.sections = page.sections;
      this.stage = page.state.stage;
      this.steps = stepsOf(this, page.state.stage);
      this.lent = false;
    }
    if (!this.lent) for (const step of this.steps) step.borrow?.(this.borrowed);
    this.lent = true;
    const last = this.steps.find(({ key }) => key === memory.get("train.step", "model")) || this.steps[0];
    const open = this.steps.find(({ line }) => line === NOTHING);
    this.draw((last.key === "start" && open) || last);
  }

  draw(step) {
    this.step = step;
    memory.set("train.step", step.key);
    this.page.root.dataset.step = step.key;
    fill(this.body, step.node);
    const at = this.steps.indexOf(step);
    show(this.back, at > 0);
    show(this.next, at < this.steps.length - 1);
    setText(this.next, t("Next: {toLowerCase}", { toLowerCase: this.steps[at + 1]?.title.toLowerCase() }));
    step.enter();
    this.follow();
  }

  /** Go to a step; the focus and the view go with it. */
  go(key) {
    const step = this.steps.find((one) => one.key === key);
    if (!step) return;
    this.went = true;
    this.draw(step);
    step.heading.focus({ preventScroll: true });
    const { top } = this.node.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight / 2) this.node.scrollIntoView({ block: "start" });
    step.showChosen();
  }

  /** The card was just chosen: the step's first field has the focus. */
  begin() {
    (this.step.typed || this.step.heading).focus({ preventScroll: true });
    this.node.scrollIntoView({ block: "nearest" });
  }

  move(by) {
    this.go(this.steps[this.steps.indexOf(this.step) + by].key);
  }

  /** The settings, or what was said of them, may be others now. */
  follow(said = this.said) {
    this.said = said;
    if (!this.active || this.stage !== this.page.state.stage) return; // on the way to the steps of another stage
    const focused = document.activeElement?.getAttribute("data-step");
    each(this.bar, this.steps, (step, place) => this.tab(step, place));
    if (focused) this.bar.querySelector(`.rs-way-tab[data-step="${focused}"]`)?.focus({ preventScroll: true });
    for (const step of this.steps) step.follow(this.problemsOf(step));
  }

  problemsOf(step) {
    return this.said.problems.filter(({ field }) => step.has(field));
  }

  tab(step, place) {
    const wrong = this.problemsOf(step).length > 0;
    const missing = this.said.missing.some(({ field }) => step.has(field));
    const state = wrong ? "wrong" : missing ? "open" : step.key === "start" ? "start" : "done";
    const button = el(
      "button",
      {
        type: "button",
        class: "rs-way-tab",
        "aria-current": step === this.step ? "step" : null,
        data: { step: step.key, state },
        onclick: () => this.go(step.key),
      },
      el("span", { class: "rs-way-number", "aria-hidden": "true" }, state === "done" ? "\u2713" : String(place + 1)),
      el(
        "span",
        { class: "rs-way-name" },
        el("strong", {}, step.title),
        el("span", { class: "rs-way-line" }, wrong ? t("needs a look") : step.line),
      ),
    );
    return el("li", {}, button);
  }

  /** Show the step that a setting belongs to; the form where none does. Gives whether a step shows it. */
  reveal(field) {
    if (!this.active) return false;
    const step = this.steps.find((one) => one.has(field) && this.shows(field));
    if (!step) {
      this.wanted = false; // for now; what the person prefers stays as it is
      this.arrange();
      return false;
    }
    this.go(step.key);
    const node = this.page.sections.find(field)?.node;
    if (node?.isConnected && isOnScreen(node)) this.page.sections.find(field).focus();
    return true;
  }

  /** Whether the steps have a place for a setting. */
  shows(field) {
    return (
      ["model.policy", "data.prompts", "data.source", "reward.components"].some((name) => field.startsWith(name)) ||
      field.endsWith("column")
    );
  }
}
