// One tooltip for all pages: anything with data-term shows its glossary entry on hover, on focus and when it is tapped.
import { el, fill } from "./dom.js";
import { colon, t } from "./language.js";

let glossary = {};
let inWords = {}; // what is said otherwise where lengths count words
let learn = null; // asks for the whole glossary, once, for words that no page has brought
let mounted = false;
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
  glossary = { ...glossary, ...entries };
}

export function setInWords(entries) {
  inWords = entries;
}

/** A word that is explained where it stands: underlined with dots, and reached with the keyboard. */
export const word = (name, ...words) => el("span", { class: "rs-word", tabindex: "0", "data-term": name }, words);

/** A unit; nats are explained where they stand. */
export const unitWords = (unit) => (/\bnats?\b/.test(unit) ? word("nats", t(unit)) : t(unit));

/** Show tips on every page from now on; `ask` gives the glossary, for pages that do not bring their own. */
export function mountTips(ask = null) {
  learn ??= ask;
  if (mounted) return;
  mounted = true;
  document.body.append(box);
  let owner = null;
  let resting = ""; // where the pointer was when it moved last
  const hide = () => {
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
    box.hidden = true;
  };
  const open = (node) => {
    if (node === owner) return;
    hide();
    const name = node.dataset.term;
    owner = node;
    if (name && learn && !isWord(name)) return void fetchWords().then((came) => came && owner === node && reopen(node));
    const content = name ? entryOf(node) : [el("p", {}, node.dataset.tip)];
    fill(box, ...content);
    (node.closest("dialog[open]") || document.body).append(box); // above an open dialog lies only what is in it
    box.hidden = false;
    node.setAttribute("aria-describedby", "rs-tip");
    place(node);
  };
  const reopen = (node) => {
    owner = null;
    open(node);
  };
  const over = ({ target }) => {
    const node = target instanceof Element ? target.closest("[data-term], [data-tip]") : null;
    if (node) open(node);
    else hide();
  };
  /** What comes under a pointer that rests, because the page has changed, shows no tip. */
  const moved = (event) => (placeOf(event) === resting ? event.target !== owner && hide() : over(event));
  const bymouse = (action) => (event) => event.pointerType !== "touch" && action(event); // a finger taps
  document.addEventListener("pointerover", bymouse(moved));
  document.addEventListener("pointermove", (event) => (resting = placeOf(event)));
  document.documentElement.addEventListener("pointerleave", bymouse(hide));
  document.addEventListener("click", over);
  document.addEventListener("focusin", over);
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", hide, true);
}

const placeOf = ({ clientX, clientY }) => `${clientX} ${clientY}`;

const isWord = (name) => Object.hasOwn(glossary, name) || name.startsWith("reward/");

async function fetchWords() {
  try {
    glossary = { ...(await learn()), ...glossary };
    learn = null;
    return true;
  } catch {
    return false; // the next look at a word asks again
  }
}

function entryOf(node) {
  const counted = node.closest("[data-unit=words]") ? inWords[node.dataset.term] : null;
  const entry = counted || term(node.dataset.term);
  const range = rangeOf(entry);
  return [
    el("strong", {}, entry.title, entry.unit ? el("span", { class: "rs-tip-unit" }, t(entry.unit)) : null),
    node.dataset.tip ? el("p", {}, node.dataset.tip) : null,
    el("p", {}, entry.meaning),
    /\bnats?\b/.test(entry.unit) ? el("p", {}, el("b", {}, colon(term("nats").title, "")), term("nats").meaning) : null,
    entry.good ? el("p", { class: "rs-tip-good" }, el("b", {}, t("Good:"), " "), entry.good) : null,
    range ? el("p", { class: "rs-tip-good" }, el("b", {}, t("Usual range:"), " "), range) : null,
  ].filter(Boolean);
}

function rangeOf({ healthy_low: low, healthy_high: high, unit }) {
  if (low === null || high === null) return "";
  const share = unit.startsWith("share of");
  return share ? t("{low} to {high} %", { low: 100 * low, high: 100 * high }) : t("{low} to {high}", { low, high });
}

function place(node) {
  const target = node.getBoundingClientRect();
  const size = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(target.left, window.innerWidth - size.width - 8));
  const below = target.bottom + 6 + size.height < window.innerHeight;
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(8, below ? target.bottom + 6 : target.top - size.height - 6)}px`;
}
