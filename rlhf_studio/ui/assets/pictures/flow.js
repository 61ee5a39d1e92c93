// Boxes and arrows in a grid: the loop of PPO, the stages of RLHF.
import { text, tone } from "../charts/axes.js";
import { svg } from "../shared/dom.js";

const [ROW, BOX, GAP, LETTER, BOLD, EDGE] = [92, 58, 26, 6.6, 7.8, 4];

/** Words in lines of at most `letters`. */
function lines(words, letters) {
  const found = [""];
  for (const word of words.split(" ")) {
    if (found.at(-1) && found.at(-1).length + word.length + 1 > letters) found.push(word);
    else found[found.length - 1] = `${found.at(-1)} ${word}`.trim();
  }
  return found;
}

export function flow(picture, width, word) {
  const columns = 1 + Math.max(...picture.boxes.map((box) => box.column));
  const rows = 1 + Math.max(...picture.boxes.map((box) => box.row));
  const wide = (width - GAP * (columns - 1) - 4) / columns;
  /** @returns {[number, number]} */
  const corner = (box) => [2 + box.column * (wide + GAP), 4 + box.row * ROW];
  const height = rows * ROW;
  const named = new Map(picture.boxes.map((box) => [box.label, box]));
  const name = picture.boxes.map((box) => word(box.label)).join(", ");
  const node = svg("svg", { class: "rs-drawing", width, height, role: "img", "aria-label": name });
  for (const box of picture.boxes) {
    for (const to of box.to) node.append(...between(corner(box), corner(named.get(to)), wide));
  }
  for (const box of picture.boxes) {
    const [x, y] = corner(box);
    const style = { stroke: tone(box.tone) };
    node.append(svg("rect", { x, y, width: wide, height: BOX, rx: 8, class: "rs-picture-box", style }));
    const title = lines(word(box.label), Math.floor(wide / BOLD));
    const notes = box.note ? lines(word(box.note), Math.floor(wide / LETTER)) : [];
    const all = [...title, ...notes].slice(0, 3);
    all.forEach((words, place) => {
      const at = y + BOX / 2 + 4 + (place - (all.length - 1) / 2) * 15;
      const bold = place < title.length;
      const tight = words.length * (bold ? BOLD : LETTER) > wide - 2 * EDGE; // a word that is wider than its box
      node.append(
        text(x + wide / 2, at, words, {
          "text-anchor": "middle",
          class: bold ? "rs-picture-box-title" : null,
          ...(tight && { textLength: wide - 2 * EDGE, lengthAdjust: "spacingAndGlyphs" }),
        }),
      );
    });
  }
  return node;
}

function between([x1, y1], [x2, y2], wide) {
  const down = y2 !== y1;
  const from = down ? [x1 + wide / 2, y2 > y1 ? y1 + BOX : y1] : [x2 > x1 ? x1 + wide : x1, y1 + BOX / 2];
  const to = down ? [x2 + wide / 2, y2 > y1 ? y2 : y2 + BOX] : [x2 > x1 ? x2 : x2 + wide, y2 + BOX / 2];
  const angle = (Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI;
  const tip = {
    points: "-6,-4 0,0 -6,4",
    class: "rs-picture-arrow",
    transform: `translate(${to[0]} ${to[1]}) rotate(${angle})`,
  };
  return [
    svg("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: "rs-picture-arrow" }),
    svg("polyline", tip),
  ];
}
