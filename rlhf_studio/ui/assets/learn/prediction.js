// A question before the result: an answer, or "Show me", reveals what follows. All answers are explained.
import { el, fill, setText, show } from "../shared/dom.js";
import { inline } from "./text.js";

const PLAIN = { yes: "Yes", no: "No" };

export class Prediction {
  /**
   * @param block    {slot, question, answers: [[key, explanation]]}
   * @param reading  what inline texts need
   * @param word     names of words in the lesson's language
   * @param again    asks for other numbers; null where the question cannot be asked again
   */
  constructor(block, reading, word, { reveal, again }) {
    Object.assign(this, { slot: block.slot, answers: block.answers, reading, word, reveal });
    Object.assign(this, { known: "", given: "", shown: {} });
    this.buttons = block.answers.map(([key]) =>
      el(
        "button",
        { type: "button", class: "rs-button rs-small", "data-answer": key, onclick: () => this.answer(key) },
        PLAIN[key] ? (reading.words[key] ?? PLAIN[key]) : word(`@${key}`),
      ),
    );
    this.skip = el("button", { type: "button", class: "rs-quiet", onclick: () => this.answer("") }, "Show me");
    this.verdict = el("div", { class: "rs-learn-verdict", role: "status", hidden: true });
    const ask = { type: "button", class: "rs-quiet", hidden: true, onclick: again };
    this.again = again ? el("button", ask, "Another one") : null;
    this.node = el(
      "div",
      { class: "rs-learn-question", role: "group", "aria-label": "Question" },
      el("p", { class: "rs-learn-asked" }, inline(block.question, reading)),
      el("div", { class: "rs-learn-answers" }, this.buttons, this.skip, this.again),
      this.verdict,
    );
  }

  /** The numbers are there. */
  know(slots) {
    this.shown = slots;
    const said = slots[this.slot] ?? "";
    this.known = said.startsWith("@") ? said.slice(1) : said;
    if (!this.verdict.hidden) this.explain();
  }

  answer(given) {
    if (!this.known) return; // there is nothing to compare with yet
    this.given = given;
    this.explain();
    this.reveal();
    show(this.skip, false);
    if (this.again) show(this.again, true);
  }

  explain() {
    const { given, known } = this;
    for (const button of this.buttons) {
      const key = button.dataset.answer;
      button.dataset.state = key === known ? "right" : key === given ? "wrong" : "";
      button.setAttribute("aria-pressed", String(key === given));
    }
    const [, explanation] = this.answers.find(([key]) => key === known) || [known, []];
    const lead = given === "" ? "" : given === known ? "Right. " : "Not here. ";
    const filled = { ...this.reading, slot: (key, node) => setText(node, this.word(this.shown[key] ?? "")) };
    fill(this.verdict, el("p", {}, lead ? el("strong", {}, lead) : "", inline(explanation, filled)));
    show(this.verdict, true);
  }

  /** Ask anew. Who moves a control after an answer has seen the result, and is not asked again: `answered`. */
  reset(answered) {
    if (answered) {
      if (!this.verdict.hidden) this.given = "";
      return;
    }
    this.given = "";
    for (const button of this.buttons) {
      button.dataset.state = "";
      button.setAttribute("aria-pressed", "false");
    }
    show(this.verdict, false);
    show(this.skip, true);
    if (this.again) show(this.again, false);
  }
}
