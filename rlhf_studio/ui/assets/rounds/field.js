// A field in which a curve is drawn, with a finger, a mouse, or the keyboard.
import { frame, pathOf } from "../charts/axes.js";
import { el, fill, svg } from "../shared/dom.js";
import { number } from "../shared/format.js";
import { t } from "../shared/language.js";

const COLUMNS = 64; // places along the width that have a height
const EDGE = 0.1; // of the width that may be left out on each side, as the server has it
const HANDLES = 5; // that arrow keys move
const STEP = 0.05; // of the height, for one press of a key
const HEIGHT = 300;

export class CurveField {
  /**
   * @param question  (first, last, low, high, label)
   * @param changed   called when something was drawn
   */
  constructor(question, changed) {
    this.question = question;
    this.changed = changed;
    this.heights = Array(COLUMNS).fill(null);
    this.column = null;
    this.handle = 0;
    this.help = t("Draw with a finger or the mouse.");
    this.keys = t("With the keyboard: left and right choose a place, up and down move it.");
    this.node = el("div", {
      class: "rs-class-field",
      role: "slider",
      tabindex: "0",
      "aria-label": t("Your curve: {label}. {keys}", { label: question.label, keys: this.keys }),
      "aria-valuemin": question.low,
      "aria-valuemax": question.high,
    });
    for (const [name, action] of Object.entries({
      pointerdown: (event) => this.down(event),
      pointermove: (event) => this.column !== null && this.draw(event),
      pointerup: () => this.up(),
      pointercancel: () => this.up(),
      keydown: (event) => this.press(event),
    }))
      this.node.addEventListener(name, action);
    new ResizeObserver(() => this.build()).observe(this.node);
  }

  /** Whether the curve goes from one edge to the other. */
  get whole() {
    const drawn = this.heights.map((height, place) => (height === null ? -1 : place)).filter((place) => place >= 0);
    return drawn.length > 1 && drawn[0] <= EDGE * (COLUMNS - 1) && drawn.at(-1) >= (1 - EDGE) * (COLUMNS - 1);
  }

  stepOf(column) {
    const { first, last } = this.question;
    return first + (column / (COLUMNS - 1)) * (last - first);
  }

  /** What was drawn, as the server takes it: [[step, value], …]. */
  get points() {
    return this.heights.flatMap((height, column) => (height === null ? [] : [[this.stepOf(column), height]]));
  }

  /** Show a curve that the server has kept: heights at equal distances. */
  set(heights) {
    const scale = (heights.length - 1) / (COLUMNS - 1);
    this.heights = this.heights.map((_, column) => {
      const place = Math.min(heights.length - 2, Math.floor(column * scale));
      const share = column * scale - place;
      return heights[place] * (1 - share) + heights[place + 1] * share;
    });
    this.trace();
  }

  clear() {
    this.heights.fill(null);
    this.trace();
    this.changed();
  }

  build() {
    const width = Math.floor(this.node.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const { first, last, low, high, label } = this.question;
    const axes = { x_range: [first, last], y_range: [low, high], x: t("Step"), y: label };
    this.place = frame(axes, width, String, label, HEIGHT);
    this.line = svg("path", { class: "rs-class-drawn" });
    this.mark = svg("circle", { class: "rs-class-handle", r: 6 });
    this.place.node.append(this.line, this.mark);
    fill(this.node, this.place.node);
    this.trace();
  }

  trace() {
    if (!this.place) return;
    const { x, y } = this.place;
    this.line.setAttribute("d", pathOf(this.points.map(([step, height]) => [x(step), y(height)])));
    const column = this.columnOf(this.handle);
    const height = this.heights[column];
    this.mark.style.display = height === null ? "none" : "";
    this.mark.setAttribute("cx", x(this.stepOf(column)));
    this.mark.setAttribute("cy", y(height ?? this.question.low));
    this.node.setAttribute("aria-valuenow", height ?? this.question.low);
    const said =
      height === null
        ? t("nothing drawn")
        : t("step {column}: {height}", { column: Math.round(this.stepOf(column)), height: number(height) });
    this.node.setAttribute("aria-valuetext", said);
  }

  // --- finger and mouse ---

  down(event) {
    if (event.button) return;
    event.preventDefault();
    this.node.focus({ preventScroll: true });
    this.node.setPointerCapture(event.pointerId);
    this.draw(event);
  }

  up() {
    this.column = null;
    this.changed();
  }

  /** The place under the pointer; from the last one to it the line is straight. */
  draw(event) {
    const box = this.place.node.getBoundingClientRect();
    const { left, right, top, bottom } = this.place.box;
    const within = (share) => Math.max(0, Math.min(1, share));
    const across = within((event.clientX - box.left - left) / (right - left));
    const up = within((bottom - (event.clientY - box.top)) / (bottom - top));
    const column = Math.round(across * (COLUMNS - 1));
    const height = this.question.low + up * (this.question.high - this.question.low);
    this.join(this.column ?? column, this.column === null ? height : this.heights[this.column], column, height);
    this.column = column;
    this.trace();
  }

  join(from, before, to, after) {
    const count = Math.abs(to - from);
    for (let place = 0; place <= count; place += 1) {
      const share = count ? place / count : 1;
      this.heights[from + Math.sign(to - from) * place] = before + share * (after - before);
    }
  }

  // --- keyboard ---

  columnOf(handle) {
    return Math.round((handle / (HANDLES - 1)) * (COLUMNS - 1));
  }

  press(event) {
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const upwards = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!sideways && !upwards) return;
    event.preventDefault();
    if (sideways) this.handle = Math.max(0, Math.min(HANDLES - 1, this.handle + sideways));
    else this.lift(upwards);
    this.trace();
    if (upwards) this.changed();
  }

  /** Move the chosen place; the curve to its neighbours becomes straight. What was not drawn begins in the middle. */
  lift(by) {
    const { low, high } = this.question;
    if (!this.whole) this.heights.fill((low + high) / 2);
    const at = this.columnOf(this.handle);
    const moved = Math.max(low, Math.min(high, this.heights[at] + by * STEP * (high - low)));
    this.heights[at] = moved;
    for (const other of [this.handle - 1, this.handle + 1]) {
      if (other < 0 || other >= HANDLES) continue;
      const column = this.columnOf(other);
      this.join(column, this.heights[column], at, moved);
    }
  }
}
