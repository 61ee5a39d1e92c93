// The first screen: a recorded run that plays, and the ways on. It knows no form: that is loaded when it is wanted.
import { el, elEach, fill, pushButton, setText, show } from "../shared/dom.js";
import { colon, t } from "../shared/language.js";
import { pageLink } from "../shared/links.js";
import { REST } from "../shared/poll.js";
import { Once, onlyWatches } from "../shared/visit.js";
import { RecordedReplay } from "../replay/recorded.js";
import { Cards, recordedRuns } from "./cards.js";

const LOOK_AGAIN = 4000; // milliseconds, while other runs come first
const BUTTON_BACK = 30000; // when the server never answers
const SIGNS = { alarm: t("Alarm"), warning: t("Warning"), note: t("Note") };
const STARTS = t("Start run teaches a small model to write friendlier film reviews: a judge model scores each.");
const LOOKS = t("A small model learns to write friendlier film reviews: a judge model scores each.");

export class FirstScreen {
  /**
   * @param first    what the server says of this person and of the recipes
   * @param onform   called when the form is wanted; with the name of a card where one was chosen
   */
  constructor(root, { first, server, trigger, poll, onform }) {
    this.first = first;
    this.server = server;
    this.trigger = trigger;
    this.onform = onform;
    this.once = new Once();
    this.recipe = first.recipes[0];
    const ask = (question) => server.replay(question);
    this.replay = new RecordedReplay({
      ask,
      run: first.replay,
      words: t("Recorded"),
      hero: true,
    });
    this.cards = new Cards(first, (name) => onform(name));
    this.start = pushButton("rs-start", t("Start run"), () => this.begin());
    this.sentence = el("p", { class: "rs-first-sentence" });
    this.said = el("div", { class: "rs-first-said", role: "status" });
    this.lead = el("p", { class: "rs-lead" }, first.starts ? STARTS : LOOKS);
    this.node = fill(
      root,
      poll.notice,
      this.lead,
      first.looks ? recordedRuns(first) : null,
      this.replay.node,
      this.sentence,
      this.said,
      this.ways(),
      this.cards.node,
    );
    this.checks = poll.add({ ask: () => server.check(this.payload({})), receive: (answer) => this.show(answer) });
    this.checks.wake();
    this.poll = poll;
  }

  ways() {
    const { starts, operator, own, why_not: whyNot } = this.first;
    const mine = own.find(({ stage }) => stage === this.recipe.stage);
    const tags = [this.recipe.title, ...this.recipe.tags].join(" \u00b7 ");
    const watch = pageLink(t("Watch a judge being fooled"), "live", { replay: this.first.replay }, "rs-button");
    const ownModel = operator && mine ? pushButton("rs-button", t("My own model"), () => this.onform(mine.name)) : null;
    return el(
      "div",
      { class: "rs-first-ways rs-flow" },
      starts
        ? el("div", { class: "rs-startbar" }, this.start, watch, ownModel)
        : [watch, whyNot && el("p", { class: "rs-message" }, whyNot)],
      el("span", { class: "rs-help" }, tags),
      pushButton("rs-quiet", starts ? t("Change settings") : t("See the settings"), () => this.onform("")),
    );
  }

  payload(more) {
    return { basis: this.recipe.name, as_it_is: true, view: onlyWatches(), ...more };
  }

  /** What will happen, and what is in the way of it or could spoil it. */
  show({ sentence, problems, risks = [], waiting = 0 }) {
    setText(this.sentence, sentence || "");
    const lines = [
      ...problems.map(({ message }) => ({ level: "alarm", text: message })),
      ...risks.map(({ level, title }) => ({ level, text: colon(SIGNS[level], title) })),
      ...(waiting
        ? [
            {
              level: "note",
              text: t("Starts by itself after {waiting}.", {
                waiting: waiting === 1 ? t("one run") : t("{waiting} runs", { waiting }),
              }),
            },
          ]
        : []),
    ];
    fill(
      this.said,
      elEach("ul", {}, lines, ({ level, text }) => el("li", { data: { level } }, text)),
    );
    show(this.said, lines.length > 0);
    setText(this.lead, this.first.starts && !waiting ? STARTS : LOOKS); // it names the button
    this.label = waiting ? t("Add to queue") : t("Start run");
    if (!this.busy) setText(this.start, this.label);
    return waiting ? LOOK_AGAIN : REST;
  }

  /** Start the recipe as it is. */
  begin() {
    if (this.busy) return;
    this.starting(true);
    const wanted = this.payload({});
    this.nonce = this.once.nonce(wanted);
    this.trigger("start", { ...wanted, nonce: this.nonce });
    setTimeout(() => this.starting(false), BUTTON_BACK);
  }

  starting(busy) {
    this.busy = busy;
    this.start.setAttribute("aria-disabled", String(busy));
    setText(this.start, busy ? t("Starting") : this.label || t("Start run"));
  }

  /** The server's answer to Start. */
  outcome(answer) {
    this.once.answered(answer.nonce);
    if (answer.nonce !== this.nonce) return;
    this.starting(false);
    if (answer.problems) this.show({ ...answer, sentence: this.sentence.textContent });
    else this.checks.wake();
  }

  /** The form takes its place. */
  end() {
    this.replay.pause();
    this.poll.remove(this.checks);
  }
}
