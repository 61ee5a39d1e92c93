// A reward before any run: the scores of three texts, and its scale and spread over the model's own answers.
import { each, el, elEach, fill, labelled, memory, pushButton, setText, show } from "../../shared/dom.js";
import { number, readable } from "../../shared/format.js";
import { bracketed, colon, t } from "../../shared/language.js";
import { NO_ANSWER } from "../../shared/visit.js";
import { figure, numberHead, table } from "../../shared/table.js";
import { Scoring } from "../scoring.js";

const TEXTS = [t("Text 1"), t("Text 2"), t("Text 3")];
const SHOWN = 3; // answers with the lowest and the highest scores

const line = (words, value) =>
  el(
    "textarea",
    { class: "rs-input", rows: 2, maxlength: 50000, spellcheck: "false", "aria-label": words },
    value || "",
  );

export class RewardTexts {
  /**
   * @param poll     of the page
   * @param ask      async ({op, ...}) -> {state, key, progress, result, error, problems}
   * @param prompts  async () -> some prompts of the data
   */
  constructor({ poll, ask, prompts }) {
    this.prompts = prompts;
    this.scoring = new Scoring({ poll, ask, say: (text) => this.say(text) });
    const kept = memory.get("train.texts", {});
    this.prompt = line(t("Prompt"), kept.prompt);
    this.texts = TEXTS.map((words, place) => line(words, kept.texts?.[place]));
    this.scores = TEXTS.map(() => el("output", { class: "rs-text-score" }));
    this.three = pushButton("rs-button", t("Score the three"), () => this.score());
    this.measure = pushButton("rs-button", t("Measure its scale and spread"), () => this.spread());
    this.status = el("p", { class: "rs-help", role: "status" });
    this.result = el("div", { class: "rs-spread" });
    this.node = el(
      "section",
      { class: "rs-texts", "aria-labelledby": "rs-texts-title" },
      el("h3", { id: "rs-texts-title" }, t("Try it on three texts")),
      el(
        "p",
        { class: "rs-help" },
        t("A good answer, a poor one and a strange one to the same prompt: does the reward tell them apart?"),
      ),
      labelled(t("Prompt"), this.prompt),
      TEXTS.map((words, place) =>
        labelled(words, el("div", { class: "rs-text" }, this.texts[place], this.scores[place])),
      ),
      el("div", { class: "rs-flow rs-texts-tools" }, this.three, this.measure),
      this.status,
      this.result,
    );
  }

  say(text, wrong = false) {
    setText(this.status, text);
    this.status.classList.toggle("rs-problem", wrong);
  }

  /** The first prompt of the data, where nothing was typed. */
  async enter() {
    if (this.prompt.value) return;
    const [first] = await this.prompts().catch(() => []);
    if (first && !this.prompt.value) this.prompt.value = first;
  }

  /** The reward or the data has changed: what was said of them holds no more. */
  forget() {
    for (const score of this.scores) setText(score, "");
    fill(this.result);
    if (!this.busy) this.say("");
  }

  /** The result, or null after saying why there is none. */
  async ask(question) {
    const answer = await this.scoring.run(question);
    if (answer?.state === "done") return answer.result;
    const problems = (answer?.problems || []).map(({ field, message }) => `${message}${bracketed(field)}`);
    this.say([answer?.error || NO_ANSWER, ...problems].join(" "), true);
    return null;
  }

  async alone(work) {
    if (this.busy) return;
    this.busy = true;
    this.three.disabled = this.measure.disabled = true;
    await work();
    this.busy = false;
    this.three.disabled = this.measure.disabled = false;
  }

  score() {
    return this.alone(async () => {
      const texts = this.texts.map((text) => text.value);
      memory.set("train.texts", { prompt: this.prompt.value, texts });
      if (!texts.some(Boolean)) return void this.say(t("Type a text first."), true);
      for (const score of this.scores) setText(score, "");
      for (const [place, response] of texts.entries()) {
        if (!response) continue;
        const question = { prompt: this.prompt.value, response, reference: null, stopped: true };
        const result = await this.ask(question);
        if (!result) return;
        const wrong = result.components.find(({ error }) => error);
        if (wrong) return void this.say(colon(wrong.name, wrong.error), true);
        setText(this.scores[place], number(result.final, 2));
      }
      this.say(t("Higher is better, as PPO would see it."));
    });
  }

  spread() {
    return this.alone(async () => {
      fill(this.result);
      this.say(t("Starting"));
      const result = await this.ask({ spread: true });
      if (!result) return;
      this.say("");
      this.draw(result);
    });
  }

  draw({ sentence, verdict, mean, std, least, most, rows, notes }) {
    const figures = [
      [t("Mean"), mean],
      [t("Spread (standard deviation)"), std],
      [t("Lowest"), least],
      [t("Highest"), most],
    ].map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, number(value, 2))));
    const ordered = [...rows].sort((one, other) => other.score - one.score);
    const shown = ordered.length > 2 * SHOWN ? [...ordered.slice(0, SHOWN), ...ordered.slice(-SHOWN)] : ordered;
    const lines = shown.map(({ prompt, response, score }) => [
      el(
        "span",
        {},
        prompt ? el("span", { class: "rs-help" }, readable(prompt, 200)) : null,
        " ",
        readable(response, 400),
      ),
      figure(number(score, 2)),
    ]);
    const dots = el("div", {
      class: "rs-spread-dots",
      role: "img",
      "aria-label": t("{length} scores from {least} to {most}", {
        length: rows.length,
        least: number(least),
        most: number(most),
      }),
    });
    each(dots, rows, ({ score }) =>
      el("i", { style: { left: `${most > least ? (100 * (score - least)) / (most - least) : 50}%` } }),
    );
    fill(
      this.result,
      el("p", {}, sentence),
      el("dl", { class: "rs-lengths" }, figures),
      dots,
      el("p", { class: "rs-spread-verdict" }, verdict),
      table([t("Text"), numberHead(t("Score"))], lines, {}),
      notes.length ? elEach("ul", { class: "rs-preview-notes" }, notes, (note) => el("li", {}, note)) : null,
    );
    show(this.result, true);
  }
}
