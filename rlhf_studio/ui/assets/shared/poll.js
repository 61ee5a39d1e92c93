// Asking the server for news: one question at a time, less often after failures, and hardly ever while the page is out
// of sight: only for what can be seen from there, the title and a notification.
// When the server is silent for too long, the page is told, so that it can say so.

const LOCAL = 1000;
const HOSTED = 2500;
const OUT_OF_SIGHT = 15000;
const SLOWEST = 15000;
const NO_ANSWER = 4000;
const SILENCE = 4500;

const usualInterval = () => (location.hostname.endsWith(".hf.space") ? HOSTED : LOCAL);

/**
 * @param ask       async function that fetches one reply (rejects on failure)
 * @param onreply   called with each reply; returns the milliseconds until the next question
 * @param onlost    called with {since, retryAt} when the server was silent for too long, and with null when it is back
 * @param onfailure called after every failed question
 * @param awake     whether the page is on screen
 * @param follows   whether something is to be told while the page is out of sight; no questions from there otherwise
 */
export class Poller {
  constructor({ ask, onreply, onlost, awake, follows = () => false, onfailure = () => {} }) {
    Object.assign(this, { ask, onreply, onlost, awake, follows, onfailure });
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
    else if (this.follows()) this.plan(OUT_OF_SIGHT);
  }

  async turn() {
    if (this.stopped || this.busy) return;
    this.busy = true;
    let next = usualInterval();
    let reply = null;
    try {
      reply = await withLimit(this.ask(), NO_ANSWER);
    } catch (error) {
      console.debug("no answer from the app:", error);
    }
    this.busy = false;
    if (this.stopped) return;
    if (reply) next = this.receive(reply) ?? next;
    else {
      if (this.awake()) this.failures += 1; // nobody is waiting for the others
      this.onfailure();
      next = Math.min(SLOWEST, next * 2 ** Math.max(0, this.failures - 2));
    }
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
