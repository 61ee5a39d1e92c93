// The reward composer: a list of scoring components that are added, weighted and removed.
import { each, el, fill } from "../shared/dom.js";
import { Field, formatValue, same } from "./form.js";
import { t } from "../shared/language.js";

const PREFIX = "reward.components";

/**
 * @param spec    the field "reward.components" as the server describes it
 * @param kinds   the kinds of component there are: [{kind, title, help, fields, defaults}]
 * @param onset   called with the new list at every change
 */
export class Composer {
  constructor(spec, kinds, value, basis, onset) {
    this.spec = spec;
    this.kinds = kinds;
    this.onset = onset;
    this.fields = new Map();
    this.cards = el("div", { class: "rs-components" });
    this.problem = el("p", { class: "rs-problem", hidden: true });
    this.dot = el("button", {
      type: "button",
      class: "rs-reset",
      title: t("Changed; click to go back to the recipe's components"),
      onclick: () => this.reset(),
    });
    this.dot.setAttribute("aria-label", t("Reset the components to the recipe's"));
    const groups = [...new Set(kinds.map((kind) => kind.group))].map((group) => {
      const own = kinds.filter((kind) => kind.group === group);
      const adders = own.map((kind) =>
        el("button", { type: "button", class: "rs-add", title: kind.help, onclick: () => this.add(kind) }, kind.title),
      );
      return el(
        "div",
        { class: "rs-adders rs-flow", role: "group", "aria-label": t("Add a component: {group}", { group }) },
        el("span", {}, group),
        el("div", {}, adders),
      );
    });
    this.node = el(
      "div",
      { class: "rs-field rs-wide rs-composer", data: { setting: spec.name, level: "basic" } },
      el("div", { class: "rs-label-row" }, el("span", { class: "rs-label" }, spec.title), this.dot),
      el("p", { class: "rs-help" }, spec.help),
      this.problem,
      this.cards,
      el("div", { class: "rs-add-groups" }, el("span", { class: "rs-label" }, t("Add a component")), groups),
    );
    this.load(value, basis);
  }

  get changed() {
    return !same(this.value, this.basis);
  }

  load(value, basis) {
    this.value = Array.isArray(value) ? value : [];
    this.basis = basis;
    this.draw();
  }

  reset() {
    this.change(this.basis);
    this.draw();
  }

  add(kind) {
    this.change([...this.value, { ...kind.defaults }]);
    this.draw();
    const first = this.fields.get(`${PREFIX}.${this.value.length - 1}.${kind.fields[0].name}`);
    first?.focus();
  }

  remove(index) {
    this.change(this.value.filter((_, place) => place !== index));
    this.draw();
    this.node.querySelector(".rs-adders button")?.focus();
  }

  change(value) {
    this.value = value;
    this.mark();
    this.onset(value);
  }

  mark() {
    this.dot.hidden = !this.changed;
  }

  draw() {
    this.fields.clear();
    each(this.cards, this.value, (component, index) => this.card(component, index));
    this.mark();
  }

  card(component, index) {
    const kind = this.kinds.find((known) => known.kind === component.kind);
    const original = this.basis?.[index]?.kind === component.kind ? this.basis[index] : null;
    const remove = el(
      "button",
      {
        type: "button",
        class: "rs-quiet",
        onclick: () => this.remove(index),
        "aria-label": t("Remove component {index}", { index: index + 1 }),
      },
      t("Remove"),
    );
    const head = el(
      "div",
      { class: "rs-component-head rs-middle" },
      el("strong", {}, `${index + 1}. ${kind ? kind.title : component.kind}`),
      remove,
    );
    if (!kind) return el("div", { class: "rs-component" }, head);
    const fields = kind.fields.map((spec) => {
      const full = { ...spec, name: `${PREFIX}.${index}.${spec.name}` };
      const field = new Field(full, component[spec.name], original ? original[spec.name] : undefined, (value) => {
        this.change(this.value.map((item, place) => (place === index ? { ...item, [spec.name]: value } : item)));
        this.arrange(index, kind);
      });
      this.fields.set(full.name, field);
      return field.node;
    });
    this.arrange(index, kind);
    return el(
      "div",
      { class: "rs-component" },
      head,
      el("p", { class: "rs-help" }, kind.help),
      el("div", { class: "rs-grid" }, fields),
    );
  }

  /** Hide the settings that do not matter now; one that was changed is always shown. */
  arrange(index, kind) {
    const values = this.value[index];
    for (const spec of kind.fields) {
      const { node } = this.fields.get(`${PREFIX}.${index}.${spec.name}`);
      const rule = spec.used_when;
      node.classList.toggle("rs-unused", Boolean(rule) && ![].concat(rule.value).includes(values[rule.name]));
      node.classList.toggle("rs-shown", spec.level === "basic" || !same(values[spec.name], kind.defaults[spec.name]));
    }
  }

  setProblem(text) {
    this.problem.hidden = !text;
    fill(this.problem, text);
  }

  focus() {
    this.node.querySelector("input, button")?.focus({ preventScroll: true });
  }

  /** One line for the closed section: sentiment × 1 + length × −0.5. */
  summary() {
    return this.value
      .map((component) => {
        const name = component.name || this.kinds.find((kind) => kind.kind === component.kind)?.title || component.kind;
        return component.weight === 1 ? name : `${formatValue(component.weight).replace("-", "\u2212")} \u00d7 ${name}`;
      })
      .join(" + ");
  }
}
