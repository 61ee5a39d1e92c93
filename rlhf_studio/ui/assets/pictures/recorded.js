// The line above what a page shows before there is anything of one's own: a finished example that was recorded.
import { el } from "../shared/dom.js";
import { t } from "../shared/language.js";

export const recorded = (text) =>
  el(
    "p",
    { class: "rs-example" },
    el("span", { class: "rs-example-mark" }, t("Recorded example")),
    el("span", {}, text),
  );

/** The way to the first one of one's own: a sentence, and the one button. */
export const firstOne = (button, text) => el("div", { class: "rs-first rs-box" }, button, el("p", {}, text));
