// The form of the Train page, and what will happen. It is loaded when somebody chooses or changes something (train.js).
import { debounce, el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { listing, t, tn } from "../shared/language.js";
import { REST } from "../shared/poll.js";
import { NO_ANSWER, Once, onlyWatches, whenShown } from "../shared/visit.js";
import { saveText } from "../shared/take.js";
import { Cards, recordedRuns } from "./cards.js";
import { Film } from "./film.js";
import { Field, same } from "./form.js";
import { fileButtons, inOne, showWanted, take, takeRecipe, tooLarge } from "./handover.js";
import { NOTHING_SAID, Outlook } from "./outlook.js";
import { Picker } from "./picker/picker.js";
import { Preview } from "./preview.js";
import { levelSwitch, Sections } from "./sections.js";
import { kindsOf, NO_FORM, State } from "./state.js";
import { Trial } from "./trial.js";
import { TryIt } from "./tryit.js";

const CHECK_AFTER = 300;
const LOOK_AGAIN = 4000;
const MEASURING = 1500;
const MOST_NAMED = 5; // settings in a sentence
const LONGEST_CHECK = 60000; // a model's files may have to be fetched first
const OPEN_AT_FIRST = []; // the names of PPO frighten who sees them first
const PREVIEWED = ["model.policy", "model.revision", "engine.seed"];
const OPEN_FOR_OWN = ["model", "data", "reward"];

const settingOf = (node) => node.closest?.("[data-setting]")?.dataset.setting;

export class TrainPage {
  constructor(root, { server, trigger, boot, poll }) {
    this.root = root;
    this.poll = poll;
    this.server = server;
    this.trigger = trigger;
    this.boot = boot;
    this.forgetAnswers();
    this.once = new Once();
    this.touched = new Set(); // settings that the person has left, or changed
    this.offered = ""; // the setting that has the focus because a card was chosen
    this.pressed = false; // whether Start was pressed: then nothing that is missing is passed over
    root.addEventListener("focusout", (event) => this.left(event.target));
    root.addEventListener("input", (event) => this.typed(event.target));
    this.film = new Film((question) => server.replay(question), boot.replay);
    this.state = new State(boot.recipes, boot.own, () => this.edited());
    this.preview = new Preview(() => this.ask("preview"));
    this.trial = boot.operator ? this.trialOf() : null;
    this.outlook = new Outlook({
      operator: boot.starts,
      whyNot: boot.why_not,
      onstart: () => this.start(),
      onresume: () => this.start(true),
      onforget: () => this.state.forget(),
      onproblem: (field) => this.reveal(field),
      onuse: (values) => this.sections.setTogether(values),
      mendOf: (field) => this.sections.mend(field),
      onmeasure: () => this.measure(),
      titleOf: (field) => this.sections.title(field),
      name: this.nameField(),
      trial: this.trial,
    });
    this.opened = memory.get("train.opened", OPEN_AT_FIRST);
    this.tryIt = new TryIt({
      poll,
      operator: boot.operator,
      ask: (question) => this.ask("try_reward", question),
      value: (name) => this.state.value(name),
      reveal: (field) => this.sections.reveal(field),
      prompts: async () => (await this.ask("preview")).rows.map((row) => row.text),
      kinds: kindsOf(boot),
    });
    this.sections = this.formOf(this.state.stage);
    this.picker = new Picker(this);
    this.preview.ondraw = () => this.picker.follow();
    this.checkSoon = debounce(CHECK_AFTER, () => this.check());
    this.draw();
    this.edited();
    this.keepUpToDate();
    takeRecipe(this);
  }

  /** Settings of another run, handed over by another page. */
  take(settings) {
    take(this, settings);
  }

  takeRecipe() {
    takeRecipe(this);
  }

  /** What tries these settings for two minutes. */
  trialOf() {
    return new Trial({
      poll: this.poll,
      ask: (question) =>
        question.op === "start"
          ? this.once.ask(this.payload(question), (wanted) => this.server.trial(wanted))
          : this.server.trial({ ...question, view: onlyWatches() }),
      ready: () => this.startable(),
      key: () => `${this.state.stage} ${this.state.value("model.policy")}`,
      values: () => this.state.values,
      onuse: (values) => this.sections.setTogether(values),
    });
  }

  /** The form of a stage, with its own settings. */
  formOf(stage) {
    this.stage = stage;
    const extras = { data: this.preview.node, reward: this.tryIt.node };
    const { devices, forms } = this.boot;
    return new Sections(forms[stage], devices, this.state, extras, this.opened, (name, open) =>
      this.toggled(name, open),
    );
  }

  typed(target) {
    this.touched.add(settingOf(target));
    if (!this.film.node.contains(target)) this.film.pause();
  }

  /** Other runs start and end meanwhile: check again when the page is shown. */
  keepUpToDate() {
    whenShown(this.root, () => {
      this.checkSoon();
      showWanted(this);
    });
  }

  /** Milliseconds until the next check by itself: while runs wait, and while the machine is measured. */
  get nextCheck() {
    const { waiting, measure } = this.outlook.last;
    return measure?.running ? MEASURING : waiting ? LOOK_AGAIN : REST;
  }

  nameField() {
    const spec = { ...this.boot.forms[this.state.stage].name, help: t("Shown in the list of runs.") };
    this.nameInput = new Field(spec, this.state.value("name"), undefined, (value) => this.state.set("name", value));
    return this.nameInput.node;
  }

  draw() {
    this.cards = new Cards(this.boot, (name) => {
      this.pick(name);
      this.goOn();
    });
    this.reset = el("button", { type: "button", class: "rs-quiet", onclick: () => this.undo() });
    this.message = el("p", { class: "rs-message", role: "status", hidden: true });
    const tools = el(
      "div",
      { class: "rs-form-tools rs-flow" },
      this.picker.toSteps,
      levelSwitch(this.root),
      el(
        "div",
        { class: "rs-files rs-wrap" },
        this.reset,
        fileButtons({
          operator: this.boot.operator,
          onload: (file) => this.load(file),
          onsave: () => this.save(),
        }),
      ),
    );
    fill(
      this.root,
      this.poll.notice,
      this.boot.looks ? recordedRuns(this.boot) : null,
      el(
        "div",
        { class: "rs-columns" },
        el(
          "div",
          { class: "rs-form" },
          this.film.node,
          this.cards.node,
          tools,
          this.message,
          this.picker.node,
          this.sections.node,
        ),
        this.outlook.node,
      ),
    );
    this.drawCards();
    this.picker.arrange();
  }

  /** Something was chosen: the next field to fill is in view and has the focus; Start where nothing is missing. */
  goOn() {
    this.cards.fold();
    const blank = Object.keys(this.state.own.get(this.state.card)?.blank || {});
    const next = blank.find((name) => !this.state.value(name)?.length);
    if (this.picker.active) this.picker.begin();
    else if (next) this.sections.reveal((this.offered = next));
    else this.outlook.focus();
  }

  /** The settings are wanted: the focus is on the first section. */
  change() {
    this.sections.node.querySelector("summary").focus();
  }

  /** Show a setting, where it is now: in a step or in the form. */
  reveal(field) {
    if (!this.picker.reveal(field)) this.sections.reveal(field);
  }

  drawCards() {
    this.cards.show(this.state.card);
    this.sayName();
  }

  /** The name of a run that is given none. */
  sayName() {
    const { origin, card, recipe } = this.state;
    const free = this.state.own.has(card) ? t("the model's name") : recipe.title;
    this.nameInput.focusable.placeholder = origin
      ? this.answer.origin?.name || t("{name}, again", { name: origin.name })
      : this.answer.name || free;
  }

  toggled(name, open) {
    this.opened = open ? [...new Set([...this.opened, name])] : this.opened.filter((other) => other !== name);
    memory.set("train.opened", this.opened);
    if (name === "data" && open) this.preview.wake();
  }

  /** A card was chosen: take its settings, and offer the way back when that dropped changes: an own card keeps its. */
  pick(card) {
    if (card === this.state.card) return;
    const before = { ...this.state };
    const dropped = this.state.own.has(before.card) ? 0 : this.changes.length;
    this.choose(card, this.state.ownValues(card));
    if (dropped)
      this.say(tn("{count} change was dropped.", "{count} changes were dropped.", dropped), false, this.back(before));
  }

  /** The button that brings settings back. */
  back({ card, values, origin, brought }) {
    return [t("Bring back"), () => this.choose(card, values, origin, brought)];
  }

  /** The settings that Undo takes back: not the name, and of one's own card not the model, the data and the rewards. */
  get changes() {
    const { fits, chosen, differing, keeps } = this.state; // what came with a file is chosen, whatever its value
    return (fits ? chosen : differing).filter((name) => !keeps.includes(name));
  }

  undo() {
    const before = { ...this.state };
    const undone = this.changes.map((name) => this.sections.title(name));
    this.choose(this.state.card, this.state.keptValues);
    const more = undone.length > MOST_NAMED ? t(" and {length} more", { length: undone.length - MOST_NAMED }) : "";
    this.say(
      t("Undone: {join}{more}.", { join: listing(undone.slice(0, MOST_NAMED)), more }),
      false,
      this.back(before),
    );
  }

  choose(card, values, origin = null, brought = []) {
    const own = this.state.own.has(card) && this.state.card !== card;
    this.pressed = false;
    this.touched.clear();
    const another = this.state.recipeOf(card).stage !== this.stage;
    if (another) this.forgetAnswers();
    this.state.choose(card, values, origin, brought);
    if (another) {
      this.picker.leave();
      const before = this.sections.node;
      this.sections = this.formOf(this.state.stage);
      before.replaceWith(this.sections.node);
      this.show(this.answer);
    }
    if (own) this.sections.open(OPEN_FOR_OWN);
    this.nameInput.load(this.state.value("name"), undefined);
    this.drawCards();
    this.sections.load();
    this.picker.arrange();
    this.say("");
  }

  /** Nothing has been said yet. What was said of another stage names settings that this one does not have. */
  forgetAnswers() {
    this.answer = NOTHING_SAID;
    this.checked = null; // the values that the answer is about
    this.problems = [];
    this.refused = null; // the answer to a Start that was refused for a reason which no setting has
  }

  /** Something changed: mark it at once, ask the server a moment later. */
  edited() {
    if (!this.sections) return;
    const count = this.changes.length;
    this.refused = null;
    this.withdraw();
    this.picker.follow();
    setText(this.reset, t("Undo {count}", { count: counted(count, "change") }));
    show(this.reset, count > 0);
    this.tryIt.consider();
    this.trial?.consider();
    this.checkSoon();
    const shown = Object.entries(this.state.values).filter(
      ([name]) => name.startsWith("data.") || PREVIEWED.includes(name),
    );
    this.preview.consider(shown);
    this.outlook.waiting();
  }

  /** Take back what was said of settings that have changed since: it may be wrong now, and the next check will say. */
  withdraw() {
    const { problems, risks } = this.answer;
    const settingOf = (field) =>
      Object.keys(this.state.values).find((name) => field === name || field.startsWith(`${name}.`));
    const asChecked = (field) => !field || same(this.checked?.[settingOf(field)], this.state.value(settingOf(field)));
    const left = problems.filter(({ field }) => asChecked(field));
    const risky = risks.filter(({ field, changes }) => [field, ...Object.keys(changes)].every(asChecked));
    if (left.length < problems.length || risky.length < risks.length)
      this.show({ ...this.answer, problems: left, risks: risky });
  }

  payload(more) {
    const { values, recipe, origin, fits } = this.state;
    const chosen = fits ? { chosen: this.state.chosen } : {};
    return { values, basis: recipe.name, parent: origin?.run || "", view: onlyWatches(), ...chosen, ...more };
  }

  ask(what, more) {
    return this.server[what](this.payload(more));
  }

  /** Check these settings at once, and again while the answer may change by itself. */
  check() {
    const { values } = this.state;
    const receive = (answer) => {
      if (values !== this.state.values) return REST; // they have changed since, and are checked in a moment
      if (this.state.fits && answer.fitted && this.fit(answer.fitted)) return REST; // what fits is checked in a moment
      this.checked = values;
      this.show(this.withRefusal(answer));
      this.outlook.settled();
      return this.nextCheck;
    };
    const onfailure = () => this.outlook.lost();
    if (this.checks) this.poll.remove(this.checks); // what is still on its way is about other settings
    this.checks = this.poll.add({ ask: () => this.ask("check"), receive, onfailure, limit: LONGEST_CHECK });
    this.checks.wake();
  }

  /** Take over what fits the model and the data. Gives whether settings changed. */
  fit(fitted) {
    const changed = this.state.fit(fitted);
    this.sections.load();
    if (changed) this.state.changed();
    return changed;
  }

  /** What was said of the last Start stays until something is changed or Start is pressed again. */
  withRefusal(answer) {
    const { problems = [], duplicate, run } = this.refused || {};
    return { ...answer, problems: [...answer.problems, ...problems], duplicate: answer.duplicate || duplicate, run };
  }

  /** A setting is left: from now on it is said when it is empty and must not be. */
  left(target) {
    const name = settingOf(target);
    if (!name) return;
    const offered = name === this.offered; // the focus was put there by the page, not by the person
    this.offered = "";
    if (offered || this.touched.has(name)) return;
    this.touched.add(name);
    this.show(this.answer);
  }

  /** A setting that needs a value and that nobody has filled in yet is no mistake of anyone. */
  untouched({ field, lacks }) {
    if (!lacks || this.pressed || this.touched.has(field)) return false;
    const [, place, part] = field.match(/^reward\.components\.(\d+)\.(.+)$/) || [];
    const value = part ? this.state.value("reward.components")[place]?.[part] : this.state.value(field);
    return value === "" || value?.length === 0;
  }

  show(answer) {
    this.answer = answer;
    const problems = answer.problems.filter((problem) => !this.untouched(problem));
    const missing = answer.problems.filter((problem) => this.untouched(problem));
    this.sections.setProblems(problems);
    this.nameInput.setProblem(
      problems
        .filter((problem) => problem.field === "name")
        .map((problem) => problem.message)
        .join("; "),
    );
    this.outlook.show({ ...answer, problems, missing, origin: this.state.originWith(answer.origin) });
    this.picker.follow({ problems, missing });
    this.problems = answer.problems;
    this.sayName();
  }

  /** Whether these settings may start; else what is in the way is shown. */
  startable() {
    if (this.outlook.busy) return false;
    if (this.state.fits && this.checked !== this.state.values) {
      this.fitFirst();
      return false;
    }
    this.pressed = true;
    this.problems = this.problems.filter((problem) => !this.refused?.problems.includes(problem));
    this.refused = null;
    if (!this.problems.length) return true;
    this.show(this.answer);
    const first = this.problems.find((problem) => problem.field) || this.problems[0];
    this.reveal(first.field);
    return false;
  }

  /** Start a new run; with `resume` the run that the settings came from goes on. */
  start(resume = false) {
    if (!this.startable()) return;
    this.outlook.starting(true);
    const own = this.state.own.has(this.state.card) && !this.state.origin;
    const name = this.state.value("name") || (own ? this.state.ownName : "");
    const wanted = this.payload({ values: { ...this.state.values, name }, resume });
    this.nonce = this.once.nonce(wanted);
    this.sent = this.state.values;
    this.trigger("start", { ...wanted, nonce: this.nonce });
    // if the server never answers, the button comes back; the same settings have the same nonce then, and start one run
    setTimeout(() => this.outlook.starting(false), 30000);
  }

  /** Start was pressed before it is known what fits the model: nothing starts with settings that nobody has seen. */
  fitFirst() {
    this.say(t("The settings are still being fitted to your model and data. Press Start run again in a moment."));
    this.checkSoon();
  }

  /** Measure this machine: the answer arrives with one of the next checks. */
  measure() {
    this.trigger("measure", { device: this.outlook.last.measure.device, view: onlyWatches() });
    this.outlook.show({ ...this.outlook.last, measure: { ...this.outlook.last.measure, running: true } });
    this.checks?.later(MEASURING);
  }

  /** The server's answer to Start. */
  outcome(answer) {
    this.once.answered(answer.nonce);
    if (answer.nonce !== this.nonce) return;
    this.outlook.starting(false);
    if (answer.problems && this.sent !== this.state.values) return; // of settings that have changed since
    if (answer.problems) {
      this.refused = answer.problems.some(({ field }) => field) ? null : answer;
      this.show({ ...this.answer, problems: answer.problems, duplicate: answer.duplicate, run: answer.run });
      if (answer.problems[0].field) this.reveal(answer.problems[0].field);
    } else this.checkSoon();
  }

  /** Ask for something a person waits for; says so and gives null when the app does not answer. */
  async wanted(question) {
    try {
      return await question;
    } catch (error) {
      console.error("no answer from the app:", error);
      this.say(NO_ANSWER, true);
      return null;
    }
  }

  async save() {
    const answer = await this.wanted(this.ask("to_yaml"));
    if (!answer) return undefined;
    if (answer.problems) return this.show({ ...this.answer, problems: answer.problems });
    saveText(answer.text, answer.file_name, "text/yaml");
    return this.say(
      t("Saved as {file_name}. The same file works with: python -m rlhf_studio train --config " + "{file_name}", {
        file_name: answer.file_name,
      }),
    );
  }

  async load(chosen) {
    if (tooLarge(chosen)) return void this.say(tooLarge(chosen), true);
    const answer = await this.wanted(this.server.from_yaml({ text: await chosen.text(), view: onlyWatches() }));
    if (!answer) return;
    if (answer.problems)
      return void this.say(
        t("{name} was not loaded. {problems}", { name: chosen.name, problems: inOne(answer.problems) }),
        true,
      );
    if (!answer.basis)
      return void this.say(t("{name} was not loaded. {no_form}", { name: chosen.name, no_form: NO_FORM }), true);
    const brought = answer.basis === this.state.card ? this.state.keptValues : {}; // what the file does not name stays
    this.choose(answer.basis, { ...brought, ...answer.values }, null, answer.chosen);
    this.say(t("Loaded {name}.", { name: chosen.name }));
  }

  say(text, wrong = false, action = null) {
    fill(this.message, text, action ? pushButton("rs-quiet", action[0], action[1]) : null);
    this.message.classList.toggle("rs-problem", wrong);
    show(this.message, Boolean(text));
  }
}
