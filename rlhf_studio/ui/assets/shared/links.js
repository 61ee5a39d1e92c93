// Links to places in this document: they have an address to copy, and a plain click goes there without loading anew.
import { address } from "./address.js";
import { el } from "./dom.js";

/** What a plain click on a link does instead of loading its address. A click with a key opens a window, as always. */
export const onPlainClick = (action) => (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  action();
};

/** A link to another page. */
export const pageLink = (label, page, params, look = null) =>
  el(
    "a",
    {
      class: look,
      href: `?${new URLSearchParams({ tab: page, ...params })}`,
      onclick: onPlainClick(() => address.lead(page, params)),
    },
    label,
  );
