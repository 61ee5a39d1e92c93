// One prompt and the answers of both policies: follows the server's events until the last.
import { sideBySide } from "../shared/answers.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { REST } from "../shared/poll.js";
import { NO_ANSWER, onlyWatches } from "../shared/visit.js";
import { copyButton } from "../shared/take.js";
import { Legend } from "../shared/tokens.js";
import { Answer, sharedLimit } from "./answer.js";
import { t, tn } from "../shared/language.js";

const QUICK = 150; // milliseconds between two questions while something comes
const SHOWN = 500; // characters of the prompt

/**
 * Follow a job of the server to its end (ui/jobs.py).
 * @param poll     of the page
 * @param news     the page's function that gives news of such a job
 * @param onreply  called with each reply
 * @returns whether the end was seen
 */
export function followJob(poll, news, key, onreply) {
  let since = 0;
  return poll.until({
    ask: () => news({ key, since, view: onlyWatches() }),
    receive: (reply) => {
      if (reply.error) {
        onreply({ events: [{ event: "failed", side: null, error: reply.error }], state: "done" });
        return REST;
      }
      since += reply.events.length;
      onreply(reply);
      if (reply.more) return 0;
      return reply.state === "done" ? REST : reply.rest || QUICK;
    },
  });
}

export class Exchange {
  /**
   * @param asked  (prompt, names, line): the text, what the policies are called, and how it was sampled
   * @param page   (words, quantity, poll, and news: the function that tells of the job)
   */
  constructor(asked, page) {
    this.asked = asked;
    this.page = page;
    this.running = true;
    this.answers = asked.names.map((name) => new Answer(name, page.words, () => {}));
    this.legend = new Legend();
    this.status = el("p", { class: "rs-exchange-status", role: "status" });
    this.copy = copyButton(() => this.text());
    show(this.copy, false);
    this.prompt = el("p", { class: "rs-exchange-prompt" }, readable(asked.prompt, SHOWN) || t("(an empty prompt)"));
    this.legendRow = el("div", { class: "rs-exchange-legend", hidden: true }, this.legend.node);
    this.node = el(
      "article",
      { class: "rs-exchange rs-column", "aria-label": t("Prompt and answers") },
      el(
        "header",
        { class: "rs-exchange-head rs-wrap" },
        el("div", {}, el("span", { class: "rs-exchange-who" }, t("Prompt")), this.prompt),
        el("div", { class: "rs-exchange-tools rs-flow" }, el("span", { class: "rs-help" }, asked.line), this.copy),
      ),
      this.status,
      this.legendRow,
      sideBySide(this.answers.map((answer) => answer.node)),
    );
  }

  async run(key) {
    const complete = await followJob(this.page.poll, this.page.news, key, (reply) => this.receive(reply));
    if (!complete) this.fail(NO_ANSWER);
    this.running = false;
    show(this.copy, true);
  }

  receive({ events, state, place, ...line }) {
    if (state === "waiting" && line.first !== undefined) setText(this.status, inLine(place, line));
    else if (state === "waiting") {
      const before = tn(
        "Someone else is being answered: {count} answer comes before yours.",
        "Someone else is being answered: {count} answers come before yours.",
        place,
      );
      setText(this.status, place ? before : t("The policies are being loaded."));
    }
    let said = state === "working" ? "" : null;
    for (const event of events) {
      if (event.event === "progress") said = event.text;
      else if (event.event === "stopped") this.answers.forEach((answer) => answer.stop());
      else if (event.side === null) this.fail(event.error);
      else if (event.side !== undefined) this.answers[event.side]?.receive(event);
      if (event.event === "token" || event.event === "begin") said = "";
    }
    if (state === "done") setText(this.status, this.summary());
    else if (said !== null && (said || events.length)) setText(this.status, readable(said));
    if (events.length) this.colour(this.page.quantity);
  }

  fail(text) {
    const open = this.answers.filter((answer) => !answer.end && answer.problem.hidden);
    open.forEach((answer, index) => (index ? answer.stop() : answer.fail(text)));
  }

  /** Read aloud when both are done. */
  summary() {
    const ended = this.answers.filter((answer) => answer.end);
    return ended.length === this.answers.length ? "" : ended.length ? t("One policy has answered.") : "";
  }

  colour(quantity) {
    const limit = sharedLimit(this.answers, quantity);
    const values = this.answers.map((answer) => answer.values(quantity.name));
    this.answers.forEach((answer, index) => answer.view.colourOn(quantity, values[index], limit));
    const all = values.flat();
    show(this.legendRow, all.length > 0);
    if (all.length) this.legend.update(quantity, all, UNITS[quantity.name], { centre: 0, limit });
  }

  text() {
    const answers = this.answers.map((answer) => answer.text());
    return [t("Prompt: {prompt}", { prompt: this.asked.prompt }), this.asked.line, ...answers].join("\n\n");
  }
}

const PLACES = [
  "",
  t("You are first in line"),
  t("You are second in line"),
  t("You are third in line"),
  t("You are fourth in line"),
  t("You are fifth in line"),
];
const BEFORE = { teacher: t("Your teacher asks and goes first."), training: t("A run is training and goes first.") };

/** "You are third in line, about 6 s." */
function inLine(place, /** @type {any} */ { seconds, first }) {
  const where = PLACES[place] || t("You are number {place} in line", { place });
  const time =
    seconds === null
      ? "."
      : seconds < 60
        ? t(", about {seconds} s.", { seconds })
        : t(", about {minutes} min.", { minutes: Math.ceil(seconds / 60) });
  return [BEFORE[first], where + time].filter(Boolean).join(" ");
}

const UNITS = { kl: t("nats"), rewards: t("points"), logprobs: t("nats"), entropy: t("nats") };

/** Nothing has been asked yet. */
export const invitation = () =>
  fill(
    el("div", { class: "rs-talk-invitation" }),
    el(
      "p",
      {},
      t("Both policies get the same prompt and the same random numbers, so what differs is what training did."),
    ),
  );
