// What the result of a run can be used for: links to the Train page, whose form is filled in then.
import { el } from "./dom.js";
import { readable } from "./format.js";
import { handRecipe, recipeAddress } from "./handover.js";
import { onPlainClick } from "./links.js";

/**
 * @param next  [{title, why, recipe, values}] from the server
 * @param open  called when the Train page is to be shown
 */
export function nextStages(next, open) {
  const links = next.map(({ title, why, recipe, values }) => {
    const click = onPlainClick(() => {
      handRecipe(recipe, values);
      open();
    });
    const link = el(
      "a",
      { class: "rs-link", href: recipeAddress(recipe, values), onclick: click },
      readable(title, 120),
    );
    return el("li", {}, link, " ", el("span", { class: "rs-muted" }, readable(why, 300)));
  });
  return links.length ? el("ul", { class: "rs-next-stages", "aria-label": "Use the result" }, links) : null;
}
