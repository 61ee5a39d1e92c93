// A picture with its caption and its numbers as a table. It is drawn anew when its width or its data changes.
import { el, fill, show } from "../shared/dom.js";
import { bars } from "./bars.js";
import { line, plane } from "./curves.js";
import { flow } from "./flow.js";
import { heat, ledger, wide } from "./grids.js";
import { numbersOf } from "./numbers.js";
import { tokens } from "./tokens.js";
import { t } from "../shared/language.js";

const DRAW = { bars, flow, heat, ledger, line, plane, tokens };
const NARROWEST = 220;

export class PictureView {
  /** @param word  what a label is called in the lesson's language */
  constructor(caption, word) {
    this.word = word;
    this.place = el("div", { class: "rs-learn-drawing" });
    this.table = wide(t("Numbers"));
    this.more = el("details", {}, el("summary", {}, t("Numbers")), this.table);
    this.more.addEventListener("toggle", () => this.list());
    this.node = el("figure", { class: "rs-learn-picture" }, this.place, el("figcaption", {}, caption), this.more);
    new ResizeObserver(() => this.place.clientWidth !== this.width && this.redraw()).observe(this.place);
  }

  put(picture) {
    this.picture = picture;
    this.redraw();
  }

  /** Say in the picture's place what brings it there. */
  promise(text) {
    fill(this.place, el("p", { class: "rs-learn-promise" }, text));
    show(this.more, false);
  }

  redraw() {
    this.width = this.place.clientWidth;
    if (!this.picture || !this.width) return;
    show(this.more, true);
    fill(this.place, DRAW[this.picture.kind](this.picture, Math.max(this.width, NARROWEST), this.word));
    this.reach();
    this.list();
  }

  /** A table wider than its place is moved so that its marked column is seen. */
  reach() {
    const box = this.place.querySelector(".rs-learn-wide");
    const marked = box?.querySelector(".rs-picture-at");
    if (!marked || box.scrollWidth <= box.clientWidth) return;
    const [inner, outer] = [marked.getBoundingClientRect(), box.getBoundingClientRect()];
    if (inner.right > outer.right) box.scrollLeft += inner.right - outer.right;
    if (inner.left < outer.left) box.scrollLeft += inner.left - outer.left;
  }

  list() {
    if (this.picture && this.more.open) fill(this.table, numbersOf(this.picture, this.word));
  }
}
