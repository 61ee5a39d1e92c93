// What a reader can change: native range fields with buttons beside them, segments, and boxes to tick.
import { el, elEach, setText, show } from "../../shared/dom.js";
import { spoken } from "../../shared/format.js";
import { Segments } from "../../shared/segments.js";
import { t } from "../../shared/language.js";

let count = 0;
const [MOST_LETTERS, SPACE] = [34, 3]; // of choices side by side: more do not fit on a phone

/**
 * A control: {name, values, swept, node, put(value)}. A reader changes it: `changed(value)`; is about to: `touched()`.
 *
 * One with `own` starts at what the run itself had, and says so while it stands there.
 */
export function control(description, label, word, { changed, touched }) {
  const kinds = { slider, choice, toggle, typed };
  const own = description.own ? el("span", { class: "rs-learn-own" }, t("as on record")) : null;
  const mark = (value) => own && show(own, value === description.start);
  const told = (value) => {
    mark(value);
    changed(value);
  };
  const name = own ? [...label, " ", own] : label;
  const { node, put } = kinds[description.kind](description, name, word, told, touched);
  mark(description.value ?? description.start);
  return {
    name: description.name,
    values: description.values,
    swept: description.swept !== false,
    node,
    put: (value) => {
      mark(value);
      put(value);
    },
  };
}

const minus = (text) => text.replace("-", "\u2212");

function slider({ values, start, digits, unit }, label, word, changed, touched) {
  const id = `rs-learn-${(count += 1)}`;
  const text = (value) => minus(value.toFixed(digits));
  const output = el("span", { class: "rs-learn-value", "aria-hidden": "true" });
  const range = el("input", { type: "range", id, min: 0, max: values.length - 1, step: 1 });
  const say = () => {
    const value = text(values[range.value]);
    setText(output, unit ? `${value} ${unit}` : value);
    range.setAttribute("aria-valuetext", unit ? `${value} ${unit}` : value);
  };
  const put = (value) => {
    range.value = values.indexOf(value);
    say();
  };
  const moved = () => {
    say();
    changed(values[range.value]);
  };
  const step = (by, name) =>
    el(
      "button",
      {
        type: "button",
        class: "rs-learn-step",
        "aria-label": name,
        onclick: () => {
          range.value = Number(range.value) + by;
          moved();
        },
      },
      by < 0 ? "\u2212" : "+",
    );
  for (const event of ["pointerdown", "focus"]) range.addEventListener(event, touched);
  range.addEventListener("input", moved);
  put(start);
  const node = el(
    "div",
    { class: "rs-learn-control" },
    el("div", { class: "rs-learn-label" }, el("label", { for: id }, label), output),
    el("div", { class: "rs-learn-range" }, step(-1, t("Less")), range, step(1, t("More"))),
  );
  return { node, put };
}

function choice({ values, start, plain }, label, word, changed) {
  const id = `rs-learn-${(count += 1)}`;
  const options = values.map((value) => ({ value, label: plain ? spoken(value) : word(`@${value}`) }));
  const heading = el("div", { class: "rs-learn-label", id }, label);
  if (options.reduce((letters, option) => letters + option.label.length + SPACE, 0) > MOST_LETTERS) {
    const list = elEach(
      "select",
      { class: "rs-input", "aria-labelledby": id, onchange: () => changed(list.value) },
      options,
      (option) => el("option", { value: option.value }, option.label),
    );
    list.value = start;
    return { node: el("div", { class: "rs-learn-control" }, heading, list), put: (value) => (list.value = value) };
  }
  const segments = new Segments({ "aria-labelledby": id }, options, start, changed, { radio: true, framed: true });
  const node = el("div", { class: "rs-learn-control" }, heading, segments.node);
  return { node, put: (value) => segments.show(value) };
}

function toggle({ start }, label, word, changed) {
  const box = el("input", { type: "checkbox", checked: start, onchange: () => changed(box.checked) });
  const node = el("label", { class: "rs-learn-control rs-learn-toggle rs-middle" }, box, el("span", {}, label));
  return { node, put: (value) => (box.checked = value) };
}

/** A few numbers in one field. What is not as many numbers within the bounds is marked, and changes nothing. */
function typed({ start, count: many, low, high, digits }, label, word, changed) {
  const id = `rs-learn-${(count += 1)}`;
  const bounds = { count: many, low: minus(String(low)), high };
  const wish = t("{count} numbers from {low} to {high}, with spaces between them", bounds);
  const hint = el("p", { class: "rs-muted rs-learn-wish", id: `${id}-wish`, hidden: true, role: "status" }, wish);
  const field = el("input", { type: "text", id, class: "rs-input", maxlength: 60, autocomplete: "off", value: start });
  field.setAttribute("aria-describedby", hint.id);
  let known = start;
  const read = () => {
    const numbers = field.value
      .replaceAll("\u2212", "-")
      .split(/[\s,;\uff0c\uff1b\u3001]+/)
      .filter(Boolean)
      .map(Number);
    return numbers.length === many && numbers.every((number) => number >= low && number <= high)
      ? numbers.map((number) => String(Number(number.toFixed(digits)))).join(" ")
      : null;
  };
  field.addEventListener("input", () => {
    const value = read();
    field.setAttribute("aria-invalid", String(value === null));
    show(hint, value === null);
    if (value === null || value === known) return;
    known = value;
    changed(value);
  });
  const put = (value) => {
    if (value === known) return; // what is being typed stays as it is
    known = value;
    field.value = value;
    field.removeAttribute("aria-invalid");
    show(hint, false);
  };
  const heading = el("div", { class: "rs-learn-label" }, el("label", { for: id }, label));
  return { node: el("div", { class: "rs-learn-control" }, heading, field, hint), put };
}
