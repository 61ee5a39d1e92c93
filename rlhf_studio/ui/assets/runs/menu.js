// One menu for all rows: it is made when it is opened, at the button that opened it.
import { el } from "../shared/dom.js";
import { nodeByArrow } from "../shared/segments.js";

const labelsOf = (items) => JSON.stringify(items.map((item) => item && [item.label, item.why]));

export class RowMenu {
  constructor(host) {
    this.host = host;
    this.node = null;
  }

  /** @param items  [{label, act, danger}], {label, why} for what cannot be done, null for a line between two groups */
  open(button, label, items) {
    const same = this.button === button;
    this.close(false);
    if (same) return;
    this.button = button;
    this.nodes = [];
    const list = items.map((item) => (item ? this.item(item) : el("hr", { class: "rs-menu-line" })));
    this.node = el("div", { class: "rs-row-menu rs-box", role: "menu", "aria-label": label }, list);
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.node.addEventListener("focusout", (event) => {
      if (!this.node?.contains(event.relatedTarget) && event.relatedTarget !== this.button) this.close(false);
    });
    this.host.append(this.node);
    this.labels = labelsOf(items);
    this.follow();
    button.setAttribute("aria-expanded", "true");
    this.nodes[0]?.focus({ preventScroll: true });
  }

  item({ label, act, danger, why }) {
    const node = el(
      "button",
      {
        type: "button",
        role: "menuitem",
        tabindex: "-1",
        class: danger ? "rs-row-item rs-delete" : "rs-row-item",
        "aria-disabled": why ? "true" : null,
        onclick: () => {
          if (why) return;
          this.close(true);
          act();
        },
        onkeydown: (event) => nodeByArrow(event, this.nodes)?.focus(),
      },
      label,
      why && el("small", {}, why),
    );
    this.nodes.push(node);
    return node;
  }

  key(event) {
    if (event.key === "Escape") this.close(true);
    else if (event.key === "Home") this.nodes[0].focus();
    else if (event.key === "End") this.nodes.at(-1).focus();
    else if (event.key === "Tab") this.close(true);
    else return;
    if (event.key !== "Tab") event.preventDefault();
  }

  /** The row was drawn anew, with this button: the menu goes on there, or closes where other things can be done now. */
  move(button, items) {
    if (!this.node || button === this.button) return;
    if (!button || labelsOf(items) !== this.labels) return void this.close(false);
    this.button = button;
    button.setAttribute("aria-expanded", "true");
  }

  /** Stay at the button, whatever moves it: rows that come and go, lines above the table, a person who scrolls. */
  follow() {
    const { top, bottom } = this.button.getBoundingClientRect();
    if (!this.button.isConnected || bottom < 0 || top > innerHeight) return void this.close(false);
    this.place();
    this.frame = requestAnimationFrame(() => this.follow());
  }

  /** Below the button where there is room, else above it; never outside the window. */
  place() {
    const at = this.button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const below = at.bottom + 4 + height < innerHeight;
    const top = below ? at.bottom + 4 : Math.max(8, at.top - height - 4);
    this.node.style.top = `${top}px`;
    this.node.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
  }

  close(focus) {
    if (!this.node) return;
    const { node, button } = this;
    this.node = this.button = null;
    cancelAnimationFrame(this.frame);
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
    node.remove();
  }
}
