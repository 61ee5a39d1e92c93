// A button of the line above the pages, and what opens below it. The browser's own popover closes it: a click elsewhere
// and Escape do, and no second one stays open beside it.
import { el } from "../shared/dom.js";
import { colon } from "../shared/language.js";

const GAP = 4;
const EDGE = 8;

export class Drop {
  /**
   * @param id       of what opens
   * @param name     of the button, and of what opens
   * @param sign     what the button shows
   * @param content  what opens
   * @param onopen   called when it opens
   */
  constructor({ id, name, sign, content, onopen = () => {} }) {
    this.name = name;
    this.words = el("span", { class: "rs-hidden" }, name);
    this.button = el(
      "button",
      {
        type: "button",
        class: "rs-tool",
        title: name,
        popovertarget: id,
        "aria-haspopup": "dialog",
        "aria-expanded": "false",
      },
      sign,
      this.words,
    );
    this.panel = el(
      "div",
      { id, popover: "auto", role: "dialog", "aria-label": name, tabindex: "-1", class: "rs-drop rs-box" },
      content,
    );
    this.panel.addEventListener("toggle", (event) => {
      const open = /** @type {ToggleEvent} */ (event).newState === "open";
      this.button.setAttribute("aria-expanded", String(open));
      if (open) {
        onopen();
        this.place();
        this.panel.focus({ preventScroll: true });
      } else if ([document.body, null].includes(/** @type {HTMLElement} */ (document.activeElement))) {
        this.button.focus();
      }
    });
  }

  /** Below the button, inside the window. */
  place() {
    const at = this.button.getBoundingClientRect();
    this.panel.style.top = `${Math.max(EDGE, at.bottom + GAP)}px`;
    this.panel.style.right = `${Math.max(EDGE, document.documentElement.clientWidth - at.right)}px`;
  }

  close() {
    this.panel.hidePopover();
  }

  /** Say more of the state in the button's name. */
  say(state) {
    this.words.textContent = this.button.title = state ? colon(this.name, state) : this.name;
  }
}
