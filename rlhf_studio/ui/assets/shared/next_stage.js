// What the result of a run can be used for: links to the Train page, whose form is filled in then.
import { el } from "./dom.js";
import { readable } from "./format.js";
import { handRecipe, recipeAddress } from "./handover.js";
import { onPlainClick } from "./links.js";
import { t } from "./language.js";

/** A link to the Train page, with its form filled in; `open` is called when that page is to be shown. */
export function stageLink({ title, recipe, values }, open, look = "rs-link") {
  const click = onPlainClick(() => {
    handRecipe(recipe, values);
    open();
  });
  return el("a", { class: look, href: recipeAddress(recipe, values), onclick: click }, readable(title, 120));
}

/**
 * @param next  [{title, why, recipe, values}] from the server
 * @param open  called when the Train page is to be shown
 */
export function nextStages(next, open) {
  const links = next.map((stage) =>
    el("li", {}, stageLink(stage, open), " ", el("span", { class: "rs-muted" }, readable(stage.why, 300))),
  );
  return links.length ? el("ul", { class: "rs-next-stages", "aria-label": t("Use the result") }, links) : null;
}
