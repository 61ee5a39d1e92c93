// Where the teacher is: students may follow.
import { address } from "../shared/address.js";
import { el, memory, show } from "../shared/dom.js";
import { pointing } from "./pointing.js";
import { t } from "../shared/language.js";

/** A switch for students: follow the teacher from page to page, with a way back to one's own place. */
export class Follow {
  constructor() {
    this.box = el("input", { type: "checkbox", checked: memory.get("follow", true) });
    this.back = el("button", { type: "button", class: "rs-link", hidden: true }, t("Back to my own place"));
    const label = el("label", {}, this.box, t(" Follow the teacher"));
    this.node = el("span", { class: "rs-follow", hidden: true }, label, " ", this.back);
    [this.seen, this.own, this.last] = [0, null, null];
    this.back.addEventListener("click", () => this.leave());
    this.box.addEventListener("change", () => {
      memory.set("follow", this.box.checked);
      if (this.box.checked && this.last?.seq) this.go();
      else this.point();
    });
  }

  /** What the server says of the class. */
  take(now) {
    this.last = now;
    show(this.node, now.seq > 0);
    if (this.box.checked && now.seq > this.seen) this.go();
    if (now.seq === 0) {
      this.point();
      this.own = this.led = null; // whoever leads next finds one at another place
    }
    this.seen = now.seq; // it begins anew when the teacher's app does
  }

  /** Go where the teacher is; where that is where one was led before, only what the teacher points at is new. */
  go() {
    const here = { page: address.here, params: address.params(address.here) };
    if (!this.own || here.page !== this.ledTo) this.own = here; // a page to which one went oneself
    this.point();
    const { page, params } = this.last;
    const { point, ...place } = params;
    const led = JSON.stringify([page, place]);
    if (led !== this.led || !point) address.lead(page, place);
    this.led = led;
    this.ledTo = page;
    show(this.back, true);
  }

  point() {
    pointing.set(this.box.checked && this.last?.seq > 0 ? this.last : null, t("your teacher points here"));
  }

  leave() {
    this.box.checked = false;
    memory.set("follow", false);
    this.point();
    if (this.own) address.lead(this.own.page, this.own.params);
    this.own = this.led = null;
    show(this.back, false);
  }
}
