// The sheet of keyboard shortcuts.
import { el, elEach, pushButton } from "../shared/dom.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  [
    "On every page",
    [
      ["?", "this sheet"],
      ["Tab, Shift Tab", "next, previous control"],
      ["Esc", "close a dialog"],
    ],
  ],
  [
    "Live: samples and tokens",
    [
      ["\u2190 \u2192", "previous, next token"],
      ["\u2191 \u2193", "previous, next response"],
      ["[ ]", "previous, next step"],
      ["1 to 8", "what colours the tokens"],
    ],
  ],
  [
    "Feedback",
    [
      ["A B", "this response is better"],
      ["T, X", "equally good, both bad"],
      ["1 to 9", "how sure; in a rating, the rating"],
      ["S, U", "skip, take the last answer back"],
    ],
  ],
  ["Recipes, tabs and other groups of choices", [["\u2190 \u2192", "previous, next choice"]]],
];

export function openSheet(host) {
  const close = pushButton("rs-button", "Close", () => dialog.close());
  const groups = KEYS.map(([title, rows]) =>
    el(
      "section",
      {},
      el("h3", {}, title),
      elEach("dl", {}, rows, ([keys, what]) => el("div", {}, el("dt", {}, el("kbd", {}, keys)), el("dd", {}, what))),
    ),
  );
  const dialog = el(
    "dialog",
    { class: "rs-dialog rs-sheet", "aria-labelledby": "rs-sheet-title" },
    el("h2", { id: "rs-sheet-title" }, "Keyboard shortcuts"),
    groups,
    el("div", { class: "rs-dialog-buttons" }, close),
  );
  dialog.addEventListener("close", () => dialog.remove());
  host.append(dialog);
  dialog.showModal();
  close.focus();
}
