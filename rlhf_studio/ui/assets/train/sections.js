// The form's sections: a closed section shows one line that sums up its settings.
import { el, elEach, memory, setText, show } from "../shared/dom.js";
import { counted, shortName } from "../shared/format.js";
import { t } from "../shared/language.js";
import { Segments } from "../shared/segments.js";
import { Composer } from "./composer.js";
import { DevicePicker, deviceWords } from "./devices.js";
import { Field, formatValue } from "./form.js";

/** How much is learned from examples, and how fast. */
function amount(value, section) {
  const [epochs, steps, batch, rate] = ["epochs", "max_steps", "batch_size", "learning_rate"].map((name) =>
    formatValue(value(`${section}.${name}`)),
  );
  const much =
    steps === "0" ? (epochs === "1" ? t("1 pass") : t("{epochs} passes", { epochs })) : t("{steps} steps", { steps });
  return t("{much}, batch {batch}, learning rate {rate}", { much, batch, rate });
}

/** What a closed section says, from the values. */
const SUMMARIES = {
  model: (value) => shortName(value("model.policy"), "none"),
  lora: (value) =>
    value("lora.enabled")
      ? t("rank {value}, alpha {value2}", {
          value: formatValue(value("lora.r")),
          value2: formatValue(value("lora.alpha")),
        })
      : t("off"),
  critic: (value) =>
    value("ppo.advantage") !== "gae"
      ? t("none: responses are compared with each other")
      : value("critic.kind") === "separate"
        ? t("a model of its own")
        : t("shared with the policy"),
  data: (value) => shortName(value("data.prompts") ?? value("data.source"), "none"),
  sft: (value) => amount(value, "sft"),
  reward_model: (value) => amount(value, "reward_model"),
  dpo: (value) => `${amount(value, "dpo")}, \u03b2 ${formatValue(value("dpo.beta"))}`,
  evaluation: (value) => t("{value} prompts", { value: formatValue(value("evaluation.prompts")) }),
  ppo: (value) => {
    const shown = (name) => formatValue(value(`ppo.${name}`));
    const [steps, batch, rate, beta] = ["steps", "batch_size", "learning_rate", "kl_coef"].map(shown);
    return t("{steps} steps, batch {batch}, learning rate {rate}, \u03b2 {beta}", { steps, batch, rate, beta });
  },
  generation: (value) => {
    const [length, temperature] = ["response_length", "temperature"].map((name) =>
      formatValue(value(`generation.${name}`)),
    );
    return t("up to {length} tokens, temperature {temperature}", { length, temperature });
  },
  engine: (value) =>
    t("seed {value}, {value2}", { value: formatValue(value("engine.seed")), value2: deviceWords(value) }),
};

/** How many settings are shown, said to the `root` of the page. */
export function levelSwitch(root) {
  const set = (level) => {
    root.classList.toggle("rs-all-settings", level === "all");
    memory.set("train.level", level);
  };
  const options = [
    { value: "basic", label: t("Basic settings") },
    { value: "all", label: t("All settings") },
  ];
  const level = memory.get("train.level", "basic");
  set(level);
  return new Segments({ "aria-label": t("How many settings are shown") }, options, level, set, { framed: true }).node;
}

/**
 * All sections of the form.
 *
 * @param form   the server's description
 * @param devices what the device picker offers
 * @param state  (value(name), basis(name), set(name, value))
 * @param extras section name -> node shown below its fields
 */
export class Sections {
  constructor(form, devices, state, extras, opened, ontoggle) {
    this.state = state;
    this.devices = devices;
    this.fields = new Map();
    this.sections = form.sections.map((spec) =>
      this.build(spec, form.components, extras[spec.name], opened.includes(spec.name), ontoggle),
    );
    this.picker.adopt(this.fields.get("engine.accelerate_config"));
    this.node = elEach("div", { class: "rs-sections rs-box" }, this.sections, (section) => section.node);
    this.refresh();
  }

  build(spec, kinds, extra, open, ontoggle) {
    const fields = spec.fields.map((field) => this.field(field, kinds));
    const summary = el("span", { class: "rs-section-summary rs-cut" });
    const changed = el("span", { class: "rs-badge rs-badge-changed", hidden: true });
    const wrong = el("span", { class: "rs-badge rs-badge-wrong", hidden: true });
    const more = el("button", {
      type: "button",
      class: "rs-quiet rs-more",
      onclick: () => {
        node.classList.add("rs-all-settings");
        fields.find((field) => field.spec.level === "all" && this.used(field.spec))?.focus();
      },
    });
    const body = el(
      "div",
      { class: "rs-body" },
      el("p", { class: "rs-intro" }, spec.help),
      elEach("div", { class: "rs-grid" }, fields, (field) => field.node),
      more,
      extra,
    );
    const node = el(
      "details",
      { class: "rs-section", data: { section: spec.name }, open, ontoggle: () => ontoggle(spec.name, node.open) },
      el("summary", { class: "rs-bare" }, el("span", { class: "rs-title" }, spec.title), summary, wrong, changed),
      body,
    );
    return { spec, node, summary, changed, wrong, more, fields };
  }

  field(spec, kinds) {
    if (spec.kind === "device") {
      this.picker = new DevicePicker(spec, this.devices, this.state, (values) => this.setTogether(values));
      this.fields.set(spec.name, this.picker);
      return this.picker;
    }
    const onset = (value) => {
      if (this.marked?.spec.name.startsWith(spec.name)) this.unmark();
      this.state.set(spec.name, value);
      this.refresh();
    };
    const field =
      spec.kind === "components"
        ? new Composer(spec, kinds, this.state.value(spec.name), this.state.basis(spec.name), onset)
        : new Field(spec, this.state.value(spec.name), this.state.basis(spec.name), onset);
    this.fields.set(spec.name, field);
    return field;
  }

  /** Mark a setting and say why it is worth a look, until its value changes. Gives whether there is such a setting. */
  mark(name, why) {
    this.unmark();
    const field = name && this.find(name);
    if (!field) return false;
    this.marked = field;
    field.node.classList.add("rs-marked", "rs-shown");
    const note = el(
      "p",
      { class: "rs-mark", id: "rs-mark" },
      why ? t("The run failed here: {why}", { why }) : t("Change one thing, then start"),
    );
    if (why) field.node.append(note);
    else field.node.prepend(note);
    field.node.classList.toggle("rs-calm", !why);
    field.focusable?.setAttribute(
      "aria-describedby",
      `rs-mark ${field.focusable.getAttribute("aria-describedby") || ""}`,
    );
    return true;
  }

  unmark() {
    const { node, focusable, described = "" } = this.marked || {};
    node?.classList.remove("rs-marked", "rs-calm");
    node?.querySelector("#rs-mark")?.remove();
    focusable?.setAttribute("aria-describedby", described);
    this.marked = null;
  }

  /** The recipe's value of a setting and its words, where the setting was changed from it; undefined for none. */
  mend(name) {
    const field = this.fields.get(name);
    const plain = field instanceof Field && field.changed && field.basis !== "";
    return plain ? { value: field.basis, text: formatValue(field.basis) } : undefined;
  }

  /** Several settings at once, each shown by its own field. */
  setTogether(values) {
    for (const [name, value] of Object.entries(values)) {
      if (this.marked?.spec.name === name) this.unmark();
      this.state.set(name, value);
      const field = this.fields.get(name);
      if (field !== this.picker) field?.load(value, this.state.basis(name));
    }
    this.refresh();
  }

  /** Take all values from the state anew. */
  load() {
    this.unmark();
    for (const [name, field] of this.fields) {
      field.load(this.state.value(name), this.state.basis(name));
      field.sayWhy?.(this.state.why(name));
    }
    this.refresh();
  }

  refresh() {
    this.picker.follow();
    for (const section of this.sections) {
      const composer = section.fields.find((field) => field instanceof Composer);
      setText(
        section.summary,
        composer ? composer.summary() : (SUMMARIES[section.spec.name] || (() => ""))((name) => this.state.value(name)),
      );
      const changed = section.fields.filter((field) => field.own ?? field.changed).length;
      setText(section.changed, t("{changed} changed", { changed }));
      show(section.changed, changed > 0);
      let hidden = 0;
      for (const field of section.fields) {
        const used = this.used(field.spec);
        field.node.classList.toggle("rs-unused", !used);
        // a setting that is wrong or changed is always shown
        const kept =
          field.spec.level === "basic" ||
          (field.changed && !this.picker.shows(field.spec.name)) ||
          field === this.marked ||
          field.node.classList.contains("rs-invalid");
        field.node.classList.toggle("rs-shown", kept);
        if (used && !kept) hidden += 1;
      }
      setText(section.more, hidden ? t("Show {hidden} more", { hidden }) : "");
    }
  }

  /** Whether a setting matters now: the one that it depends on has the value for it, and matters itself. */
  used({ used_when: rule }) {
    if (!rule) return true;
    const value = this.state.value(rule.name);
    const holds = rule.filled ? value !== "" : value === rule.value;
    return holds && this.used(this.fields.get(rule.name).spec);
  }

  /** Open the section of a setting. */
  openAt(name) {
    const section = this.sections.find((known) => name.startsWith(`${known.spec.name}.`));
    if (section) section.node.open = true;
  }

  /** Open these sections and close the others. */
  open(names) {
    for (const section of this.sections) section.node.open = names.includes(section.spec.name);
  }

  /** Put each problem at its setting; returns those that have no place in the form. */
  setProblems(problems) {
    const left = new Map(problems.map((problem) => [problem, problem.message]));
    const place = (name, field) => {
      const own = problems.filter((problem) => problem.field === name);
      field.setProblem(own.map((problem) => problem.message).join("; "));
      own.forEach((problem) => left.delete(problem));
    };
    for (const [name, field] of this.fields) {
      if (field instanceof Composer) for (const [inner, part] of field.fields) place(inner, part);
      place(name, field);
    }
    for (const section of this.sections) {
      const count = problems.filter((problem) => problem.field.startsWith(`${section.spec.name}.`)).length;
      setText(section.wrong, counted(count, "problem"));
      show(section.wrong, count > 0);
    }
    this.refresh();
    return [...left.keys()];
  }

  find(name) {
    const field = this.fields.get(name);
    if (field) return field;
    for (const other of this.fields.values())
      if (other instanceof Composer && other.fields.has(name)) return other.fields.get(name);
    return name.startsWith("reward.components") ? this.fields.get("reward.components") : null;
  }

  /** Title of a setting for people, with the section it is in. */
  title(name) {
    const section = this.sections.find((known) => name.startsWith(`${known.spec.name}.`));
    const field = this.find(name);
    return [section?.spec.title, field?.spec.title].filter(Boolean).join(" \u203a ") || name;
  }

  /** Open the section of a setting, scroll there and put the cursor into it. */
  reveal(name) {
    const section = this.sections.find((known) => name.startsWith(`${known.spec.name}.`));
    if (!section) return;
    section.node.open = true;
    const field = this.find(name);
    const target = field ? field.node : section.node;
    target.scrollIntoView({ block: "center" }); // at once: a slow way ends beside it where something above still grows
    field?.focus();
  }
}
