// The curves of a replay, drawn once up to the end: a window over them opens as it goes on, and dots run ahead.
import { apart, pathOf, scale, shortest, text, ticks } from "../charts/axes.js";
import { svg } from "../shared/dom.js";
import { number } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { rangeOf, recordedAt, valueAt } from "./sums.js";
import { t, tp } from "../shared/language.js";

const HERO = 104; // the right edge where words are large
const EDGES = { left: 40, right: 92, top: 32, bottom: 24 };
const FLAT = 8; // below a chart without words at its axis
const DOT = 4;
const DIAMOND = 5;
const LINE = 15; // pixels from one word at the running dots to the next
const GAP_WORDS = 46; // pixels between the dots from which the gap has words

/** The area between two series as paths: a new one after each step where one of them is not known. */
function between(upper, lower) {
  const parts = [];
  let open = [];
  const close = () => {
    if (open.length > 1)
      parts.push(`${pathOf([...open.map(([top]) => top), ...open.map(([, low]) => low).reverse()])}Z`);
    open = [];
  };
  upper.forEach((top, place) => (top && lower[place] ? open.push([top, lower[place]]) : close()));
  close();
  return parts.join("");
}

let windows = 0;

export class ReplayChart {
  /**
   * @param steps    the steps of all points
   * @param lines    [{name, label, series}]: a `name` is that of its colour
   * @param title    what stands above the axis
   * @param shades   whether the gap between the first two lines is shaded
   * @param marks    the places of moments
   * @param levels   [{value, label}] of hairlines across, drawn where they lie in the range
   * @param digits   decimals of the numbers at the dots
   * @param axis     whether the steps have numbers below
   * @param diamonds whether moments have diamonds above; hairlines they have always
   * @param titled   whether the title stands in the picture
   */
  constructor({
    steps,
    lines,
    title,
    shades = false,
    marks = [],
    levels = [],
    height,
    digits = 2,
    axis = true,
    diamonds = true,
    titled = true,
  }) {
    this.about = { steps, lines, title, shades, marks, levels, digits, axis, diamonds, titled };
    this.height = height;
    this.node = svg("svg", { class: "rs-drawing rs-replay-chart", role: "img", "aria-label": title });
    this.range = rangeOf(lines.map(({ series }) => series));
    /** @type {{ box: any, x: (step: number) => number, y: (value: number) => number }} */
    this.plane = null;
  }

  /** Draw everything for a width in pixels. */
  draw(width, height = this.height) {
    const { node } = this;
    const { steps, lines, shades, marks, levels, axis, diamonds, titled } = this.about;
    const edges = titled ? EDGES : { ...EDGES, right: HERO };
    const edge = Object.fromEntries(Object.entries(edges).map(([side, size]) => [side, size * textSize()]));
    if (!axis) edge.bottom = FLAT;
    if (!diamonds) edge.top -= 2 * DIAMOND;
    if (!titled) edge.top -= LINE * textSize();
    const box = { left: edge.left, right: width - edge.right, top: edge.top, bottom: height - edge.bottom };
    const x = scale(/** @type {[number, number]} */ ([steps[0], steps.at(-1)]), [box.left, box.right]);
    const y = scale(this.range, [box.bottom, box.top]);
    this.plane = { box, x, y };
    for (const [name, size] of Object.entries({ width, height })) node.setAttribute(name, size);
    const id = `rs-replay-window-${(windows += 1)}`;
    this.window = svg("rect", { x: box.left - DOT, y: 0, width: DOT, height });
    const points = lines.map(({ series }) =>
      series.map((value, place) => (Number.isFinite(value) ? [x(steps[place]), y(value)] : null)),
    );
    const curves = points.map((one, place) =>
      svg("path", { class: "rs-replay-curve", d: pathOf(one), style: { stroke: `var(--q-${lines[place].name})` } }),
    );
    const area = shades ? [svg("path", { class: "rs-replay-gap", d: between(points[0], points[1]) })] : [];
    this.moments = marks.map((place) => this.mark(x(steps[place])));
    this.heads = lines.map((line) => this.head(line));
    this.rule = svg("line", { class: "rs-replay-now", y1: box.top, y2: box.bottom });
    this.gap = text(box.right, 0, "", { class: "rs-replay-words" });
    node.replaceChildren(
      svg("clipPath", { id }, this.window),
      ...this.axes(),
      ...levels.flatMap((level) => this.level(level)),
      ...this.moments,
      this.rule,
      svg("g", { "clip-path": `url(#${id})` }, ...area, ...curves),
      ...this.heads.flatMap(({ dot, words }) => [dot, words]),
      ...(shades ? [this.gap] : []),
    );
  }

  axes() {
    const { range } = this;
    const { steps, title, axis, titled } = this.about;
    const { box, x, y } = this.plane;
    const size = textSize();
    const across = ticks(range, box.bottom - box.top < 96 ? 2 : 4).flatMap((value) => [
      svg("line", {
        x1: box.left,
        x2: box.right,
        y1: y(value),
        y2: y(value),
        class: Math.abs(value) < 1e-12 ? "rs-axis-zero" : "rs-axis-grid",
      }),
      text(box.left - 8, y(value) + 4 * size, shortest(value), {
        "text-anchor": "end",
      }),
    ]);
    const whole = ticks([steps[0], steps.at(-1)], box.right - box.left < 300 ? 3 : 6).filter(Number.isInteger);
    const below = axis
      ? whole.map((step) => text(x(step), box.bottom + 17 * size, String(step), { "text-anchor": "middle" }))
      : [];
    const name = axis ? [text(box.left - 8, box.bottom + 17 * size, tp("axis", "step"), { "text-anchor": "end" })] : [];
    const above = titled ? [text(0, 12 * size, title, { class: "rs-replay-title" })] : [];
    return [...across, ...below, ...name, ...above];
  }

  /** A hairline at a value that is known beforehand, such as a target. */
  level({ value, label }) {
    const { box, y } = this.plane;
    const { range } = this;
    if (value < range[0] || value > range[1]) return [];
    const at = y(value);
    return [
      svg("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "rs-replay-level" }),
      text(box.right + 8, at + 4 * textSize(), `${label} ${shortest(value)}`),
    ];
  }

  /** A moment: a diamond above the curves, and a hairline through them. */
  mark(x) {
    const { box } = this.plane;
    const [top, size] = [box.top - DIAMOND, DIAMOND];
    const node = svg("g", { class: "rs-replay-mark" }, svg("line", { x1: x, x2: x, y1: box.top, y2: box.bottom }));
    const d = `M${x} ${top - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}Z`;
    if (this.about.diamonds) node.append(svg("path", { d }));
    return node;
  }

  head({ name, label }) {
    const style = { fill: `var(--q-${name})` };
    const dot = svg("circle", { r: DOT, class: "rs-replay-dot", style });
    return { dot, words: text(0, 0, label, { class: "rs-replay-words", style }) };
  }

  /** Show everything up to a place, which may lie between two steps. */
  show(place) {
    const { box, x, y } = this.plane;
    const { steps, lines, shades, digits } = this.about;
    const here = x(valueAt(steps, place));
    this.window.setAttribute("width", (here - box.left + DOT).toFixed(1));
    for (const end of ["x1", "x2"]) this.rule.setAttribute(end, here.toFixed(1));
    const values = lines.map(({ series }) => valueAt(series, place));
    const recorded = lines.map(({ series }) => recordedAt(series, place));
    const heights = values.map((value) => (value === null ? box.top : y(value)));
    const beside = apart(heights, LINE * textSize());
    this.heads.forEach(({ dot, words }, index) => {
      const known = values[index] !== null;
      dot.setAttribute("visibility", known ? "visible" : "hidden");
      words.setAttribute("visibility", known ? "visible" : "hidden");
      dot.setAttribute("cx", here.toFixed(1));
      dot.setAttribute("cy", heights[index].toFixed(1));
      words.setAttribute("x", (here + 10).toFixed(1));
      words.setAttribute("y", (beside[index] + 4 * textSize()).toFixed(1));
      // the dot glides; what is written is on record at the step that is named
      say(words, `${lines[index].label} ${number(recorded[index], digits)}`);
    });
    if (shades) this.sayGap(here, recorded, heights);
  }

  sayGap(here, [first, second], [one, other]) {
    const shown = first !== null && second !== null && Math.abs(one - other) >= GAP_WORDS * textSize();
    this.gap.setAttribute("visibility", shown ? "visible" : "hidden");
    if (!shown) return;
    this.gap.setAttribute("x", (here + 10).toFixed(1));
    this.gap.setAttribute("y", ((one + other) / 2 + 4 * textSize()).toFixed(1));
    say(this.gap, t("gap {gap}", { gap: number(Math.abs(first - second), this.about.digits) }));
  }

  /** Fill the diamonds of the moments up to this place. */
  reach(place) {
    this.about.marks.forEach((one, index) => this.moments[index].classList.toggle("rs-reached", one <= place));
  }
}

/** Change the words of a text without making a new node for them. */
function say(node, words) {
  if (node.firstChild.data !== words) node.firstChild.data = words;
}
