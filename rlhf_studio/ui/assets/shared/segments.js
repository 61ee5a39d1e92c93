// The one segmented control: choices side by side, of which one is chosen.
import { el } from "./dom.js";

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The node that the pressed arrow key leads to, from the last one on to the first; null for every other key. */
export function nodeByArrow(event, nodes) {
  const step = STEPS[event.key];
  if (!step) return null;
  event.preventDefault();
  return nodes[(nodes.indexOf(event.currentTarget) + step + nodes.length) % nodes.length];
}

export class Segments {
  /**
   * @param attributes  of the control; it needs `aria-label` or `aria-labelledby`
   * @param options     [{value, label, term, key}]: `term` names an entry of the glossary, `key` a key of the keyboard
   * @param chosen      the value that is chosen at first
   * @param onchoose    called with the value that a person chooses
   * @param radio       a field of a form: arrow keys choose, Tab leads past it; else each choice is a button of its own
   * @param framed      looks like the form's other fields
   */
  constructor(attributes, options, chosen, onchoose, { radio = false, framed = false } = {}) {
    this.onchoose = onchoose;
    this.radio = radio;
    this.buttons = options.map((option) => this.button(option));
    const look = framed ? "rs-segments rs-framed" : "rs-segments";
    this.node = el("div", { class: look, role: radio ? "radiogroup" : "group", ...attributes }, this.buttons);
    this.show(chosen);
  }

  button({ value, label, term, key }) {
    return el(
      "button",
      {
        type: "button",
        role: this.radio ? "radio" : null,
        class: "rs-segment",
        "data-value": value,
        "data-term": term,
        onclick: () => this.choose(value),
        onkeydown: (event) => this.radio && this.move(event),
      },
      label,
      key ? el("kbd", { "aria-hidden": "true" }, key) : null,
    );
  }

  choose(value) {
    this.show(value);
    this.onchoose(value);
  }

  /** Mark a choice without telling anyone. A value that is none of the choices marks none. */
  show(value) {
    const state = this.radio ? "aria-checked" : "aria-pressed";
    for (const button of this.buttons) button.setAttribute(state, String(button.dataset.value === value));
    this.focusable = this.buttons.find((button) => button.dataset.value === value) || this.buttons[0];
    if (this.radio) for (const button of this.buttons) button.tabIndex = button === this.focusable ? 0 : -1;
  }

  move(event) {
    const next = nodeByArrow(event, this.buttons);
    if (!next) return;
    next.click();
    next.focus();
  }
}
