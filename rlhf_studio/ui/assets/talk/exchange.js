// One prompt and the answers of both policies: follows the server's events until the last.
import { el, elEach, fill, setText, show } from "../shared/dom.js";
import { counted, readable } from "../shared/format.js";
import { pause } from "../shared/poll.js";
import { NO_ANSWER, onlyWatches } from "../shared/visit.js";
import { Legend } from "../shared/tokens.js";
import { Answer, sharedLimit } from "./answer.js";

const QUICK = 150; // milliseconds between two questions while something comes
const HIDDEN = 1500;
const AGAIN = 800; // after no answer
const TRIES = 6;
const SHOWN = 500; // characters of the prompt

/**
 * Follow an exchange to its end.
 * @param onreply  called with each reply
 * @returns whether the end was seen
 */
export async function follow(server, key, onreply) {
  let since = 0;
  for (let failures = 0; failures < TRIES;) {
    let reply;
    try {
      reply = await server.news({ key, since, view: onlyWatches() });
    } catch (error) {
      failures += 1;
      await pause(AGAIN, failures, error);
      continue;
    }
    failures = 0;
    if (reply.error) {
      onreply({ events: [{ event: "failed", side: null, error: reply.error }], state: "done" });
      return true;
    }
    since += reply.events.length;
    onreply(reply);
    if (reply.state === "done" && !reply.more) return true;
    if (!reply.more) await pause(document.hidden ? HIDDEN : QUICK);
  }
  return false;
}

export class Exchange {
  /**
   * @param asked  (prompt, names, line): the text, what the policies are called, and how it was sampled
   * @param page   (words, quantity, server)
   */
  constructor(asked, page) {
    this.asked = asked;
    this.page = page;
    this.running = true;
    this.answers = asked.names.map((name) => new Answer(name, page.words, () => {}));
    this.legend = new Legend();
    this.status = el("p", { class: "rs-exchange-status", role: "status" });
    this.copy = el(
      "button",
      { type: "button", class: "rs-quiet", hidden: true, onclick: () => this.copyText() },
      "Copy",
    );
    this.prompt = el("p", { class: "rs-exchange-prompt" }, readable(asked.prompt, SHOWN) || "(an empty prompt)");
    this.legendRow = el("div", { class: "rs-exchange-legend", hidden: true }, this.legend.node);
    this.node = el(
      "article",
      { class: "rs-exchange rs-column", "aria-label": "Prompt and answers" },
      el(
        "header",
        { class: "rs-exchange-head rs-wrap" },
        el("div", {}, el("span", { class: "rs-exchange-who" }, "Prompt"), this.prompt),
        el("div", { class: "rs-exchange-tools rs-flow" }, el("span", { class: "rs-help" }, asked.line), this.copy),
      ),
      this.status,
      this.legendRow,
      elEach("div", { class: "rs-answers" }, this.answers, (answer) => answer.node),
    );
  }

  async run(key) {
    const complete = await follow(this.page.server, key, (reply) => this.receive(reply));
    if (!complete) this.fail(NO_ANSWER);
    this.running = false;
    show(this.copy, true);
  }

  receive({ events, state, place }) {
    if (state === "waiting") {
      const before = `${counted(place, "answer")} ${place === 1 ? "comes" : "come"} before yours`;
      setText(this.status, place ? `Someone else is being answered: ${before}.` : "The policies are being loaded.");
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
    return ended.length === this.answers.length ? "" : ended.length ? "One policy has answered." : "";
  }

  colour(quantity) {
    const limit = sharedLimit(this.answers, quantity);
    const values = this.answers.map((answer) => answer.values(quantity.name));
    this.answers.forEach((answer, index) => answer.view.colourOn(quantity, values[index], limit));
    const all = values.flat();
    show(this.legendRow, all.length > 0);
    if (all.length) this.legend.update(quantity, all, UNITS[quantity.name], { centre: 0, limit });
  }

  async copyText() {
    const text = [`Prompt: ${this.asked.prompt}`, this.asked.line, ...this.answers.map((answer) => answer.text())];
    try {
      await navigator.clipboard.writeText(text.join("\n\n"));
      setText(this.copy, "Copied");
    } catch {
      setText(this.copy, "Copying is not allowed here"); // no clipboard without https
    }
    setTimeout(() => setText(this.copy, "Copy"), 2000);
  }
}

const UNITS = { kl: "nats", rewards: "points", logprobs: "nats", entropy: "nats" };

/** Nothing has been asked yet. */
export const invitation = () =>
  fill(
    el("div", { class: "rs-talk-invitation" }),
    el("p", {}, "Both policies get the same prompt and the same random numbers, so what differs is what training did."),
  );
