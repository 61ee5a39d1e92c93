// The prompt, examples, and how the answers are sampled.
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { pieces, readable } from "../shared/format.js";
import { clauses, t } from "../shared/language.js";

const EXAMPLES = 6;
const EXAMPLE_LENGTH = 70;
/** @type {[string, string, object][]} */
const FIELDS = [
  ["temperature", t("Temperature"), { step: "0.1", min: "0.01", max: "10" }],
  ["top_k", t("Top-k (0: all)"), { step: "1", min: "0" }],
  ["top_p", "Top-p", { step: "0.05", min: "0.01", max: "1" }],
  ["response_length", t("Response length"), { step: "1", min: "1" }],
  ["seed", t("Seed"), { step: "1", min: "0" }],
];

export class Composer {
  /** @param on (ask, stop, warm): called when a person wants to ask, to stop, and seems about to ask */
  constructor(on) {
    this.on = on;
    this.touched = new Set();
    this.text = el("textarea", {
      id: "rs-talk-prompt",
      class: "rs-input rs-talk-prompt",
      rows: 3,
      spellcheck: "false",
      placeholder: t("Type a prompt"),
      onfocus: () => on.warm(),
      oninput: () => this.plain(),
      onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && on.ask(),
    });
    this.button = el(
      "button",
      { type: "submit", class: "rs-button rs-primary", title: "Ctrl + Enter", "aria-keyshortcuts": "Control+Enter" },
      t("Ask both"),
    );
    this.cancel = el(
      "button",
      { type: "button", class: "rs-button", hidden: true, onclick: () => on.stop() },
      t("Stop"),
    );
    this.status = el("p", { class: "rs-help rs-talk-status", role: "status" });
    this.problem = el("p", { class: "rs-problem", id: "rs-talk-problem", role: "alert", hidden: true });
    this.examples = el("div", { class: "rs-talk-examples rs-flow" });
    this.node = el(
      "form",
      { class: "rs-talk-composer rs-column", novalidate: true, onsubmit: (event) => this.submit(event) },
      el("label", { class: "rs-label", for: "rs-talk-prompt" }, t("Your prompt")),
      this.text,
      this.examples,
      (this.more = this.settings()),
      this.problem,
      el("div", { class: "rs-talk-buttons rs-flow" }, this.button, this.cancel, this.status),
    );
  }

  settings() {
    this.fields = Object.fromEntries(FIELDS.map((field) => [field[0], this.field(...field)]));
    this.same = el("input", { type: "checkbox", onchange: () => this.summarise() });
    this.same.checked = true;
    this.asRead = el("input", { type: "checkbox" });
    this.chat = el(
      "label",
      { class: "rs-check", hidden: true },
      this.asRead,
      t("The prompt is in its chat template or form already"),
    );
    this.line = el("span", { class: "rs-talk-line" });
    const again = pushButton("rs-button rs-small", t("New seed"), () => this.newSeed());
    return el(
      "details",
      { class: "rs-talk-settings" },
      el("summary", {}, el("b", {}, t("Sampling")), this.line),
      el(
        "div",
        { class: "rs-talk-fields" },
        FIELDS.map(([name]) => this.fields[name].node),
        again,
      ),
      el(
        "div",
        { class: "rs-talk-checks rs-wrap" },
        el("label", { class: "rs-check" }, this.same, t("Same seed for both")),
        this.chat,
      ),
    );
  }

  field(name, label, attributes) {
    const id = `rs-talk-${name}`;
    const changed = () => {
      this.touched.add(name);
      this.summarise();
    };
    const control = el("input", {
      type: "number",
      id,
      class: "rs-input",
      inputmode: "decimal",
      oninput: changed,
      ...attributes,
    });
    return {
      control,
      node: el("div", { class: "rs-field" }, el("label", { class: "rs-label", for: id }, label), control),
    };
  }

  /** What a run's own settings are; numbers that a person has typed stay. */
  setRun({ settings, seed, examples, chat }) {
    for (const [name, value] of Object.entries({ ...settings, seed }))
      if (!this.touched.has(name)) this.fields[name].control.value = String(value);
    show(this.chat, chat);
    if (!chat) this.asRead.checked = false;
    this.isChat = chat;
    const button = (text) =>
      el(
        "button",
        { type: "button", class: "rs-talk-example rs-cut", title: readable(text, 500), onclick: () => this.take(text) },
        oneLine(text),
      );
    fill(
      this.examples,
      examples.length ? el("span", { class: "rs-help" }, t("Watched prompts of the run:")) : null,
      examples.slice(0, EXAMPLES).map(button),
    );
    this.summarise();
  }

  take(text) {
    this.text.value = text;
    this.asRead.checked = Boolean(this.isChat); // watched prompts are kept as the policy reads them
    this.text.focus();
  }

  plain() {
    if (this.text.value === "") this.asRead.checked = false;
  }

  newSeed() {
    this.fields.seed.control.value = String(Math.floor(Math.random() * 2 ** 31));
    this.touched.add("seed");
    this.summarise();
  }

  summarise() {
    setText(this.line, this.sentence());
  }

  /** "temperature 1, up to 32 tokens, seed 0" */
  sentence() {
    const at = (name) => this.fields[name].control.value;
    const cuts = [
      Number(at("top_k")) ? `top-k ${at("top_k")}` : "",
      Number(at("top_p")) < 1 ? `top-p ${at("top_p")}` : "",
    ];
    const seed = at("seed");
    const seeds = this.same.checked
      ? t("seed {seed}", { seed })
      : t("seeds {first} and {second}", { first: seed, second: Number(seed) + 1 });
    return clauses([
      t("temperature {temperature}", { temperature: at("temperature") }),
      ...cuts,
      t("up to {count} tokens", { count: at("response_length") }),
      seeds,
    ]);
  }

  /** What is sent to the server; a field that is empty is left to the run. */
  get request() {
    const value = (name) => (this.fields[name].control.value === "" ? null : Number(this.fields[name].control.value));
    const settings = Object.fromEntries(
      FIELDS.map(([name]) => [name, value(name)]).filter(([name]) => name !== "seed"),
    );
    return {
      prompt: this.text.value,
      as_read: this.asRead.checked,
      settings,
      seed: value("seed") ?? 0,
      same_seed: this.same.checked,
    };
  }

  submit(event) {
    event.preventDefault();
    this.on.ask();
  }

  /** @param student  what a student may ask, or null: then there is more to choose */
  brief(student) {
    show(this.more, student === null);
    if (student) this.text.maxLength = student.longest;
    else this.text.removeAttribute("maxlength");
  }

  busy(on) {
    show(this.cancel, on);
    this.button.disabled = on;
  }

  fail(text, field) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
    for (const [name, { control }] of Object.entries(this.fields)) {
      control.setAttribute("aria-invalid", String(Boolean(text) && name === field));
      if (text && name === field) {
        control.setAttribute("aria-describedby", "rs-talk-problem");
        control.closest("details").open = true;
        control.focus();
      } else control.removeAttribute("aria-describedby");
    }
  }

  /** For people who may only watch. */
  lock(why, said = why) {
    for (const control of this.node.querySelectorAll("button, textarea, input")) control.disabled = Boolean(why);
    setText(this.status, said);
  }
}

function oneLine(text) {
  const { parts, rest } = pieces(text, EXAMPLE_LENGTH);
  return (
    parts.map((part) => (part.kind === "text" ? part.text : part.kind === "code" ? "" : " ")).join("") +
    (rest > 0 ? "…" : "")
  );
}
