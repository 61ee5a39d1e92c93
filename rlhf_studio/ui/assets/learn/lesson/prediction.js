// A question before the result: an answer, or "Show me", reveals what follows. All answers are explained.
import { el, fill, pushButton, setText, show } from "../../shared/dom.js";
import { inline } from "./text.js";
import { t } from "../../shared/language.js";

const YES_OR_NO = ["yes", "no"];
const OPTIONS = ["first", "second", "third"];
const FEW = 2; // answers: where one of two is wrong, a second try would be no question

/** What an answer is called: "Yes" and "No" have a capital. */
export const answerName = (key, word) => {
  const name = word(`@${key}`);
  return YES_OR_NO.includes(key) ? name.charAt(0).toUpperCase() + name.slice(1) : name;
};

/** The number that an answer stands for, where the question offers three of them; else undefined. */
const optionOf = (key, slots) => {
  const name = OPTIONS.includes(key) && Object.keys(slots).find((one) => one === key || one.startsWith(`${key}:`));
  return name ? slots[name] : undefined;
};

/**
 * A wrong answer leaves one more try where there are more than two answers and the question can be asked again. Then
 * the right one is explained, and the way on is other numbers ("Another one"), not another try with these.
 */
export class Prediction {
  /**
   * @param block    (slot, question, answers: [[key, explanation]])
   * @param reading  what inline texts need
   * @param word     names of words in the lesson's language
   * @param {object} on
   * @param {() => void} on.reveal   called when the question has been answered
   * @param {(() => void) | null} on.again    asks for other numbers; null where the question cannot be asked again
   * @param {(outcome: string) => void} [on.told]  how it went: right at the "first" or "second" try, or "not"
   */
  constructor(block, reading, word, { reveal, again, told = () => {} }) {
    this.slot = block.slot;
    this.answers = block.answers;
    this.reading = reading;
    this.word = word;
    this.reveal = reveal;
    this.told = told;
    this.known = "";
    this.given = "";
    this.tried = "";
    this.explained = false;
    this.shown = {};
    this.buttons = block.answers.map(([key]) =>
      el(
        "button",
        { type: "button", class: "rs-button rs-small", "data-answer": key, onclick: () => this.answer(key) },
        answerName(key, word),
      ),
    );
    this.skip = pushButton("rs-quiet", t("Show me"), () => this.answer(""));
    this.verdict = el("div", { class: "rs-learn-verdict", role: "status", hidden: true });
    const ask = { type: "button", class: "rs-button rs-small rs-learn-again", hidden: true, onclick: again };
    this.again = again ? el("button", ask, t("Another one")) : null;
    this.node = el(
      "div",
      { class: "rs-learn-question", role: "group", "aria-label": t("Question") },
      el("p", { class: "rs-learn-asked" }, inline(block.question, reading)),
      el("div", { class: "rs-learn-answers rs-flow" }, this.buttons, this.skip, this.again),
      this.verdict,
    );
  }

  /** The numbers are there. */
  know(slots) {
    this.shown = slots;
    for (const button of this.buttons) {
      const number = optionOf(button.dataset.answer, slots);
      if (number) setText(button, number);
    }
    const said = slots[this.slot] ?? "";
    this.known = said.startsWith("@") ? said.slice(1) : said;
    if (this.explained) this.explain();
  }

  /** An answer, or "" for "Show me". What has been explained cannot be answered any more. */
  answer(given) {
    if (!this.known || this.explained) return; // there is nothing to compare with yet, or nothing left to guess
    const wrong = given !== "" && given !== this.known;
    if (wrong && !this.tried && this.again && this.answers.length > FEW) {
      this.leaveATry(given);
      return;
    }
    this.given = given;
    this.explained = true;
    this.explain();
    this.reveal();
    show(this.skip, false);
    if (this.again) show(this.again, true);
    this.again?.classList.toggle("rs-primary", wrong);
    this.told(given !== this.known ? "not" : this.tried ? "second" : "first");
  }

  leaveATry(given) {
    this.tried = given;
    for (const button of this.buttons) if (button.dataset.answer === given) mark(button, "wrong", true);
    fill(this.verdict, el("p", {}, el("strong", {}, t("Not this one.")), " ", t("You have one more try.")));
    show(this.verdict, true);
  }

  explain() {
    const { given, known, tried } = this;
    for (const button of this.buttons) {
      const key = button.dataset.answer;
      mark(button, key === known ? "right" : key === given || key === tried ? "wrong" : "", key === given);
      button.setAttribute("aria-disabled", "true");
    }
    const [, explanation] = this.answers.find(([key]) => key === known) || [known, []];
    const lead = given === "" ? "" : given === known ? `${t("Right.")} ` : `${t("Not here.")} `;
    const filled = { ...this.reading, slot: (key, node) => setText(node, this.word(this.shown[key] ?? "")) };
    fill(this.verdict, el("p", {}, lead ? el("strong", {}, lead) : "", inline(explanation, filled)));
    show(this.verdict, true);
  }

  /** Ask anew. Who moves a control after an answer has seen the result, and is not asked again: `answered`. */
  reset(answered) {
    if (answered && this.explained) {
      this.given = "";
      this.tried = "";
      return;
    }
    this.given = "";
    this.tried = "";
    this.explained = false;
    for (const button of this.buttons) {
      mark(button, "", false);
      button.removeAttribute("aria-disabled");
    }
    show(this.verdict, false);
    show(this.skip, true);
    if (this.again) show(this.again, false);
  }

  /** On paper every question has its answer; afterwards it is asked as before. */
  print(begins) {
    if (this.explained) return;
    if (begins && this.known) this.explain();
    if (!begins) this.reset(false);
  }
}

function mark(button, state, pressed) {
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(pressed));
}
