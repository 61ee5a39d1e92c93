// The four steps: model, data, reward, start. Each says in one line what is chosen, and fills the form's own settings.
import { debounce, each, el, elEach, fill, pushButton, setText, show } from "../../shared/dom.js";
import { counted, integer, readable, shortName } from "../../shared/format.js";
import { colon, sentence, t } from "../../shared/language.js";
import { formatValue } from "../form.js";
import { Choices } from "./choices.js";
import { Finder } from "./finder.js";
import { RewardTexts } from "./texts.js";

export const NOTHING = t("not chosen yet");
const LOOK_AFTER = 400;

/** What a stage learns from, as people call it. */
const DATA = {
  ppo: { title: t("Prompts"), question: t("Which prompts shall it answer?"), noun: "prompt" },
  sft: { title: t("Examples"), question: t("Which texts or answers shall it learn from?"), noun: "example" },
  reward_model: { title: t("Pairs"), question: t("Which pairs shall it learn from?"), noun: "example" },
  dpo: { title: t("Pairs"), question: t("Which pairs shall it learn from?"), noun: "example" },
};

/** A step. `prefixes` are how the names of its settings begin. */
class Step {
  constructor(picker, { key, title, question, prefixes }) {
    this.picker = picker;
    this.key = key;
    this.title = title;
    this.prefixes = prefixes;
    this.page = picker.page;
    this.heading = el("h2", { class: "rs-way-question", tabindex: -1 }, question);
    this.problems = el("ul", { class: "rs-way-problems", role: "status", hidden: true });
    this.node = el("section", { class: "rs-way-step", data: { step: key } });
  }

  value(name) {
    return this.page.state.value(name);
  }

  has(field) {
    return this.prefixes.some((prefix) => field.startsWith(prefix));
  }

  /** @param problems  of this step's settings: [{field, message}] */
  follow(problems) {
    each(this.problems, problems, ({ field, message }) =>
      el("li", {}, el("b", {}, this.page.sections.title(field)), " ", readable(message, 600)),
    );
    show(this.problems, problems.length > 0);
  }

  enter() {}

  next() {}

  showChosen() {}
}

/** A step with a list to choose from, a field to type a name into, and other ways to find something. */
class ChoosingStep extends Step {
  constructor(picker, { hint, key, title, question, prefixes }) {
    super(picker, { key, title, question, prefixes });
    const value = (name) => this.value(name);
    const onchoose = (choice) => this.choose(choice);
    this.list = new Choices({ label: question, value, onchoose });
    this.note = el("p", { class: "rs-help" });
    this.own = el("p", { class: "rs-way-own", hidden: true }); // a choice that is not in the list
    this.typed = el("input", {
      class: "rs-input",
      type: "text",
      maxlength: 4096,
      spellcheck: "false",
      autocomplete: "off",
      placeholder: hint,
      "aria-label": hint,
      oninput: () => this.filter(),
      onkeydown: (event) => event.key === "Enter" && this.use(),
    });
    this.useIt = pushButton("rs-button rs-small", t("Use this name"), () => this.use());
    show(this.useIt, false);
    const ask = (name, question) => this.picker.ask(name, question);
    this.finder = new Finder({
      what: this.key,
      ask,
      value,
      onchoose,
      onpath: (path) => this.put(this.settingsOf(path)),
      onupload: (settings) => this.uploaded(settings),
    });
    fill(
      this.node,
      this.heading,
      el("div", { class: "rs-way-typed rs-middle" }, this.typed, this.useIt),
      this.finder.node,
      this.own,
      this.problems,
      this.list.node,
      this.note,
    );
  }

  async load() {
    if (this.loaded) return;
    this.loaded = true;
    setText(this.note, t("Looking at what there is"));
    const { groups = [], note, browse, problem } = await this.picker.ask("pick_choices", { what: this.key });
    this.loaded = !problem; // else the next visit asks again
    this.list.draw(this.completed(groups));
    this.finder.offer(browse);
    setText(this.note, problem || note);
    this.picker.follow();
    this.showChosen();
  }

  /** Bring what is chosen into view: on a small screen the list reaches below it. A page just opened stays as it is. */
  showChosen() {
    this.list.showChosen(this.picker.went && this.picker.step === this);
  }

  /** Fill in what was chosen, typed or found. */
  put(settings) {
    this.page.sections.setTogether(settings);
    this.picker.follow();
  }

  /** The settings that a name fills in. */
  settingsOf(name) {
    return { [this.key]: name };
  }

  /** The server's choices as the form holds them. */
  completed(groups) {
    return groups;
  }

  enter() {
    this.load();
    this.list.showChosen(false);
  }

  filter() {
    const words = this.typed.value.trim();
    this.list.filter(words);
    show(this.useIt, Boolean(words) && this.key !== "reward");
  }

  choose(choice) {
    this.put(choice.settings);
  }

  use() {
    const name = this.typed.value.trim();
    if (!name || this.key === "reward") return;
    this.put(this.settingsOf(name));
    this.typed.value = "";
    this.filter();
  }

  /** The next step is wanted: what was typed is a name where no row has these words. */
  next() {
    if (this.list.fitting === 0) this.use();
  }

  /** The name that the form holds; none where the settings are not a name. */
  get named() {
    return "";
  }

  uploaded(settings) {
    this.put(settings);
    this.loaded = false;
    this.load();
  }

  follow(problems) {
    super.follow(problems);
    this.list.follow();
    this.finder.follow();
    const name = this.named && !this.list.chosen ? this.named : "";
    fill(this.own, t("Chosen: "), el("b", {}, readable(name, 600)));
    show(this.own, Boolean(name));
  }
}

class ModelStep extends ChoosingStep {
  constructor(picker) {
    super(picker, {
      key: "model",
      title: t("Model"),
      question: t("Which model shall learn?"),
      hint: t("Filter, or type a folder or hub id"),
      prefixes: ["model."],
    });
    this.facts = el("p", { class: "rs-way-facts", role: "status" });
    this.problems.before(this.facts);
    this.lookSoon = debounce(LOOK_AFTER, () => this.look());
  }

  settingsOf(name) {
    return { "model.policy": name, "model.revision": "main" };
  }

  get named() {
    return this.value("model.policy");
  }

  get line() {
    const name = this.value("model.policy");
    if (!name) return NOTHING;
    const { title, size } = this.list.chosen || { title: name, size: this.size };
    return readable(shortName(title, title), 80) + (size ? `, ${size}` : "");
  }

  follow(problems) {
    super.follow(problems);
    const name = this.value("model.policy");
    if (name === this.looked) return;
    this.looked = name;
    this.size = ""; // of its weights, in words
    setText(this.facts, "");
    if (name) this.lookSoon();
  }

  /** What the files of the chosen model say. */
  async look() {
    const name = this.looked;
    const answer = await this.picker.ask("pick_model", { model: name });
    if (name !== this.looked) return;
    this.size = answer.size || "";
    setText(
      this.facts,
      answer.sentence ? colon(readable(shortName(name, name), 80), sentence(readable(answer.sentence, 600))) : "",
    );
    this.picker.follow();
  }
}

class DataStep extends ChoosingStep {
  constructor(picker) {
    const { title, question, noun } = DATA[picker.page.state.stage];
    super(picker, {
      key: "data",
      title,
      question,
      hint: t("Filter, or type a file or hub id"),
      prefixes: ["data."],
    });
    this.noun = noun;
    this.source = picker.page.state.stage === "ppo" ? "data.prompts" : "data.source";
    this.rows = el(
      "details",
      { class: "rs-way-part", open: true },
      el("summary", {}, t("First rows, and lengths in tokens of the model")),
    );
    this.columns = el("details", { class: "rs-way-part" }, el("summary", {}, t("Where the texts are in a row")));
    this.note.after(this.rows, this.columns);
  }

  /** Take the parts of the form that belong here. */
  borrow(borrowed) {
    this.rows.append(borrowed.take(this.page.preview.node));
    const names = [...this.page.sections.fields.keys()].filter(
      (name) => name.startsWith("data.") && /column$|\.subset$|\.split$/.test(name),
    );
    const fields = names.map((name) => this.page.sections.fields.get(name));
    this.columns.append(
      elEach("div", { class: "rs-grid rs-all-settings" }, fields, (field) => borrowed.take(field.node)),
    );
    this.fields = new Set(names);
  }

  settingsOf(name) {
    return { [this.source]: name };
  }

  get named() {
    return this.value(this.source);
  }

  get line() {
    const source = this.value(this.source);
    if (!source) return NOTHING;
    const { total, whole, message } = this.page.preview.last || {};
    const count =
      total && !message
        ? whole
          ? t(", {count}", { count: counted(total, this.noun) })
          : t(", more than {count}", { count: counted(total, this.noun) })
        : "";
    return readable(shortName(source, source), 80) + count;
  }

  enter() {
    super.enter();
    this.page.preview.wake();
  }

  follow(problems) {
    super.follow(problems);
    if (problems.some(({ field }) => this.fields?.has(field))) this.columns.open = true;
    show(this.rows, Boolean(this.value(this.source)));
    show(this.columns, Boolean(this.value(this.source)));
    if (this.picker.step === this && this.value(this.source)) this.page.preview.wake();
  }
}

class RewardStep extends ChoosingStep {
  constructor(picker) {
    super(picker, {
      key: "reward",
      title: t("Reward"),
      question: t("What makes an answer a good one?"),
      hint: t("Filter the rewards"),
      prefixes: ["reward."],
    });
    this.kinds = picker.page.boot.forms.ppo.components;
    this.settings = el("details", { class: "rs-way-part" }, el("summary", {}, t("Its settings, and more components")));
    this.texts = new RewardTexts({
      poll: this.page.poll,
      ask: (question) => this.page.ask("try_reward", question),
      prompts: () => this.asWritten(),
    });
    this.note.after(this.settings, this.texts.node);
  }

  /** The first prompts as they stand in the data, without a chat template around them. */
  async asWritten() {
    const values = { ...this.page.state.values, "data.chat_template": false };
    return (await this.page.ask("preview", { values })).rows.map((row) => row.text);
  }

  borrow(borrowed) {
    this.settings.append(borrowed.take(this.page.sections.fields.get("reward.components").node));
  }

  completed(groups) {
    const whole = (component) => ({
      ...this.kinds.find(({ kind }) => kind === component.kind)?.defaults,
      ...component,
    });
    const filled = ({ settings, ...choice }) => ({
      ...choice,
      settings: { "reward.components": settings["reward.components"].map(whole) },
    });
    return groups.map((group) => ({ ...group, choices: group.choices.map(filled) }));
  }

  choose(choice) {
    super.choose(this.completed([{ choices: [choice] }])[0].choices[0]);
  }

  get named() {
    return this.value("reward.components").length ? this.line : "";
  }

  get line() {
    const summary = this.list.chosen?.title || this.page.sections.fields.get("reward.components").summary();
    return readable(summary, 120) || NOTHING;
  }

  enter() {
    super.enter();
    if (this.value("data.prompts")) this.texts.enter();
  }

  follow(problems) {
    super.follow(problems);
    const chosen = this.value("reward.components").length > 0;
    show(this.settings, chosen);
    show(this.texts.node, chosen);
    if (problems.some(({ field }) => field.startsWith("reward.components."))) this.settings.open = true;
    const read = JSON.stringify(["reward.components", "model.policy", "data.prompts"].map((name) => this.value(name)));
    if (this.read !== undefined && read !== this.read) this.texts.forget();
    this.read = read;
  }
}

class StartStep extends Step {
  constructor(picker) {
    super(picker, { key: "start", title: t("Start"), question: t("Is this what you want?"), prefixes: [] });
    this.chosen = el("ul", { class: "rs-way-chosen" });
    this.fits = el("details", { class: "rs-way-part" }, el("summary", {}, t("Settings that follow from your choice")));
    this.table = el("dl", { class: "rs-way-fits" });
    this.fits.append(this.table);
    this.words = el("p", { class: "rs-help" });
    fill(this.node, this.heading, this.chosen, this.words, this.fits);
  }

  get line() {
    const { problems, missing } = this.picker.said;
    if (missing.length) return t("something is missing");
    if (problems.length) return counted(problems.length, "problem");
    const time = this.page.answer.figures.find(({ label }) => label === "Time");
    return time ? time.value : t("not checked yet");
  }

  follow() {
    const before = this.picker.steps.filter((step) => step !== this);
    each(this.chosen, before, (step) => {
      const change = pushButton("rs-quiet", t("Change"), () => this.picker.go(step.key));
      change.setAttribute("aria-label", t("Change: {title}", { title: step.title }));
      const said = el("span", { class: "rs-way-value" }, step.line);
      return el("li", {}, el("span", { class: "rs-way-key" }, step.title), said, change);
    });
    const { missing, problems } = this.picker.said;
    setText(
      this.words,
      missing.length || problems.length
        ? t("What is still in the way stands under “What will happen”.")
        : t(
            "Time, memory, disk and every warning stand under “What will happen”, with the button that starts the run.",
          ),
    );
    const { state, sections } = this.page;
    const fitted = Object.entries(state.fitted.get(state.card) || {}).filter(([name]) => !state.chosen.includes(name));
    each(this.table, fitted, ([name, { value, why, guess }]) =>
      el(
        "div",
        {},
        el("dt", {}, sections.title(name)),
        el("dd", {}, colon(shown(value), `${sentence(readable(why, 300))}${guess ? t(" A guess.") : ""}`)),
      ),
    );
    show(this.fits, fitted.length > 0);
  }
}

const shown = (value) =>
  typeof value === "boolean" ? (value ? "on" : "off") : value >= 1000 ? integer(value) : formatValue(value);

/** The steps of a stage. */
export const stepsOf = (picker, stage) => [
  new ModelStep(picker),
  new DataStep(picker),
  ...(stage === "ppo" ? [new RewardStep(picker)] : []),
  new StartStep(picker),
];
