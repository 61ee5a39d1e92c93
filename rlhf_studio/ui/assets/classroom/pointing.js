// Where the teacher points: a token of a response on Live, or of a picture in a lesson. What shows tokens asks here.
import { address } from "../shared/address.js";
import { el } from "../shared/dom.js";

class Pointing {
  constructor() {
    this.place = null; // {page, params}, as the teacher's address has it; null for nowhere
    this.words = "";
    this.listeners = new Set();
  }

  /** Call `action()` whenever the teacher points elsewhere. */
  onchange(action) {
    this.listeners.add(action);
  }

  /** @param words  what stands at the token */
  set(place, words) {
    this.place = place;
    this.words = words;
    for (const action of this.listeners) action();
  }

  /** The token of this response that the teacher points at; null for none. */
  tokenOf({ step, sample }) {
    const { page, params } = this.place || {};
    if (page !== "live" || params.run !== address.params("live").run) return null;
    const same = params.step === `${step}` && params.sample === `${sample}`;
    return same && /^\d+$/.test(params.token || "") ? Number(params.token) : null;
  }
}

export const pointing = new Pointing();

/** What cuts off whatever leaves it sideways, around a node. */
function boxOf(node) {
  let box = node.parentElement;
  while (box.parentElement && getComputedStyle(box).overflowX === "visible") box = box.parentElement;
  return box;
}

/** Mark a token, and only this one of those in `within`; null for none. */
export function markPointed(within, node) {
  const before = within.querySelector(".rs-pointed");
  if (before === node && node?.lastElementChild.textContent === pointing.words) return;
  before?.classList.remove("rs-pointed");
  before?.querySelector(".rs-pointed-label")?.remove();
  before?.removeAttribute("aria-description");
  if (!node) return;
  const label = el("span", { class: "rs-pointed-label" }, pointing.words);
  node.classList.add("rs-pointed");
  node.setAttribute("aria-description", pointing.words);
  node.append(label);
  const [token, box] = [node, boxOf(node)].map((one) => one.getBoundingClientRect());
  label.dataset.side = token.left + token.right > box.left + box.right ? "left" : "right"; // where there is room
}
