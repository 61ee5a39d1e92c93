// Drawings of our own: where numbers lie on the page, ticks, lines, and the frame of a picture with two axes.
import { svg } from "../shared/dom.js";
import { textSize } from "../shared/lasting.js";

const HEIGHT = 260;
const EDGES = { left: 44, right: 14, top: 28, bottom: 40 };
const STEPS = [1, 2, 2.5, 5, 10];

/** A function from numbers of `range` to pixels. */
export const scale =
  ([low, high], [from, to]) =>
  (value) =>
    from + ((value - low) / (high - low || 1)) * (to - from);

/** The path through points in pixels, [[x, y], …]; a gap where there is none. */
export function pathOf(points) {
  let letter = "M";
  return points
    .map((point) => {
      const part = point && `${letter}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      letter = point ? "L" : "M";
      return part ?? "";
    })
    .join("");
}

/**
 * The path of a small picture of values, the newest at the right; null for fewer than two. Its height stands for
 * `least` or more, so that a smaller change is drawn as a nearly flat line.
 */
export function sparkPath(values, width, height, least) {
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = scale([0, values.length - 1], [2, width - 2]);
  const y = scale([low, low + Math.max(high - low, least)], [height - 3, 3]);
  return pathOf(values.map((value, index) => [x(index), y(value)]));
}

/** Heights of words that keep a distance from each other, near those wanted. */
export function apart(wanted, distance) {
  const order = wanted.map((_, place) => place).sort((one, other) => wanted[one] - wanted[other]);
  const found = [...wanted];
  order.slice(1).forEach((place, index) => {
    const above = order[index];
    const overlap = distance - (found[place] - found[above]);
    if (overlap <= 0) return;
    found[above] -= overlap / 2;
    found[place] += overlap / 2;
  });
  return found;
}

/** Round numbers inside a range, about `count` of them. */
export function ticks([low, high], count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((one) => one * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let place = first; place * step <= high + 1e-9 * step; place += 1) found.push(place * step);
  return found;
}

/** A round number without zeros at its end. */
export const shortest = (value) => String(Number(value.toPrecision(6))).replace("-", "\u2212");

export const tone = (name) =>
  name === "plus" ? "var(--plus)" : name === "minus" ? "var(--minus)" : `var(--q-${name === "quiet" ? "zero" : name})`;

export const text = (x, y, words, properties = {}) => svg("text", { x, y, ...properties }, words);

/** The frame of a picture with two axes: {node, x, y, box}, with scales in pixels. */
export function frame({ x_range, y_range, x: xName, y: yName }, width, word, name, height = HEIGHT) {
  const edge = Object.fromEntries(Object.entries(EDGES).map(([side, size]) => [side, size * textSize()]));
  const box = { left: edge.left, right: width - edge.right, top: edge.top, bottom: height - edge.bottom };
  const x = scale(x_range, [box.left, box.right]);
  const y = scale(y_range, [box.bottom, box.top]);
  const node = svg("svg", { class: "rs-drawing", width, height, role: "img", "aria-label": name });
  for (const value of ticks(y_range, 5)) {
    const zero = Math.abs(value) < 1e-12;
    node.append(
      svg("line", {
        x1: box.left,
        x2: box.right,
        y1: y(value),
        y2: y(value),
        class: zero ? "rs-axis-zero" : "rs-axis-grid",
      }),
      text(box.left - 6, y(value) + 4, shortest(value), { "text-anchor": "end" }),
    );
  }
  for (const value of ticks(x_range, width < 360 ? 4 : 7)) {
    node.append(
      svg("line", { x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 4, class: "rs-axis-zero" }),
      text(x(value), box.bottom + 16 * textSize(), shortest(value), { "text-anchor": "middle" }),
    );
  }
  node.append(
    text((box.left + box.right) / 2, height - 6, word(xName), { "text-anchor": "middle" }),
    text(0, 14 * textSize(), word(yName)),
  );
  return { node, x, y, box };
}
