// Building blocks for the page. Text reaches the document only as text nodes: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

function apply(node, properties) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.setAttribute("class", value);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key === "style") for (const [name, item] of Object.entries(value)) node.style.setProperty(name, item);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  return node;
}

/** An element with attributes, listeners (`onclick`) and children; strings become text nodes. */
export function el(tag, properties, ...children) {
  const node = apply(document.createElement(tag), properties);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An element with a child for each item; `make` makes it. */
export const elEach = (tag, properties, items, make) => el(tag, properties, items.map(make));

/** A button that does something; `words` are its children. */
export const pushButton = (look, words, onclick) => el("button", { type: "button", class: look, onclick }, words);

/** Words above a control, and a line of help below it. */
export const labelled = (words, control, help = "") =>
  el(
    "label",
    { class: "rs-labelled" },
    el("span", { class: "rs-label" }, words),
    control,
    help ? el("span", { class: "rs-help" }, help) : null,
  );

/** A link to another website, in a tab of its own; null where there is no address. */
export const newTab = (href, words) => (href ? el("a", { href, target: "_blank", rel: "noopener" }, words) : null);

/** The same for SVG. */
export function svg(tag, properties, ...children) {
  const node = apply(document.createElementNS(SVG, tag), properties);
  node.append(...children);
  return node;
}

/** Change a node's text only when it differs, so that selections and screen readers are left in peace. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
  return node;
}

const EDGE = 8;

/** Move what hangs at a button, such as a menu, sideways until it lies inside the window. */
export function keepInside(node) {
  node.style.translate = "none";
  const { left, right } = node.getBoundingClientRect();
  const by = Math.max(EDGE - left, Math.min(0, document.documentElement.clientWidth - EDGE - right));
  node.style.translate = by ? `${by}px` : "none";
}

/** Replace the children of `node`. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Replace the children of `node` by one for each item; `make` makes it. */
export const each = (node, items, make) => fill(node, items.map(make));

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

const groupOf = (node) => node.closest("[data-check]")?.dataset.check;

/** What in `node` can have the focus and is of the kind of `model`: the same tag, in the same finding. */
const likes = (node, { tag, group }) =>
  [...node.querySelectorAll(FOCUSABLE)].filter((one) => one.tagName === tag && groupOf(one) === group);

/**
 * Call `action`, which replaces the children of `node`. The focus goes on to what reads the same, else to what stands
 * at the same place, else to `otherwise`.
 */
export function redraw(node, otherwise, action) {
  const had = document.activeElement;
  if (had === node || !node.contains(had)) return action();
  const model = { tag: had.tagName, group: groupOf(had) };
  const text = had.textContent;
  const place = likes(node, model).indexOf(had);
  action();
  const now = likes(node, model);
  const next = now[place]?.textContent === text ? now[place] : now.find((one) => one.textContent === text);
  (next || now[place] || otherwise).focus({ preventScroll: true });
  return undefined;
}

export function debounce(wait, action) {
  let timer = 0;
  return (...rest) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...rest), wait);
  };
}

/** Reads and writes small preferences in what `storage` gives; a blocked storage is no reason to fail. */
export const preferences = (storage) => ({
  get(key, fallback) {
    try {
      const text = storage().getItem(`rlhf-studio.${key}`);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  set(key, value) {
    try {
      storage().setItem(`rlhf-studio.${key}`, JSON.stringify(value));
    } catch {
      // private windows may refuse; the choice then lasts until the page is left
    }
  },
});

/** Preferences of this tab. */
export const memory = preferences(() => sessionStorage);
