// Fields for settings: those that a new run changes, and those that a sweep varies.
import { el, elEach, labelled, pushButton, setText, show } from "../shared/dom.js";
import { input } from "../shared/dialogs.js";
import { bracketed, t } from "../shared/language.js";

/** A setting's value as it is typed. */
export const plainText = (value) => (value === null || value === undefined ? "null" : String(value));

export const settingNames = (titles) =>
  elEach("datalist", { id: "rs-setting-names" }, Object.entries(titles), ([name, title]) =>
    el("option", { value: name }, title),
  );

/** Fields for changed settings: the common ones at once, any other by its name. */
export class Changes {
  constructor({ values, common, titles }) {
    this.before = values;
    this.titles = titles;
    this.stays = [];
    this.suggested = {};
    this.fields = new Map();
    this.grid = el("div", { class: "rs-change-grid" });
    for (const field of common) this.add(field.name, field.title, field.unit);
    this.other = input({ list: "rs-setting-names", "aria-label": t("Another setting") });
    this.told = el("span", { class: "rs-help", role: "status" });
    this.node = el(
      "fieldset",
      { class: "rs-changes" },
      el("legend", { class: "rs-label" }, t("Change")),
      this.grid,
      el(
        "div",
        { class: "rs-add-setting" },
        this.other,
        pushButton("rs-button rs-small", t("Change this one too"), () => this.more()),
      ),
      this.told,
      settingNames(titles),
    );
    this.other.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.more();
    });
  }

  add(name, title, unit) {
    const field = input({ value: plainText(this.before[name]) });
    field.addEventListener("input", () => this.mark(name));
    this.fields.set(name, field);
    const label = labelled(unit && unit !== title.toLowerCase() ? `${title}${bracketed(unit)}` : title, field, name);
    this.grid.append(label);
    return field;
  }

  more() {
    const name = this.other.value.trim();
    if (this.stays.includes(name)) {
      setText(this.told, t("From a checkpoint, {titles} stays as it is.", { titles: this.titles[name] || name }));
      return;
    }
    const known = Object.hasOwn(this.titles, name) && typeof this.before[name] !== "object";
    setText(
      this.told,
      known || this.before[name] === null ? "" : t("There is no single setting called “{name}”.", { name }),
    );
    if (this.told.textContent) return;
    const field = this.fields.get(name) || this.add(name, this.titles[name], "");
    this.other.value = "";
    field.focus();
  }

  mark(name) {
    const field = this.fields.get(name);
    field.classList.toggle("rs-changed", field.value.trim() !== plainText(this.before[name]));
  }

  /**
   * Other settings are in force where the new run begins: what was not changed follows them, or what is `suggested`
   * there; what `stays` cannot change.
   */
  base({ values, stays, suggested }) {
    const usual = (name) => plainText(this.suggested[name] ?? this.before[name]);
    const left = [...this.fields].filter(([name, field]) => field.value.trim() === usual(name));
    this.before = values;
    this.stays = stays;
    this.suggested = suggested;
    for (const [name, field] of left) field.value = usual(name);
    for (const [name, field] of this.fields) show(field.closest("label"), !stays.includes(name));
    for (const name of this.fields.keys()) this.mark(name);
  }

  /** What differs, as text by dotted name. */
  get values() {
    const changed = [...this.fields].filter(
      ([name, field]) => !this.stays.includes(name) && field.value.trim() !== plainText(this.before[name]),
    );
    return Object.fromEntries(changed.map(([name, field]) => [name, field.value.trim()]));
  }
}

/** One setting of a sweep with its values. */
export class Axis {
  constructor({ values, titles }, label, name) {
    this.field = input({ list: "rs-setting-names", value: name, placeholder: "engine.seed" });
    this.list = input({ placeholder: "0, 0.05, 0.1" });
    const now = el("span", { class: "rs-help" });
    const tell = () => {
      const own = this.name;
      setText(
        now,
        Object.hasOwn(titles, own)
          ? t("{titles}; this run has {values}.", { titles: titles[own], values: plainText(values[own]) })
          : "",
      );
    };
    this.field.addEventListener("input", tell);
    tell();
    this.node = el(
      "div",
      { class: "rs-axis" },
      labelled(label, this.field),
      labelled(t("Values, with commas between them"), this.list),
      now,
    );
  }

  get name() {
    return this.field.value.trim();
  }

  get values() {
    return this.list.value
      .split(",")
      .map((text) => text.trim())
      .filter((text) => text !== "");
  }
}
