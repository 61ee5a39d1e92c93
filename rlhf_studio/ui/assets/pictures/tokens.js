// A text as coloured tokens, blue below 0 and orange above, with each number below its token.
import { el } from "../shared/dom.js";
import { fixed } from "../shared/format.js";

/** The colour of a number: how far it is from 0 on the way to `size`. */
export function shade(value, size) {
  if (value === null) return "transparent";
  const share = Math.min(1, Math.abs(value) / (size || 1));
  return `color-mix(in srgb, var(--${value < 0 ? "minus" : "plus"}) ${(100 * share).toFixed(0)}%, var(--even))`;
}

export function tokens(picture, width, word) {
  const items = picture.items.map((item) =>
    el(
      "li",
      { class: item.mark ? `rs-learn-token rs-token-${item.mark}` : "rs-learn-token" },
      el("span", { class: "rs-learn-piece", style: { background: shade(item.value, picture.size) } }, word(item.text)),
      item.value === null ? null : el("span", { class: "rs-learn-under" }, fixed(item.value, picture.digits)),
      item.note ? el("span", { class: "rs-learn-under" }, word(item.note)) : null,
    ),
  );
  return [
    el("p", { class: "rs-learn-unit" }, word(picture.label)),
    el("ol", { class: "rs-learn-tokens rs-wrap" }, items),
  ];
}
