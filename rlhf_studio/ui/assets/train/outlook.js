// The column that stays in view: what will happen, what is in the way, the command, and Start.
import { t } from "../shared/language.js";
import { pageLink } from "../shared/links.js";
import { copyButton } from "../shared/take.js";
import { each, el, elEach, fill, newTab, pushButton, setText, show } from "../shared/dom.js";
import { counted, readable } from "../shared/format.js";
import { MemoryPlan } from "./plan.js";

const MARGIN = 16;
const LEAST = 280;
const RISKS = 3; // as many are read; the others are folded
/** The answer of a check as it is before the first one. */
export const NOTHING_SAID = { problems: [], notes: [], risks: [], sentence: "", figures: [], command: "", waiting: 0 };
const SIGNS = { alarm: t("Alarm"), warning: t("Warning"), note: t("Note") };

/** Settings that are likely to spoil the run, each with the value that would not. The run may start all the same. */
class Risks {
  /**
   * @param onuse     called with {setting: value}
   * @param onfield   called with the setting that a risk is about
   * @param onnone    called when a value was taken and no other risk is left to go to
   */
  constructor({ onuse, onfield, onnone }) {
    this.onuse = onuse;
    this.onfield = onfield;
    this.onnone = onnone;
    this.list = el("ul");
    this.others = el("ul");
    this.count = el("summary");
    this.folded = el("details", {}, this.count, this.others);
    this.said = el("p", { class: "rs-hidden", role: "status" });
    this.node = el("section", { class: "rs-risks", "aria-label": t("Risky settings") }, this.list, this.folded);
  }

  show(risks) {
    const told = JSON.stringify(risks);
    if (told === this.told) return; // what is being read, or has the focus, stays
    this.told = told;
    each(this.list, risks.slice(0, RISKS), (risk) => this.item(risk));
    each(this.others, risks.slice(RISKS), (risk) => this.item(risk));
    setText(this.count, t("{length} more", { length: risks.length - RISKS }));
    show(this.folded, risks.length > RISKS);
    show(this.node, risks.length > 0);
  }

  item(risk) {
    const { level, title, cause, rule, advice, field, changes, use } = risk;
    const button = pushButton("rs-button rs-small", use, () => this.take(changes));
    return el(
      "li",
      { class: "rs-risk", data: { level } },
      el(
        "p",
        {},
        el("span", { class: "rs-risk-level" }, SIGNS[level]),
        " ",
        pushButton("rs-link", title, () => this.onfield(field)),
      ),
      el("p", { class: "rs-help" }, cause),
      el("div", { class: "rs-risk-foot rs-flow" }, use ? button : null, fold(rule, advice)),
    );
  }

  /** The risk is gone with the next check; the focus goes on to the next one. */
  take(changes) {
    this.onuse(changes);
    const next = this.node.querySelector(".rs-risk-foot > button");
    setText(this.said, t("Changed."));
    if (next) next.focus();
    else this.onnone();
  }
}

/** The run that the settings came from: what Start makes of it, and the other things that may be done. */
class Origin {
  constructor({ onresume, onforget }) {
    const button = (label, act, look) => pushButton(look, label, act);
    this.text = el("span");
    this.resume = button("", onresume, "rs-button rs-small");
    this.node = el(
      "div",
      { class: "rs-origin rs-help", role: "status", hidden: true },
      el("p", {}, this.text),
      el("div", {}, this.resume, button(t("Make it a run of its own"), onforget, "rs-quiet")),
    );
  }

  show(origin, blocked) {
    show(this.node, Boolean(origin));
    if (!origin) return;
    const usual = t("A variation of {name}: a new run that begins at step 1.", { name: origin.name });
    setText(this.text, readable(origin.text || usual, 600));
    setText(this.resume, t("Resume from step {step} with these settings", { step: origin.step }));
    show(this.resume, Number.isInteger(origin.step) && !blocked);
  }
}

const fold = (rule, advice) =>
  el(
    "details",
    {},
    el("summary", {}, t("Rule")),
    el("p", { class: "rs-help" }, t("Said when: {rule}. {advice}", { rule, advice })),
  );

/** The way to the run for which another one was refused. */
const ownRun = (run) => pageLink(t("Open your run"), "live", { run });

export class Outlook {
  /**
   * @param operator   whether this person may start runs; else `whyNot` is said once
   * @param onstart    called by the button
   * @param onresume   called by the button that goes on with the run that the settings came from
   * @param onforget   called when the settings are to be nobody's
   * @param onproblem  called with the field of a problem that was clicked
   * @param onuse      called with settings, by name, whose values a person takes over: {name: value}
   * @param mendOf     field -> the recipe's value where it differs and could mend a problem; undefined for none
   * @param onmeasure  called by the button that measures this machine
   * @param titleOf    field -> its title for people
   * @param name       node of the run's name
   * @param trial      what tries these settings; null where this person may not
   */
  constructor({
    operator,
    whyNot,
    onstart,
    onresume,
    onforget,
    onproblem,
    onuse,
    mendOf,
    onmeasure,
    titleOf,
    name,
    trial,
  }) {
    this.operator = operator;
    this.onproblem = onproblem;
    this.onuse = onuse;
    this.mendOf = mendOf;
    this.titleOf = titleOf;
    this.trial = trial;
    this.risks = new Risks({ onuse, onfield: onproblem, onnone: () => this.focus() });
    this.origin = new Origin({ onresume, onforget });
    this.plan = new MemoryPlan();
    this.measure = el("button", {
      type: "button",
      class: "rs-quiet rs-measure",
      hidden: true,
      onclick: () => onmeasure(),
    });
    this.last = NOTHING_SAID;
    this.checking = el("span", { class: "rs-checking", role: "status" });
    this.sentence = el("p", { class: "rs-sentence" });
    this.watch = el("p", { class: "rs-sentence rs-watch" });
    this.missing = el("p", { class: "rs-sentence", hidden: true });
    this.figures = el("dl", { class: "rs-figures" });
    this.notes = el("ul", { class: "rs-notes" });
    this.problems = el("div", { class: "rs-problems", role: "status", hidden: true });
    this.command = el("code", { tabindex: 0 });
    const copy = copyButton(() => this.last.command, this.command);
    this.button = pushButton("rs-start", t("Start run"), onstart);
    // on a phone Start stays in view while the form is scrolled: its worst risk stays with it
    this.alarm = el("p", { class: "rs-startbar-alarm", "aria-hidden": "true", hidden: true });
    this.queue = el("p", { class: "rs-help", hidden: true });
    this.commandBox = el(
      "div",
      { class: "rs-command" },
      el("div", { class: "rs-label-row" }, el("h3", {}, t("The same from a terminal")), copy),
      el("pre", {}, this.command),
    );
    this.node = el(
      "aside",
      { class: "rs-outlook rs-column rs-box", "aria-label": t("What will happen") },
      el(
        "div",
        { class: "rs-outlook-body rs-column" },
        el("div", { class: "rs-label-row" }, el("h2", {}, t("What will happen")), this.checking),
        trial?.node,
        this.sentence,
        this.watch,
        this.missing,
        this.problems,
        this.figures,
        this.measure,
        this.plan.node,
        this.notes,
        this.commandBox,
      ),
      el(
        "div",
        { class: "rs-outlook-foot rs-column" },
        this.risks.node,
        this.risks.said,
        operator
          ? [
              name,
              this.origin.node,
              this.queue,
              el("div", { class: "rs-startbar" }, this.alarm, this.button, trial?.button),
            ]
          : el("p", { class: "rs-message" }, whyNot),
      ),
    );
    show(this.node.lastChild, operator || Boolean(whyNot)); // else the line above the pages says it
    this.show(this.last); // until the first answer is here, what has nothing to say is not there
    const fit = () => requestAnimationFrame(() => this.fit());
    addEventListener("scroll", fit, { passive: true });
    addEventListener("resize", fit);
    new ResizeObserver(fit).observe(this.node);
    new IntersectionObserver(fit).observe(this.node);
  }

  /** Keep the whole column, Start included, between here and the lower edge of the window; its middle scrolls. */
  fit() {
    const sticky = getComputedStyle(this.node).position === "sticky";
    const top = Math.max(MARGIN, this.node.getBoundingClientRect().top);
    this.node.style.maxHeight = sticky ? `${Math.max(LEAST, window.innerHeight - top - MARGIN)}px` : "";
  }

  /** Settings changed and the answer is on its way. */
  waiting() {
    this.node.setAttribute("aria-busy", "true");
    setText(this.checking, t("Checking"));
  }

  /** The answer is here. */
  settled() {
    this.node.removeAttribute("aria-busy");
    setText(this.checking, "");
  }

  lost() {
    this.settled();
    setText(this.sentence, t("The app does not answer. What you see may be out of date."));
  }

  show(answer) {
    this.last = answer;
    const wrong = answer.problems.length;
    const missing = answer.missing || [];
    const waits = missing.length
      ? t("Fill in what is missing, and this says what will happen.")
      : t("Checking these settings.");
    setText(this.sentence, answer.sentence || (wrong ? t("These settings cannot run yet.") : waits));
    setText(this.watch, answer.watch || "");
    show(this.watch, Boolean(answer.watch));
    fill(this.missing, missing.length ? [t("Still to fill in: "), ...this.links(missing), "."] : null);
    show(this.missing, missing.length > 0);
    each(this.figures, answer.figures, (row) =>
      el("div", { title: row.help }, el("dt", {}, row.label), el("dd", {}, row.value)),
    );
    this.plan.show(answer.memory);
    show(this.measure, Boolean(answer.measure));
    this.measure.disabled = Boolean(answer.measure?.running);
    setText(
      this.measure,
      answer.measure?.running ? t("Measuring this machine") : t("Estimate the time: measure this machine (2 seconds)"),
    );
    each(this.notes, answer.notes, (note) => el("li", {}, note));
    show(this.notes, answer.notes.length > 0);
    this.risks.show(answer.risks);
    const alarm = answer.risks.find(({ level }) => level === "alarm");
    setText(this.alarm, alarm ? alarm.title : "");
    show(this.alarm, Boolean(alarm));
    this.origin.show(answer.origin, wrong + missing.length > 0);
    show(this.problems, wrong > 0);
    fill(
      this.problems,
      el("strong", {}, t("{wrong} to solve first", { wrong: counted(wrong, "problem") })),
      elEach("ul", {}, answer.problems, (problem) => el("li", {}, this.problem(problem))),
      answer.run ? el("p", {}, ownRun(answer.run)) : null,
      answer.duplicate
        ? el("p", {}, newTab(answer.duplicate, t("Duplicate this Space")), t(" to have a copy without limits."))
        : null,
    );
    setText(this.command, answer.command);
    show(this.commandBox, Boolean(answer.command));
    setText(this.button, answer.waiting ? t("Add to queue") : t("Start run"));
    for (const button of [this.button, this.trial?.button])
      button?.classList.toggle("rs-blocked", wrong + missing.length > 0);
    const others =
      answer.waiting === 1 ? t("One run comes first") : t("{waiting} runs come first", { waiting: answer.waiting });
    setText(this.queue, t("{others}; this one starts by itself after.", { others }));
    show(this.queue, answer.waiting > 0 && !wrong);
  }

  /** Buttons that lead to settings, with commas between them. */
  links(problems) {
    const fields = [...new Set(problems.map(({ field }) => field))]; // several settings may need the same one
    return fields.flatMap((field, place) => [
      place ? ", " : "",
      pushButton("rs-link", this.titleOf(field), () => this.onproblem(field)),
    ]);
  }

  problem({ field, message }) {
    if (!field) return el("span", {}, message);
    const mend = this.mendOf(field);
    const use = () => {
      this.onuse({ [field]: mend.value });
      this.onproblem(field);
    };
    return [
      el(
        "button",
        { type: "button", onclick: () => this.onproblem(field) },
        el("b", {}, this.titleOf(field)),
        " ",
        message,
      ),
      mend ? pushButton("rs-button rs-small", t("Use {text}", { text: mend.text }), use) : null,
    ];
  }

  /** Put the focus on Start; on the column itself for who may not start. */
  focus() {
    this.node.tabIndex = -1;
    (this.operator ? this.button : this.node).focus({ preventScroll: true });
  }

  starting(busy) {
    this.busy = busy;
    this.button.setAttribute("aria-disabled", String(busy)); // not disabled: that would lose the focus
    if (busy) setText(this.button, t("Starting"));
    else this.show(this.last);
  }
}
