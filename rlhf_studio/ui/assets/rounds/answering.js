// How a student answers: options to choose from, or a field to draw in, and one button that sends.
import { el, pushButton, setText } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { whyNot } from "../shared/visit.js";
import { CurveField } from "./field.js";

const MAY_CHANGE = t("You can change it until your teacher closes the round.");

export class Answering {
  /** @param view  (id, kind, question); `own` is the answer that the server has, null for none */
  constructor(server, view, own, sent) {
    this.server = server;
    this.view = view;
    this.own = own;
    this.sent = sent;
    this.chosen = typeof own === "number" ? own : null;
    this.send = el("button", {
      type: "button",
      class: "rs-button rs-primary rs-class-send",
      onclick: () => this.give(),
    });
    this.status = el("p", { class: "rs-class-status", role: "status" });
    this.clear = pushButton("rs-button", t("Clear"), () => this.field.clear());
    this.node = el(
      "div",
      { class: "rs-class-answering" },
      view.kind === "curve" ? this.drawing() : this.options(),
      el("div", { class: "rs-class-send-row" }, this.send, view.kind === "curve" ? this.clear : null, this.status),
    );
    this.update(own === null ? MAY_CHANGE : t("Sent. {may_change}", { may_change: MAY_CHANGE }));
  }

  drawing() {
    this.field = new CurveField(this.view.question, () => this.touched());
    if (Array.isArray(this.own)) this.field.set(this.own);
    return el(
      "div",
      {},
      this.field.node,
      el("p", { class: "rs-help" }, `${this.field.help} `, el("span", { class: "rs-class-keys" }, this.field.keys)),
    );
  }

  options() {
    const choose = (place) => {
      this.chosen = place;
      this.touched();
    };
    this.buttons = this.view.question.options.map((option, place) =>
      pushButton("rs-class-choice", option, () => choose(place)),
    );
    return el("div", { class: "rs-class-choices", role: "group", "aria-label": t("Your answer") }, this.buttons);
  }

  get ready() {
    return this.field ? this.field.whole : this.chosen !== null;
  }

  /** What would be sent now. */
  get answer() {
    return this.field ? this.field.points : this.chosen;
  }

  touched() {
    this.dirty = this.field ? true : this.chosen !== this.own;
    const half = this.field && !this.ready && this.field.points.length > 0;
    this.update(half ? t("Draw from the left edge to the right one.") : MAY_CHANGE);
  }

  update(text) {
    this.buttons?.forEach((button, place) => button.setAttribute("aria-pressed", String(place === this.chosen)));
    setText(this.send, this.own === null ? t("Send") : this.dirty ? t("Send the change") : t("Sent"));
    this.send.disabled = !this.ready || (this.own !== null && !this.dirty);
    setText(this.status, text);
  }

  async give() {
    if (!this.ready) return;
    this.send.disabled = true;
    const answer = this.answer;
    const told = await this.server
      .class_answer({ round: this.view.id, answer })
      .catch((error) => ({ problem: whyNot(error) }));
    if (!told.problem) {
      this.own = answer;
      this.dirty = false;
      this.sent(answer);
    }
    this.update(told.problem || t("Sent. {may_change}", { may_change: MAY_CHANGE }));
  }
}
