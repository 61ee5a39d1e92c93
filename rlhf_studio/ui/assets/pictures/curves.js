// Curves, and points in a plane with zones and arrows.
import { frame, pathOf, text, tone } from "../charts/axes.js";
import { keys } from "../charts/keys.js";
import { svg } from "../shared/dom.js";
import { t } from "../shared/language.js";

const DOT = 5;
const HEAD = 5; // of an arrow

const points = (series, { x, y }) =>
  series.x.map((value, place) => (series.y[place] === null ? null : [x(value), y(series.y[place])]));

const curve = (series, place) =>
  svg("path", { d: pathOf(points(series, place)), class: "rs-picture-curve", style: { stroke: tone(series.tone) } });

const dots = (series, place) =>
  points(series, place)
    .filter(Boolean)
    .map(([cx, cy]) => svg("circle", { cx, cy, r: DOT, class: "rs-picture-dot", style: { fill: tone(series.tone) } }));

/** What each colour means, below the picture. */
const legend = (series, word) =>
  series.length < 2
    ? null
    : keys(series.map((one) => ({ label: word(one.label), colour: tone(one.tone), look: one.dots ? "dot" : "line" })));

const named = (series, word) => series.map((one) => word(one.label)).join(", ");

let clips = 0;

/** A group whose content is cut at the frame. */
function inside({ box }, ...children) {
  const id = `rs-clip-${(clips += 1)}`;
  const area = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  return [svg("clipPath", { id }, svg("rect", area)), svg("g", { "clip-path": `url(#${id})` }, ...children)];
}

export function line(picture, width, word) {
  const place = frame(
    picture,
    width,
    word,
    t("{series}; {y} by {x}", { series: named(picture.series, word), y: word(picture.y), x: word(picture.x) }),
  );
  const { node, x, y, box } = place;
  const levels = Object.entries(picture.levels).flatMap(([label, level]) => [
    svg("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), class: "rs-picture-level" }),
    text(box.right, y(level) - 4, word(label), { "text-anchor": "end" }),
  ]);
  const at =
    picture.at === null
      ? []
      : [svg("line", { x1: x(picture.at), x2: x(picture.at), y1: box.top, y2: box.bottom, class: "rs-picture-level" })];
  const drawn = picture.series.flatMap((series) => (series.dots ? dots(series, place) : [curve(series, place)]));
  node.append(...at, ...inside(place, ...drawn), ...levels);
  return [node, legend(picture.series, word)];
}

function arrow({ x: from, y: up, dx, dy, tone: colour, label }, { x, y }, word) {
  const [x1, y1, x2, y2] = [x(from), y(up), x(from + dx), y(up + dy)];
  const long = Math.hypot(x2 - x1, y2 - y1);
  if (long < 1) return [];
  const [ux, uy] = [(x2 - x1) / long, (y2 - y1) / long];
  const corner = (side) => `${x2 - HEAD * (ux + side * uy)},${y2 - HEAD * (uy - side * ux)}`;
  const style = { stroke: tone(colour) };
  const tip = svg("polyline", { points: `${corner(1)} ${x2},${y2} ${corner(-1)}`, class: "rs-picture-arrow", style });
  const name = label ? [text(x2, y2 - 8, word(label), { "text-anchor": "middle" })] : [];
  return [svg("line", { x1, y1, x2, y2, class: "rs-picture-arrow", style }), tip, ...name];
}

function zone({ x: [left, right], y: [low, high], label, tone: colour }, { x, y }, word) {
  const [x1, x2, y1, y2] = [x(left), x(right), y(high), y(low)];
  if (x2 - x1 < 1 || y2 - y1 < 1) return [];
  const area = svg("rect", {
    x: x1,
    y: y1,
    width: x2 - x1,
    height: y2 - y1,
    class: "rs-picture-zone",
    style: { fill: tone(colour) },
  });
  const words = word(label);
  const fits = words.length * 6.5 < x2 - x1;
  return fits ? [area, text((x1 + x2) / 2, (y1 + y2) / 2, words, { "text-anchor": "middle" })] : [area];
}

export function plane(picture, width, word) {
  const place = frame(
    picture,
    width,
    word,
    t("{points}; {y} by {x}", { points: named(picture.points, word), y: word(picture.y), x: word(picture.x) }),
  );
  const zones = picture.zones.flatMap((one) => zone(one, place, word));
  const arrows = picture.arrows.flatMap((one) => arrow(one, place, word));
  place.node.append(...inside(place, ...zones, ...arrows, ...picture.points.flatMap((series) => dots(series, place))));
  return [place.node, legend(picture.points, word)];
}
