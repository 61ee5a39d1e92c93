// The sheet of keyboard shortcuts.
import { el, elEach, pushButton } from "../shared/dom.js";
import { t } from "../shared/language.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  [
    t("On every page"),
    [
      ["?", t("this sheet")],
      ["Tab, Shift Tab", t("next, previous control")],
      ["Esc", t("close a dialog")],
    ],
  ],
  [
    t("Live: samples and tokens"),
    [
      ["\u2190 \u2192", t("previous, next token")],
      ["\u2191 \u2193", t("previous, next response")],
      ["[ ]", t("previous, next step")],
      [t("1 to 8"), t("what colours the tokens")],
      ["N", t("next moment of the replay")],
    ],
  ],
  [
    t("Feedback"),
    [
      ["A B", t("this response is better")],
      ["T, X", t("equally good, both bad")],
      [t("1 to 9"), t("how sure; in a rating, the rating")],
      ["S, U", t("skip, take the last answer back")],
    ],
  ],
  [t("Recipes, tabs and other groups of choices"), [["\u2190 \u2192", t("previous, next choice")]]],
];

export function openSheet(host) {
  const close = pushButton("rs-button", t("Close"), () => dialog.close());
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
    el("h2", { id: "rs-sheet-title" }, t("Keyboard shortcuts")),
    groups,
    el("div", { class: "rs-dialog-buttons" }, close),
  );
  dialog.addEventListener("close", () => dialog.remove());
  host.append(dialog);
  dialog.showModal();
  close.focus();
}
