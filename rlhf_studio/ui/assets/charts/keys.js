// What each colour of a drawing means, below or above it.
import { el, elEach } from "../shared/dom.js";

/** `items` are {label, colour, look}: a `look` is "line", "dot", "area" or "dashed"; a line where none is given. */
export const keys = (items) =>
  elEach("ul", { class: "rs-chart-keys rs-wrap" }, items, ({ label, colour, look = "line" }) =>
    el("li", {}, el("i", { data: { look }, style: { "--c": colour } }), label),
  );
