// The name that a student may type.
import { el, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { whyNot } from "../shared/visit.js";

/** A line with the student's name, and a field to change it. */
export class NameLine {
  constructor(server) {
    this.server = server;
    this.text = el("span", {});
    this.edit = el("button", { type: "button", class: "rs-link" }, t("Add your name"));
    this.field = el("input", {
      class: "rs-input",
      type: "text",
      autocomplete: "off",
      "aria-label": t("Your name"),
      placeholder: t("Your name"),
    });
    const save = el("button", { type: "submit", class: "rs-button rs-small" }, t("Save"));
    this.said = el("span", { class: "rs-help rs-class-name-said", role: "status" });
    this.form = el("form", { class: "rs-class-name", hidden: true }, this.field, save);
    this.node = el("span", { hidden: true }, " ", this.text, " ", this.edit, this.form, this.said);
    this.edit.addEventListener("click", () => this.open());
    this.form.addEventListener("submit", (event) => (event.preventDefault(), this.save()));
  }

  /** What the server says: whether names are on, and this one. */
  take({ may, names, name, longest_name: longest }) {
    show(this.node, Boolean(may && names));
    this.field.maxLength = longest;
    this.name = name;
    setText(this.text, name ? t("You are {name}.", { name }) : "");
    setText(this.edit, name ? t("Change") : t("Add your name"));
  }

  open() {
    this.field.value = this.name || "";
    show(this.form, true);
    show(this.edit, false);
    setText(this.said, t("Your teacher sees it beside your answers. If you start a run, everyone sees it there."));
    this.field.focus();
  }

  async save() {
    const told = await this.server
      .class_name({ name: this.field.value })
      .catch((error) => ({ problem: whyNot(error) }));
    setText(this.said, told.problem || "");
    if (told.problem) return;
    this.take({ may: true, names: true, name: told.name, longest_name: this.field.maxLength });
    show(this.form, false);
    show(this.edit, true);
  }
}
