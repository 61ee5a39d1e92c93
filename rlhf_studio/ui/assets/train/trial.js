// "Try for two minutes": a short run with these settings, what will come of the night, and settings that would go
// better, each with a click to take it. The server measures and judges; this only shows it.
import { colon, sentence, t } from "../shared/language.js";
import { pageLink } from "../shared/links.js";
import { el, elEach, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { REST } from "../shared/poll.js";
import { NO_ANSWER } from "../shared/visit.js";
import { same } from "./form.js";

const ASK_AGAIN = 1000;
const MORNING = "07:00";
const OTHER_SETTINGS = t("The settings have changed since this trial began: what it says is of those that it had.");
const LABEL = t("Try for two minutes");

/** Seconds from now to the next time that a clock shows `until`, such as "07:00". */
function secondsUntil(until, now = new Date()) {
  const [hours, minutes] = until.split(":").map(Number);
  const end = new Date(now);
  end.setHours(hours, minutes, 0, 0);
  if (end <= now) end.setDate(end.getDate() + 1);
  return (end.getTime() - now.getTime()) / 1000;
}

/** Its `button` and its `node`, which holds what the trial says, stand where the page puts them. */
export class Trial {
  /**
   * @param poll    of the page
   * @param ask     async ({op, run, seconds, until}) -> {state, run, progress, fraction, headline, ...}
   * @param ready   whether the settings may start; shows what is in the way
   * @param key     what a trial is of, such as the model: with another one chosen, what it said is not shown
   * @param values  the present settings, by name
   * @param onuse   called with {setting: value} that a person takes over
   */
  constructor({ poll, ask, ready, key, values, onuse }) {
    this.poll = poll;
    this.asking = ask;
    this.ready = ready;
    this.key = key;
    this.values = values;
    this.onuse = onuse;
    this.button = pushButton("rs-button rs-trial-button", LABEL, () => this.start());
    this.status = el("span", { role: "status" });
    this.bar = el("progress", { class: "rs-progress-bar", "aria-label": t("The trial"), max: 1 });
    this.stop = pushButton("rs-quiet", t("Stop"), () => this.end("stop"));
    this.working = el("div", { class: "rs-trial-working", hidden: true }, this.status, this.bar, this.stop);
    this.until = el("input", {
      type: "time",
      class: "rs-input",
      required: true,
      onchange: () => this.until.value && this.look(),
    });
    this.until.value = memory.get("train.until", MORNING);
    this.said = el("div", { class: "rs-trial-said rs-column" });
    this.other = el("p", { class: "rs-problem", role: "status", hidden: true }, OTHER_SETTINGS);
    this.node = el(
      "section",
      { class: "rs-trial rs-column", "aria-label": t("The trial"), hidden: true },
      el("h3", {}, t("The trial")),
      this.working,
      this.other,
      this.said,
    );
    this.run = "";
    this.of = "";
    this.used = {};
    this.had = {}; // the settings of the trial, by name
    this.busy = false;
    this.judged = null;
    const kept = memory.get("train.trial", null);
    if (kept?.run) {
      Object.assign(this, kept);
      this.follow();
    }
  }

  async start() {
    if (this.busy || !this.ready()) return;
    this.of = this.key();
    this.used = {};
    this.had = structuredClone(this.values());
    this.judged = null;
    this.begin(t("Starting"));
    this.consider();
    this.node.scrollIntoView({ block: "nearest" }); // on a phone the button is in a bar, far from here
    const answer = await this.ask({ op: "start" });
    if (answer.run) {
      this.keep(answer.run);
      await this.follow();
    } else this.receive(answer);
  }

  begin(text) {
    this.busy = true;
    this.button.setAttribute("aria-disabled", "true");
    fill(this.said);
    setText(this.status, text);
    this.bar.removeAttribute("value");
    show(this.working, true);
    show(this.node, true);
  }

  keep(run) {
    this.run = run;
    memory.set("train.trial", run ? { run, of: this.of, used: this.used, had: this.had } : null);
  }

  /** Ask how far the trial is until it has ended. */
  async follow() {
    this.begin(this.status.textContent || t("Looking at the trial"));
    const ask = () => this.asking(this.question("look"));
    const seen = await this.poll.until({ ask, receive: (answer) => this.receive(answer) });
    if (!seen) this.receive({ state: "failed", error: NO_ANSWER });
  }

  question(op) {
    const { run, until } = this;
    return { op, run, seconds: secondsUntil(until.value), until: t("until {value}", { value: until.value }) };
  }

  async ask(question) {
    try {
      return await this.asking(question);
    } catch (error) {
      console.error("no answer about the trial:", error);
      return { state: "failed", error: NO_ANSWER };
    }
  }

  /** The same trial, judged for another time. */
  async look() {
    memory.set("train.until", this.until.value);
    this.used = {};
    this.keep(this.run);
    this.receive(await this.ask(this.question("look")));
  }

  async end(op) {
    const answer = await this.ask(this.question(op));
    if (op === "delete" && answer.state === "deleted") return this.forget();
    return answer.state === "failed" ? this.receive(answer) : setText(this.status, t("Stopping"));
  }

  /** The trial is no longer shown; in the list of runs it stays. */
  forget() {
    this.keep("");
    this.judged = null;
    fill(this.said);
    show(this.node, false);
    this.button.focus();
  }

  receive(answer) {
    if (answer.state === "working") {
      setText(this.status, answer.progress);
      if (answer.fraction) this.bar.setAttribute("value", answer.fraction);
      else this.bar.removeAttribute("value");
      return ASK_AGAIN;
    }
    this.busy = false;
    this.button.removeAttribute("aria-disabled");
    show(this.working, false);
    this.judged = answer.state === "done" ? answer : null;
    if (!this.judged) this.fail(answer);
    this.consider();
    return REST;
  }

  fail({ error, problems = [] }) {
    const items = problems.map(({ message }) => message);
    const known = this.run ? [this.foot()] : [];
    const list = items.length ? elEach("ul", {}, items, (item) => el("li", {}, item)) : null;
    fill(this.said, el("p", { class: "rs-problem" }, error), list, ...known);
  }

  value(name) {
    return this.values()[name];
  }

  /** Whether a setting, but for the name, is neither what the trial had nor a correction that is taken. */
  get outdated() {
    const taken = (name) =>
      this.judged?.corrections.some((row) => row.setting === name && same(row.new, this.value(name)));
    return Object.entries(this.had).some(
      ([name, had]) => name !== "name" && !same(had, this.value(name)) && !taken(name),
    );
  }

  /** Settings may have changed: it is said where they are others; corrections that are taken show at their buttons. */
  consider() {
    show(this.other, this.outdated);
    show(this.node, this.busy || Boolean(this.run && this.of === this.key()));
    if (this.judged) this.draw();
  }

  draw() {
    const { headline, night, seen, corrections, together } = this.judged;
    const lines = (sentences) => elEach("ul", { class: "rs-trial-lines" }, sentences, (line) => el("li", {}, line));
    const open = corrections.filter((row) => !this.taken(row));
    const olds = new Map(corrections.map((row) => [row.setting, row.old]));
    const missing = Object.entries(together).filter(([setting, better]) => {
      return !this.holds({ setting, old: olds.get(setting) ?? this.value(setting), new: better });
    });
    const all = () => this.take(Object.fromEntries(missing));
    fill(
      this.said,
      el("p", { class: "rs-trial-headline", tabindex: -1 }, headline),
      corrections.length ? elEach("ul", { class: "rs-trial-rows" }, corrections, (row) => this.row(row)) : null,
      open.length > 1 ? pushButton("rs-button rs-small", t("Take all {length}", { length: open.length }), all) : null,
      lines(night),
      el("details", {}, el("summary", {}, t("What it measured")), lines(seen)),
      this.foot(),
    );
  }

  row(row) {
    const { title, reads, why, setting, old } = row;
    const [taken, value] = [this.taken(row), this.value(setting)];
    const words = [
      colon(title, ""),
      taken || same(value, old) ? reads[0] : String(value),
      " \u2192 ",
      el("b", {}, taken && !same(value, row.new) ? String(value) : reads[1]),
    ];
    const button = pushButton("rs-button rs-small", t("Use"), () => this.take({ [setting]: row.new }));
    button.setAttribute("aria-label", t("Use {reads} for {title}", { reads: reads[1], title }));
    return el(
      "li",
      {},
      el("div", {}, el("p", {}, words), el("p", { class: "rs-help" }, sentence(why))),
      taken ? el("span", { class: "rs-help" }, t("Taken")) : button,
    );
  }

  /** Whether the form holds what a row advises, or a value that is lower still. */
  holds({ setting, old, new: better }) {
    const value = this.value(setting);
    return same(value, better) || (better < old && value > 0 && value < better);
  }

  /** Also what was taken of this trial: as the night grows shorter, fewer steps fit than did then. */
  taken(row) {
    return this.holds(row) || (row.setting in this.used && same(this.value(row.setting), this.used[row.setting]));
  }

  /** Fill settings in: {setting: value}. */
  take(changes) {
    this.used = { ...this.used, ...changes };
    this.keep(this.run);
    this.onuse(changes);
    this.draw();
    const next = this.said.querySelector(".rs-trial-rows button, .rs-trial-headline");
    if (next instanceof HTMLElement) next.focus();
  }

  foot() {
    return el(
      "div",
      { class: "rs-trial-foot rs-flow" },
      this.judged ? el("label", { class: "rs-middle" }, t("Until"), this.until) : null,
      pageLink(t("Open it"), "live", { run: this.run }, "rs-quiet"),
      pushButton("rs-quiet", t("Keep it"), () => this.forget()),
      pushButton("rs-quiet", t("Delete it"), () => this.end("delete")),
    );
  }
}
