// One tooltip for the whole page: anything with data-term shows its glossary entry on hover and on focus.
import { el, fill } from "./dom.js";

let glossary = {};
const box = el("div", { class: "rs-tip", role: "tooltip", id: "rs-tip", hidden: true });

export function term(name) {
  if (Object.hasOwn(glossary, name)) return glossary[name];
  const part = name.startsWith("reward/") ? glossary["reward/*"] : null;
  return {
    unit: "",
    meaning: "",
    good: "",
    healthy_low: null,
    healthy_high: null,
    ...part,
    title: part ? name.slice(7) : name,
  };
}

export function setGlossary(entries) {
  glossary = entries;
}

/** Show tips for everything inside the page's root. */
export function mountTips(root) {
  document.body.append(box);
  let owner = null;
  const hide = () => {
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
    box.hidden = true;
  };
  const open = (node) => {
    if (node === owner) return;
    hide();
    const content = node.dataset.term ? entryOf(node) : node.dataset.tip ? [el("p", {}, node.dataset.tip)] : null;
    if (!content) return;
    owner = node;
    fill(box, ...content);
    (node.closest("dialog[open]") || document.body).append(box); // above an open dialog lies only what is in it
    box.hidden = false;
    node.setAttribute("aria-describedby", "rs-tip");
    place(node);
  };
  const near = (event) => (event.target instanceof Element ? event.target.closest("[data-term], [data-tip]") : null);
  const over = (event) => (near(event) && root.contains(near(event)) ? open(near(event)) : hide());
  const escape = (event) => event.key === "Escape" && hide();
  root.addEventListener("pointerover", over);
  root.addEventListener("pointerleave", hide);
  root.addEventListener("focusin", over);
  root.addEventListener("focusout", hide);
  document.addEventListener("keydown", escape);
  document.addEventListener("scroll", hide, true);
}

function entryOf(node) {
  const entry = term(node.dataset.term);
  const range = rangeOf(entry);
  return [
    el("strong", {}, entry.title, entry.unit ? el("span", { class: "rs-tip-unit" }, entry.unit) : null),
    node.dataset.tip ? el("p", {}, node.dataset.tip) : null,
    el("p", {}, entry.meaning),
    entry.good ? el("p", { class: "rs-tip-good" }, el("b", {}, "Good: "), entry.good) : null,
    range ? el("p", { class: "rs-tip-good" }, el("b", {}, "Usual range: "), range) : null,
  ].filter(Boolean);
}

function rangeOf({ healthy_low: low, healthy_high: high, unit }) {
  if (low === null || high === null) return "";
  const share = unit.startsWith("share of");
  return share ? `${100 * low} to ${100 * high} %` : `${low} to ${high}`;
}

function place(node) {
  const target = node.getBoundingClientRect();
  const size = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(target.left, window.innerWidth - size.width - 8));
  const below = target.bottom + 6 + size.height < window.innerHeight;
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(8, below ? target.bottom + 6 : target.top - size.height - 6)}px`;
}
