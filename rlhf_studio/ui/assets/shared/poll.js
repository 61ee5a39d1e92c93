// Asking the server again and again: when the next question is due, for all pages, and the polls of those that follow
// something. One question at a time, never at the same moment as other viewers, less often after failures and when the
// server says that it has too much to do; and hardly ever while the page is out of sight: only for what can be seen
// from there, the title and a notification.
// When the server is silent for too long, the page is told, so that it can say so.

const LOCAL = 1000;
const OUT_OF_SIGHT = 15000;
const SLOWEST = 15000;
const LONGEST_REST = 120000;
const NO_ANSWER = 4000;
const SILENCE = 4500;
const SPREAD = 0.1;

let slower = 1;

/** How many times as long as in an app for a few people all pages wait: the server says it (ui/visiting/where.py). */
export const setPace = (factor) => {
  slower = factor > 0 ? factor : 1;
};

/**
 * Milliseconds until the next question.
 * @param usual     what is waited in an app for a few people when all is well
 * @param failures  how many questions before it got no answer, one after the other
 * @param error     what the last one failed with; its `restFor` are the milliseconds for which the server rests
 */
export function waitAfter(usual, failures = 0, error = null) {
  const backed = Math.max(usual * slower, Math.min(SLOWEST, usual * slower * 2 ** Math.max(0, failures - 1)));
  const rest = Math.min(LONGEST_REST, error?.restFor || 0);
  const spread = Math.random();
  return Math.max(backed * (1 - SPREAD + 2 * SPREAD * spread), rest * (1 + 2 * SPREAD * spread));
}

/** A pause before somebody's next question; arguments as `waitAfter`. */
export const pause = (usual, failures = 0, error = null) =>
  new Promise((resolve) => setTimeout(resolve, waitAfter(usual, failures, error)));

/**
 * @param ask       async function that fetches one reply (rejects on failure)
 * @param onreply   called with each reply; returns the milliseconds to the next question, a second if it gives none
 * @param onlost    called with {since, retryAt} when the server was silent for too long, and with null when it is back
 * @param onfailure called after every failed question
 * @param awake     whether the page is on screen
 * @param follows   whether something is to be told while the page is out of sight; no questions from there otherwise
 */
export class Poller {
  constructor({ ask, onreply, onlost, awake, follows = () => false, onfailure = () => {} }) {
    this.ask = ask;
    this.onreply = onreply;
    this.onlost = onlost;
    this.awake = awake;
    this.follows = follows;
    this.onfailure = onfailure;
    this.timer = 0;
    this.failures = 0;
    this.busy = false;
    this.rested = false;
    this.stopped = false;
    this.lost = false;
    this.heard = Date.now();
    this.onvisible = () => this.wake();
    document.addEventListener("visibilitychange", this.onvisible);
    this.watchdog = setInterval(() => this.listen(), 500);
  }

  /** Ask now, whatever the timer says. */
  wake() {
    if (this.stopped || !this.awake()) return;
    if (!this.busy && !this.lost) this.heard = Date.now();
    this.rested = false;
    clearTimeout(this.timer);
    if (!this.busy) this.turn();
  }

  plan(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.due(), wait);
  }

  /** The timer has run out: ask, or out of sight rest for a longer while first. */
  due() {
    if (this.stopped || this.busy) return;
    const rested = this.rested || this.awake();
    this.rested = !rested;
    if (rested) this.turn();
    else if (this.follows()) this.plan(waitAfter(OUT_OF_SIGHT));
  }

  async turn() {
    if (this.stopped || this.busy) return;
    this.busy = true;
    let [reply, failed, usual] = [null, null, LOCAL];
    try {
      reply = await withLimit(this.ask(), NO_ANSWER);
    } catch (error) {
      console.debug("no answer from the app:", error);
      failed = error;
    }
    this.busy = false;
    if (this.stopped) return;
    if (reply) usual = this.receive(reply) ?? usual;
    else {
      if (this.awake()) this.failures += 1; // nobody is waiting for the others
      this.onfailure();
    }
    const next = waitAfter(usual, this.failures, failed);
    this.retryAt = Date.now() + next;
    this.plan(next);
    this.listen();
  }

  receive(reply) {
    this.failures = 0;
    this.heard = Date.now();
    if (this.lost) this.onlost(null);
    this.lost = false;
    try {
      return this.onreply(reply);
    } catch (error) {
      console.error("the page could not show the news:", error); // a fault of ours, not of the connection
      return undefined;
    }
  }

  /** Say so when nothing was heard for too long while questions were asked. */
  listen() {
    if (this.stopped || !this.awake()) return;
    const silent = this.failures >= 2 || (this.busy && Date.now() - this.heard > SILENCE);
    if (!silent) return;
    this.lost = true;
    this.onlost({ since: this.heard, retryAt: this.busy ? null : this.retryAt });
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    clearInterval(this.watchdog);
    document.removeEventListener("visibilitychange", this.onvisible);
  }
}

function withLimit(promise, wait) {
  let timer = 0;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing for ${wait} ms`)), wait);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}
