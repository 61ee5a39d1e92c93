// Questions with numbers that a seed drew: a quiz that ends with a code, and the one question before a lesson.
import { copyButton } from "../../shared/take.js";
import { el, fill, memory, pushButton, setText, show } from "../../shared/dom.js";
import { Prediction } from "../lesson/prediction.js";
import { contextOf, readingOf } from "./sheet.js";
import { leadOf } from "../lesson/text.js";
import { t, tp } from "../../shared/language.js";

const SEEDS = 1_000_000;
const SAID = {
  first: t("Right at the first try"),
  second: t("Right at the second try"),
  not: t("Not right"),
  open: tp("quiz", "Open"),
};

/** One question. "Another one" asks it with other numbers. */
class PosedQuestion {
  /**
   * @param question  as the app made it
   * @param page      (teach(question), choose(params))
   * @param {(outcome: string) => void} told  called once with how it went: "first", "second" or "not"
   */
  constructor(question, page, told = () => {}) {
    this.page = page;
    this.told = told;
    this.node = el("div", { class: "rs-learn-text" });
    this.draw(question);
  }

  draw(question) {
    const { word, reading } = readingOf(question, leadOf(this.page));
    const block = { slot: question.slot, question: question.question, answers: question.choices };
    const prediction = new Prediction(block, reading, word, {
      reveal: () => {},
      again: () => this.again(question),
      told: (outcome) => this.tell(outcome),
    });
    prediction.know(question.shown.slots);
    fill(this.node, contextOf(question, { word, reading }), prediction.node);
  }

  tell(outcome) {
    this.told(outcome);
    this.told = () => {}; // other numbers are practice
  }

  async again({ lesson, scene }) {
    const seed = Math.floor(Math.random() * SEEDS);
    const found = await this.page.teach({ what: "asked", lesson, scene, seed });
    if (!found) return;
    this.draw(found);
    this.node.querySelector(".rs-learn-answers button").focus({ preventScroll: true });
  }
}

/** A quiz: question after question, then the code. */
export class Quiz {
  constructor(page, choice, sheet) {
    this.page = page;
    this.choice = choice;
    this.questions = sheet.questions;
    this.key = `quiz.${choice.lessons.join(".")}.${choice.each}.${choice.seed}`;
    const kept = memory.get(this.key, []);
    this.outcomes = this.questions.map((_, place) => (kept[place] in SAID ? kept[place] : "open"));
    this.place = el("p", { class: "rs-muted", role: "status" });
    this.body = el("div", {});
    this.next = el("button", { type: "button", class: "rs-button rs-primary", onclick: () => this.go(this.at + 1) });
    const finish = { type: "button", class: "rs-quiet", onclick: () => this.go(this.questions.length) };
    this.finish = el("button", finish, t("Finish now"));
    this.node = el(
      "div",
      { class: "rs-learn-quiz" },
      el("h2", { class: "rs-learn-title" }, t("Quiz {seed}", { seed: choice.seed })),
      this.place,
      this.body,
      el("div", { class: "rs-learn-turn rs-wrap" }, this.finish, this.next),
    );
    const open = this.outcomes.indexOf("open");
    this.go(open < 0 ? this.questions.length : open);
  }

  go(at) {
    this.at = at;
    const count = this.questions.length;
    const ended = at >= count;
    for (const button of [this.finish, this.next]) show(button, !ended);
    if (ended) {
      this.end();
      return;
    }
    const question = this.questions[at];
    setText(
      this.place,
      t("Question {at} of {count}, from \u201c{title}\u201d", { at: at + 1, count, title: question.title }),
    );
    setText(this.next, at + 1 < count ? t("Next question") : t("To the result"));
    show(this.next, this.outcomes[at] !== "open");
    const posed = new PosedQuestion(question, this.page, (outcome) => this.answered(at, outcome));
    fill(this.body, posed.node);
  }

  answered(at, outcome) {
    this.outcomes[at] = outcome;
    memory.set(this.key, this.outcomes);
    show(this.next, true);
  }

  async end() {
    setText(this.place, "");
    const found = await this.page.teach({ what: "code", ...this.choice, outcomes: this.outcomes });
    if (!found) return;
    const right = this.outcomes.filter((outcome) => outcome === "first").length;
    fill(
      this.body,
      el(
        "div",
        { class: "rs-learn-text" },
        el(
          "p",
          {},
          el("strong", {}, t("{right} of {length} right at the first try.", { right, length: this.questions.length })),
        ),
        el("p", {}, t("This is your result code. Copy it, and give it to your teacher together with your name.")),
        codeToCopy(found.code),
        el(
          "p",
          { class: "rs-muted" },
          t(
            "It says which questions these were, and how each one went. It holds no name and is no secret: nothing " +
              "stops anyone from making one up. The app keeps nothing of it.",
          ),
        ),
        el("ol", { class: "rs-learn-outcomes" }, this.questions.map(this.line, this)),
      ),
    );
  }

  line({ title, lesson, scene }, place) {
    const outcome = this.outcomes[place];
    const choose = () => this.page.choose({ lesson, scene });
    const link = pushButton("rs-quiet", t("Read about it"), choose);
    return el("li", { "data-outcome": outcome }, el("b", {}, SAID[outcome]), ` \u00b7 ${title}`, link);
  }
}

function codeToCopy(code) {
  const output = el("output", { class: "rs-learn-outcome", tabindex: "0" }, code);
  const button = copyButton(() => code, output, "rs-button rs-small");
  return el("p", { class: "rs-learn-code-line" }, output, button);
}

/**
 * The question at the beginning of a lesson, from two lessons before. It stays closed where a model had to be loaded
 * for it, and where the reader came for one scene.
 */
export class Opening {
  constructor(page) {
    this.page = page;
    this.body = el("div", { class: "rs-learn-text" });
    this.summary = el("summary", {});
    this.node = el("details", { class: "rs-learn-opening", hidden: true }, this.summary, this.body);
    this.node.addEventListener("toggle", () => this.ask());
  }

  /** A lesson begins. Its own numbers come first: the question waits for `there`. */
  async begin(lesson) {
    const seed = Math.floor(Math.random() * SEEDS);
    this.lesson = lesson;
    this.seed = seed;
    this.asked = false;
    this.ready = false;
    show(this.node, false);
    setText(this.body, t("The question comes after the numbers of this lesson."));
    const found = await this.page.teach({ what: "before", lesson, seed });
    if (!found || this.lesson !== lesson) return;
    setText(this.summary, t("Still there? One question from \u201c{title}\u201d", { title: found.title }));
    show(this.node, true);
    this.node.open = false; // open, it would push the lesson off the screen
  }

  /** The lesson's own numbers are there. */
  there() {
    this.ready = true;
    this.ask();
  }

  async ask() {
    if (this.asked || !this.ready || !this.node.open) return;
    this.asked = true;
    const { lesson, seed } = this;
    const found = await this.page.teach({ what: "opening", lesson, seed });
    if (this.lesson !== lesson) return;
    if (!found?.question) {
      show(this.node, false);
      return;
    }
    const { question } = found;
    const there = () => this.page.choose({ lesson: question.lesson, scene: question.scene });
    const link = pushButton("rs-quiet", t("Go to \u201c{title}\u201d", { title: question.title }), there);
    const skip = pushButton("rs-quiet", t("Skip it"), () => (this.node.open = false));
    fill(
      this.body,
      new PosedQuestion(question, this.page).node,
      el("div", { class: "rs-learn-answers rs-flow" }, skip, link),
    );
  }
}
