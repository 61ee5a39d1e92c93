// The teacher's dialog: the class link with its code, what students may do, the own link, and the end of the class.
import { el, fill, setText, show, svg } from "../shared/dom.js";
import { NO_ANSWER } from "../shared/visit.js";

const BORDER = 4; // that cameras need

export class ClassDialog {
  /**
   * @param answer   the class as the server has it
   * @param tell     sends a change; gives the class anew
   * @param lead     begins to lead the class, or stops
   * @param changed  called when what pages show may have changed
   */
  constructor(answer, tell, lead, changed) {
    Object.assign(this, { tell, changed });
    this.link = el("code", { class: "rs-class-link", tabindex: "0" });
    this.picture = el("div", {});
    this.own = el("code", { class: "rs-class-link", tabindex: "0" });
    this.status = el("p", { class: "rs-help", role: "status" });
    this.switches = el(
      "div",
      {},
      this.lead(answer.leads, lead),
      this.check("runs", answer.runs, "Students may start small runs of their own"),
      this.check("names", answer.names, "Students may type a name; turning this off removes the names"),
    );
    this.told = el("p", {});
    const renewed = () => `${this.over ? "A new class has begun" : "The old link has ended"}. Students need this link.`;
    this.renew = el("button", { type: "button", class: "rs-button" }, "New link");
    this.renew.addEventListener("click", () => this.do({ renew: true }, renewed()));
    this.end = el("button", { type: "button", class: "rs-button rs-class-end" }, "End the class");
    this.end.addEventListener("click", () => this.finish());
    const close = el("button", { type: "button", class: "rs-button rs-primary" }, "Close");
    close.addEventListener("click", () => this.node.close());
    this.node = el(
      "dialog",
      { class: "rs-dialog rs-class", "aria-labelledby": "rs-class-title" },
      el("h2", { id: "rs-class-title" }, "Your class"),
      this.told,
      this.picture,
      el("p", {}, this.link),
      this.switches,
      this.teachersLink(),
      this.status,
      el("div", { class: "rs-dialog-buttons" }, this.end, this.renew, close),
    );
    this.node.addEventListener("close", () => this.node.remove());
    this.draw(answer);
  }

  check(name, on, words) {
    const box = el("input", { type: "checkbox", checked: on });
    box.addEventListener("change", () => this.do({ [name]: box.checked }));
    return el("label", {}, box, ` ${words}`);
  }

  lead(on, action) {
    const box = el("input", { type: "checkbox", checked: on });
    const failed = () => setText(this.status, NO_ANSWER);
    box.addEventListener("change", () => action(box.checked).catch(failed));
    return el("label", {}, box, " Lead the class: who follows sees the page that you see, and the token you point at");
  }

  button(words, change, said) {
    return el("button", { type: "button", class: "rs-button", onclick: () => this.do(change, said) }, words);
  }

  /** Out of sight until it is opened: who has it is the teacher. */
  teachersLink() {
    const renew = this.button(
      "New teacher's link",
      { teacher: true },
      "The old teacher's link has ended. This page has the new one.",
    );
    return el(
      "details",
      { class: "rs-class-own-link" },
      el("summary", {}, "Your own link, for another device"),
      el("p", { class: "rs-help" }, "Who opens it may do everything. Do not show it on the projector."),
      el("p", {}, this.own),
      renew,
    );
  }

  finish() {
    if (this.sure) return this.do({ end: true }, "The class has ended.");
    this.sure = true;
    this.end.classList.add("rs-danger");
    setText(this.end, "End it now");
    setText(
      this.status,
      "Students lose the link, and of their answers only the names they typed are kept. Click again.",
    );
    return undefined;
  }

  async do(change, said = "") {
    const answer = await this.tell(change).catch((error) => (console.error(error), null));
    setText(this.status, answer ? answer.problem || said : NO_ANSWER);
    if (!answer || answer.problem) return;
    // so that this browser keeps the new token
    if (change.teacher) await fetch(new URL(answer.teacher).search, { redirect: "manual" });
    this.draw(answer);
    this.changed();
  }

  draw({ link, code, teacher, ended }) {
    this.sure = false;
    this.over = ended;
    this.end.classList.remove("rs-danger");
    setText(this.end, "End the class");
    setText(this.renew, ended ? "Begin a new class" : "New link");
    const join = "Students open this link, or point a phone at the code. They need no account.";
    setText(this.told, ended ? "The class has ended: its link admits nobody any more." : join);
    setText(this.link, link);
    setText(this.own, teacher);
    for (const node of [this.picture, this.switches, this.end]) show(node, !ended);
    if (!ended) fill(this.picture, picture(code));
  }
}

/** A QR code from its rows of 1 and 0. */
function picture(code) {
  const size = code.length + 2 * BORDER;
  const square = (x, y) => `M${x + BORDER} ${y + BORDER}h1v1h-1z`;
  const dark = code.flatMap((row, y) => [...row].flatMap((one, x) => (one === "1" ? square(x, y) : [])));
  const look = {
    class: "rs-class-code",
    viewBox: `0 0 ${size} ${size}`,
    role: "img",
    "aria-label": "The link as a QR code",
  };
  return svg("svg", look, svg("path", { d: dark.join("") }));
}
