// One setting of the form: label, control, help, what is wrong with it, and the way back to the recipe's value.
import { el, elEach, fill, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { Segments } from "../shared/segments.js";

const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/;
const SEGMENTS = 4;
const SEGMENT_LETTERS = 22; // of all choices together: more do not fit beside each other

/** What was typed, as a number if it is one. Anything else is sent as it is, and the server says what is wrong. */
export function parseNumber(text) {
  const trimmed = text.trim().replace(/\u2212/g, "-");
  return NUMBER.test(trimmed) ? Number(trimmed) : text;
}

/** A number as people write settings: 1e-4, 0.05, 64. */
export function formatValue(value) {
  if (typeof value !== "number" || !Number.isFinite(value))
    return value === null || value === undefined ? "" : String(value);
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value);
}

export const same = (first, second) => JSON.stringify(first) === JSON.stringify(second);

/** The identifier under which a setting's parts are found: ppo.kl_coef -> setting-ppo-kl_coef. */
const idOf = (name) => `setting-${name.replaceAll(".", "-")}`;

let lists = 0;

/**
 * @param spec   the field as the server describes it, `name` being the full dotted name
 * @param value  its present value
 * @param basis  the recipe's value, or undefined when there is none to go back to
 * @param onset  called with the new value at every change
 */
export class Field {
  constructor(spec, value, basis, onset) {
    this.spec = spec;
    this.value = value;
    this.basis = basis;
    this.onset = onset;
    this.id = idOf(spec.name);
    this.control = this.buildControl();
    this.dot = el("button", { type: "button", class: "rs-reset", onclick: () => this.reset() });
    this.problem = el("p", { class: "rs-problem", id: `${this.id}-problem`, hidden: true });
    this.why = el("p", { class: "rs-fits", id: `${this.id}-why`, hidden: true });
    const label = el("label", { for: this.id, class: "rs-label", id: `${this.id}-label` }, spec.title);
    this.node = el(
      "div",
      { class: `rs-field rs-kind-${spec.kind}`, data: { setting: spec.name, level: spec.level } },
      el("div", { class: "rs-label-row" }, label, this.dot),
      spec.unit
        ? el("div", { class: "rs-with-unit rs-middle" }, this.control, el("span", { class: "rs-unit" }, t(spec.unit)))
        : this.control,
      this.problem,
      this.why,
      el("p", { class: "rs-help", id: `${this.id}-help` }, spec.help),
    );
    if (spec.wide) this.node.classList.add("rs-wide");
    this.refresh();
  }

  /** The ids of the texts that say more about the control. */
  get described() {
    return `${this.id}-problem ${this.id}-why ${this.id}-help`;
  }

  buildControl() {
    const { spec } = this;
    if (spec.kind === "toggle") return this.buildToggle();
    if (spec.kind === "choice")
      return spec.choices.length <= SEGMENTS && spec.choices.join("").length <= SEGMENT_LETTERS
        ? this.buildSegments()
        : this.buildSelect();
    return this.buildInput();
  }

  buildInput() {
    const { spec } = this;
    const numeric = spec.kind !== "text";
    // an input of one line would join several lines into one, without a word
    const input = el(spec.lines ? "textarea" : "input", {
      id: this.id,
      type: spec.lines ? null : "text",
      class: "rs-input",
      inputmode: spec.kind === "integer" ? "numeric" : numeric ? "decimal" : null,
      maxlength: spec.max_length || null,
      placeholder: spec.placeholder || null,
      spellcheck: "false",
      autocomplete: "off",
      "aria-describedby": this.described,
      oninput: () => this.set(numeric ? parseNumber(input.value) : input.value),
      onchange: () => this.refresh(),
      onkeydown: (event) => spec.kind === "integer" && this.step(event),
    });
    this.read = () => {
      if (document.activeElement !== input || (numeric ? parseNumber(input.value) : input.value) !== this.value)
        input.value = formatValue(this.value);
    };
    this.focusable = input;
    if (!spec.suggestions?.length) return input;
    const list = elEach("datalist", { id: `rs-list-${(lists += 1)}` }, spec.suggestions, (value) =>
      el("option", { value }),
    );
    input.setAttribute("list", list.id);
    return el("div", {}, input, list);
  }

  /** Arrow keys change whole numbers by 1, with shift by 10, within their bounds. */
  step(event) {
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!direction || typeof this.value !== "number") return;
    event.preventDefault();
    const wanted = this.value + direction * (event.shiftKey ? 10 : 1);
    this.set(Math.min(this.spec.maximum ?? Infinity, Math.max(this.spec.minimum ?? -Infinity, wanted)));
    this.focusable.value = formatValue(this.value);
  }

  buildToggle() {
    const input = el("input", {
      id: this.id,
      type: "checkbox",
      role: "switch",
      class: "rs-switch",
      "aria-describedby": this.described,
      onchange: () => this.set(input.checked),
    });
    this.read = () => {
      input.checked = this.value === true;
    };
    this.focusable = input;
    return input;
  }

  buildSegments() {
    const attributes = { id: this.id, "aria-labelledby": `${this.id}-label`, "aria-describedby": this.described };
    const options = this.spec.choices.map((choice) => ({ value: choice, label: choice }));
    const segments = new Segments(attributes, options, this.value, (choice) => this.set(choice), {
      radio: true,
      framed: true,
    });
    this.read = () => {
      segments.show(this.value);
      this.focusable = segments.focusable;
    };
    return segments.node;
  }

  buildSelect() {
    const options = this.spec.choices.map((choice) => el("option", { value: choice }, choice));
    const select = el(
      "select",
      { id: this.id, class: "rs-input", "aria-describedby": this.described, onchange: () => this.set(select.value) },
      options,
    );
    this.read = () => {
      select.value = this.value;
    };
    this.focusable = select;
    return select;
  }

  get changed() {
    return this.basis !== undefined && !same(this.value, this.basis);
  }

  set(value) {
    this.value = value;
    this.refresh();
    this.onset(value);
  }

  reset() {
    this.set(this.basis);
    this.focusable?.focus();
  }

  /** Show another value and another value to go back to, without telling anyone. */
  load(value, basis) {
    this.value = value;
    this.basis = basis;
    this.refresh();
  }

  refresh() {
    this.read();
    show(this.dot, this.changed);
    show(this.why, this.fits && !this.changed);
    if (this.changed) {
      const old = this.basis === "" ? "empty" : formatValue(this.basis);
      const whose = this.fits ? t("what fits is") : t("the recipe has");
      this.dot.title = t("Changed; {whose} {old}. Click to go back.", { whose, old });
      this.dot.setAttribute("aria-label", t("Reset {title} to {old}", { title: this.spec.title, old }));
    }
  }

  /** Say why the value fits: {why, guess}; nothing for one that does not follow from the model. */
  sayWhy(fitted) {
    this.fits = Boolean(fitted);
    const guess = fitted?.guess ? t(" It is a guess: no model of about this size is known.") : "";
    setText(this.why, fitted ? t("Fits: {why}.{guess}", { why: fitted.why, guess }) : "");
    this.refresh();
  }

  /** Show what is wrong with this setting; an empty text clears it. */
  setProblem(text) {
    show(this.problem, Boolean(text));
    fill(this.problem, text);
    this.node.classList.toggle("rs-invalid", Boolean(text));
    this.focusable?.setAttribute("aria-invalid", String(Boolean(text)));
  }

  focus() {
    this.focusable?.focus({ preventScroll: true });
  }
}
