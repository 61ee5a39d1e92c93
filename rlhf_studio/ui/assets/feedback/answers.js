// The three ways to answer: choose one of two, put several in order, rate one. Responses are text, whatever they hold.
import { answerCard, sideBySide } from "../shared/answers.js";
import { el, fill, setText } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { t } from "../shared/language.js";

const LONGEST = 20000;
const LETTERS = "ABCDEFGHI";

/** A response as it is shown: what continues its prompt begins with a space, which is nobody's to judge. */
const said = (text) => readable(text.trimStart(), LONGEST);
const shortcut = (key) => el("kbd", { "aria-hidden": "true" }, key);
const keyed = (label, key, onclick, look = "") =>
  el("button", { type: "button", class: `rs-button ${look}`, onclick, "aria-keyshortcuts": key }, label, shortcut(key));

/** Which of two responses is better. */
export class Pair {
  constructor(item, vote) {
    this.vote = vote;
    const side = (place) =>
      answerCard(LETTERS[place], said(item.responses[place]), {
        label: t("Response {letters}", { letters: LETTERS[place] }),
        more: keyed(
          t("{letters} is better", { letters: LETTERS[place] }),
          LETTERS[place],
          () => vote("chosen", place),
          "rs-primary",
        ),
      });
    this.node = el(
      "div",
      {},
      sideBySide(side(0), side(1)),
      el(
        "div",
        { class: "rs-rate-buttons rs-neither rs-wrap" },
        keyed(t("Equally good"), "T", () => vote("tie", null)),
        keyed(t("Both bad"), "X", () => vote("both_bad", null)),
      ),
    );
  }

  key(key) {
    if (key === "a" || key === "b") this.vote("chosen", key === "a" ? 0 : 1);
    else if (key === "t") this.vote("tie", null);
    else if (key === "x") this.vote("both_bad", null);
    else return false;
    return true;
  }
}

/** Several responses in order, the best first; two may share a place. */
export class Ranking {
  constructor(item, vote) {
    this.count = item.responses.length;
    this.vote = vote;
    this.ranks = [];
    this.level = 0;
    this.last = [];
    this.together = false;
    this.ranks = new Array(this.count).fill(0);
    this.marks = item.responses.map(() => el("b", { class: "rs-rank" }));
    this.cards = item.responses.map((text, place) =>
      answerCard([LETTERS[place], this.marks[place]], said(text), {
        label: t("Response {letters}", { letters: LETTERS[place] }),
        tag: "button",
        attributes: {
          type: "button",
          class: "rs-answer-card rs-pick",
          onclick: () => this.pick(place),
          "aria-keyshortcuts": LETTERS[place],
        },
      }),
    );
    this.status = el("p", { class: "rs-help rs-rank-next", role: "status" });
    this.same = keyed(t("Next shares the place"), "=", () => this.share());
    this.back = keyed(t("Take the last back"), "Backspace", () => this.unpick());
    this.done = keyed(t("Store this order"), "Enter", () => this.store(), "rs-primary");
    fill(this.same, t("Next shares the place"), shortcut("="));
    fill(this.back, t("Take the last back"), shortcut("\u232b"));
    this.node = el(
      "div",
      {},
      sideBySide(this.cards),
      this.status,
      el("div", { class: "rs-rate-buttons rs-wrap" }, this.done, this.same, this.back),
    );
    this.update();
  }

  pick(place) {
    if (this.ranks[place]) return;
    if (!this.together || !this.level) this.level += 1;
    this.together = false;
    this.ranks[place] = this.level;
    this.last.push(place);
    this.update();
  }

  share() {
    this.together = Boolean(this.level) && !this.together;
    this.update();
  }

  unpick() {
    const place = this.last.pop();
    if (place === undefined) return;
    this.ranks[place] = 0;
    this.level = Math.max(0, ...this.ranks);
    this.together = false;
    this.update();
  }

  store() {
    if (this.last.length === this.count) this.vote("ranks", this.ranks);
  }

  update() {
    const left = this.count - this.last.length;
    this.marks.forEach((mark, place) => setText(mark, this.ranks[place] ? String(this.ranks[place]) : ""));
    this.cards.forEach((card, place) => card.setAttribute("aria-pressed", String(this.ranks[place] > 0)));
    this.same.setAttribute("aria-pressed", String(this.together));
    this.same.disabled = !this.level || !left;
    this.back.disabled = !this.last.length;
    this.done.disabled = left > 0;
    const next = this.together
      ? t("Choose what is as good as the last one.")
      : this.level
        ? t("Choose the next best.")
        : t("Choose the best one.");
    setText(this.status, left ? next : t("All are in order. Store it, or take the last back."));
  }

  key(key) {
    const place = LETTERS.toLowerCase().indexOf(key);
    if (key.length === 1 && place >= 0 && place < this.count) this.pick(place);
    else if (key === "=") this.share();
    else if (key === "backspace") this.unpick();
    else if (key === "enter" && this.last.length === this.count) this.store();
    else return false;
    return true;
  }
}

/** One response, rated from 1 to the task's highest number. */
export class Stars {
  constructor(item, vote, task) {
    this.points = task.points;
    this.vote = vote;
    const label = (value) => (value === 1 ? "worst" : value === task.points ? "best" : "");
    const button = (value) =>
      el(
        "button",
        {
          type: "button",
          class: "rs-button rs-point",
          onclick: () => vote("rating", value),
          "aria-keyshortcuts": String(value),
        },
        el("b", {}, String(value)),
        el("span", {}, label(value)),
      );
    const values = Array.from({ length: task.points }, (_, index) => index + 1);
    const question = t("How good is it?");
    this.node = el(
      "div",
      {},
      answerCard(t("Response"), said(item.responses[0]), {
        label: t("Response"),
        attributes: { class: "rs-answer-card rs-alone" },
      }),
      el("p", { class: "rs-label" }, question),
      el("div", { class: "rs-points", role: "group", "aria-label": question }, values.map(button)),
    );
  }

  key(key) {
    const value = Number(key);
    if (!Number.isInteger(value) || value < 1 || value > this.points) return false;
    this.vote("rating", value);
    return true;
  }
}
