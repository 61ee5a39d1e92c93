// Asking the server again and again: all pages do it with this poll. Each thing is asked for once at a time, never at
// the same moment as other viewers, less often after failures and when the server says that it has too much to do; and
// hardly ever while the page is out of sight: only for what can be seen from there, the title and a notification.
// When the server is silent for too long, the page is told, so that it can say so; shared/lost.js does.

const LOCAL = 1000;
const OUT_OF_SIGHT = 15000;
const SLOWEST = 15000;
const LONGEST_REST = 120000;
const NO_ANSWER = 4000;
export const OPENING = 20000; // milliseconds until something without which a page cannot open is asked for again
const LONGEST = 60000; // and the most that this grows to
const SILENCE = 4500;
const SPREAD = 0.1;
const TRIES = 6;

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
function waitAfter(usual, failures = 0, error = null) {
  const backed = Math.max(usual * slower, Math.min(SLOWEST, usual * slower * 2 ** Math.max(0, failures - 1)));
  const rest = Math.min(LONGEST_REST, error?.restFor || 0);
  const spread = Math.random();
  return Math.max(backed * (1 - SPREAD + 2 * SPREAD * spread), rest * (1 + 2 * SPREAD * spread));
}

/** What `receive` gives when its part shall not ask again until somebody wakes it. */
export const REST = Infinity;

/**
 * @typedef {{
 *   awake: () => boolean, onlost?: (lost: any) => void, follows?: () => boolean, onfailure?: () => void,
 * }} Options
 */

/**
 * What one page asks the server again and again. Each part of the page that follows something is added with its own
 * question and rhythm. All parts share what the page knows of the connection, and stop while the page is out of sight.
 */
export class Poll {
  /**
   * @param {Options} options
   *
   * onlost     called with {since, retryAt} when the server was silent for too long, and with null when it is back
   * awake      whether the page is on screen
   * follows    whether something is to be told while the page is out of sight; no questions from there otherwise
   * onfailure  called after every failed question
   */
  constructor({ awake, onlost = () => {}, follows = () => false, onfailure = () => {} }) {
    this.awake = awake;
    this.onlost = onlost;
    this.follows = follows;
    this.onfailure = onfailure;
    /** @type {Part[]} */
    this.parts = [];
    this.failures = 0;
    this.lost = false;
    this.heard = Date.now();
    this.onvisible = () => this.wake();
    document.addEventListener("visibilitychange", this.onvisible);
    this.watchdog = setInterval(() => this.listen(), 500);
  }

  /**
   * Follow something more. It is asked for the first time when the part, or the whole page, is woken.
   * @param ask        async function that fetches one reply (rejects on failure)
   * @param receive    called with each reply; gives the milliseconds to the next question, a second if it gives none
   * @param onfailure  called after every failed question with the number of failures, one after the other
   * @param limit      how many milliseconds an answer may take
   * @param asleep     whether the part waits until itself is woken
   */
  add({ ask, receive, onfailure = () => {}, limit = NO_ANSWER, asleep = false }) {
    const part = new Part(this, { ask, receive, onfailure, limit, asleep });
    this.parts.push(part);
    return part;
  }

  /**
   * Follow something that has an end, from now on.
   * @param receive  called with each reply; gives the milliseconds to the next question, and REST at the end
   * @returns whether the end was seen: not when there was no answer for too many questions, one after the other
   */
  until({ ask, receive }) {
    return new Promise((resolve) => {
      const end = (seen) => {
        this.remove(part);
        resolve(seen);
      };
      const take = (reply) => {
        const usual = receive(reply);
        if (usual === REST) end(true);
        return usual;
      };
      const onfailure = (failures) => failures >= TRIES && end(false);
      const part = this.add({ ask, receive: take, onfailure });
      part.wake();
    });
  }

  /**
   * The first answer to something that the page cannot do without. It is asked for again when that fails, or when
   * nothing comes for a while, which grows; what comes later is an answer all the same. Rejects where the app refuses.
   * @param ask     async function of a question that changes nothing
   * @param wanted  whether it is still waited for; null is given when it is not
   * @param limit   milliseconds until it is asked for again
   */
  first(ask, wanted = () => true, limit = OPENING) {
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        this.remove(part);
        settle(value);
        return REST;
      };
      const receive = (reply) => {
        this.heard = Date.now();
        this.calm();
        return end(resolve, reply);
      };
      const question = async () => {
        if (!wanted()) return null;
        const reply = ask();
        reply.then(receive, (error) => error.refused && end(reject, error));
        return reply;
      };
      const onfailure = () => (part.limit = Math.min(LONGEST, 2 * part.limit));
      const part = this.add({ ask: question, receive, onfailure, limit });
      part.wake();
    });
  }

  remove(part) {
    part.stop();
    this.parts = this.parts.filter((other) => other !== part);
  }

  /** Ask now, whatever the timers say: the page is seen again, or a person wants to know. */
  wake() {
    for (const part of this.parts) if (!part.asleep && !part.busy) part.wake();
  }

  get waiting() {
    return this.parts.some((part) => part.busy && part.limit === NO_ANSWER);
  }

  /** All is well, as far as anybody asks. */
  calm() {
    this.failures = 0;
    if (this.lost) this.onlost(null);
    this.lost = false;
  }

  /** Say so when nothing was heard for too long while questions were asked. */
  listen() {
    if (this.stopped || !this.awake()) return;
    if (this.parts.every((part) => part.asleep)) return this.calm();
    const { waiting } = this;
    if (this.failures < 2 && !(waiting && Date.now() - this.heard > SILENCE)) return;
    this.lost = true;
    const next = Math.min(...this.parts.map((part) => part.due));
    this.onlost({ since: this.heard, retryAt: waiting || next === REST ? null : next });
  }

  stop() {
    this.stopped = true;
    for (const part of this.parts) part.stop();
    clearInterval(this.watchdog);
    document.removeEventListener("visibilitychange", this.onvisible);
  }
}

/** One thing that a page follows; see `Poll.add`. */
class Part {
  constructor(poll, { ask, receive, onfailure, limit, asleep }) {
    this.poll = poll;
    this.ask = ask;
    this.receive = receive;
    this.onfailure = onfailure;
    this.limit = limit;
    this.asleep = asleep;
    this.timer = 0;
    this.due = REST; // when it asks again
    this.failures = 0;
    this.busy = false;
    this.again = false;
    this.rested = false;
    this.stopped = false;
  }

  /** Ask now; when an answer is on its way, once more after it. */
  wake() {
    const { poll } = this;
    if (this.stopped) return;
    this.asleep = false;
    this.again = this.busy;
    if (this.busy || !poll.awake()) return;
    if (!poll.waiting && !poll.lost && !poll.failures) poll.heard = Date.now();
    this.rested = false;
    clearTimeout(this.timer);
    this.turn();
  }

  /** Ask in about so many milliseconds, or with REST only when it is woken. */
  later(usual) {
    this.plan(waitAfter(usual));
  }

  plan(wait) {
    clearTimeout(this.timer);
    this.asleep = wait === REST;
    this.due = Date.now() + wait;
    if (!this.asleep) this.timer = setTimeout(() => this.turnOrRest(), wait);
  }

  /** The timer has run out: ask, or out of sight rest for a longer while first. */
  turnOrRest() {
    if (this.stopped || this.busy) return;
    const rested = this.rested || this.poll.awake();
    this.rested = !rested;
    if (rested) this.turn();
    else if (this.poll.follows()) this.plan(waitAfter(OUT_OF_SIGHT));
  }

  async turn() {
    const { poll } = this;
    this.busy = true;
    let [usual, failed] = [LOCAL, null];
    try {
      const reply = await withLimit(this.ask(), this.limit);
      this.busy = false;
      if (this.stopped) return;
      usual = this.take(reply) ?? LOCAL;
    } catch (error) {
      console.debug("no answer from the app:", error);
      this.busy = false;
      if (this.stopped) return;
      failed = error;
      if (poll.awake()) [this.failures, poll.failures] = [this.failures + 1, poll.failures + 1]; // else nobody waits
      poll.onfailure();
      this.onfailure(this.failures);
    }
    if (this.stopped) return;
    this.plan(this.again ? 0 : waitAfter(usual, this.failures, failed));
    this.again = false;
    poll.listen();
  }

  take(reply) {
    this.failures = 0;
    this.poll.heard = Date.now();
    this.poll.calm();
    try {
      return this.receive(reply);
    } catch (error) {
      console.error("the page could not show the news:", error); // a fault of ours, not of the connection
      return undefined;
    }
  }

  stop() {
    this.stopped = true;
    this.due = REST;
    clearTimeout(this.timer);
  }
}

/** What a promise gives, or a failure after `wait` milliseconds. */
export function withLimit(promise, wait) {
  let timer = 0;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing for ${wait} ms`)), wait);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}
