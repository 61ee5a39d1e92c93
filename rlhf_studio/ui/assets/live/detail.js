// What a panel fetches beside the news: once for each state of the run, and again later where it could not be had.
const AGAIN = 4000; // milliseconds

export class Detail {
  /**
   * @param fetch    asks the server
   * @param kind     what for
   * @param receive  called with the reply, and with one that only tells a problem
   */
  constructor(fetch, kind, receive) {
    this.fetch = fetch;
    this.kind = kind;
    this.receive = receive;
    this.forget();
  }

  /** Another run is shown. What is still on its way comes too late. */
  forget() {
    this.ticket = null;
    this.shown = ""; // the state that the last reply is about
    this.asked = ""; // the state that was asked about last
    this.again = 0; // when to ask about the same state again
  }

  /** Called with all news: fetch when `state` is not the one that is shown. */
  follow(state) {
    if (!state || state === this.shown || (state === this.asked && Date.now() < this.again)) return undefined;
    return this.load(state);
  }

  async load(state) {
    const ticket = (this.ticket = Symbol(this.kind));
    this.asked = state;
    this.again = Infinity;
    const reply = await this.fetch({ kind: this.kind });
    if (ticket !== this.ticket) return;
    if (reply && !reply.problem) this.shown = state;
    else this.again = Date.now() + AGAIN;
    if (reply) this.receive(reply);
  }
}
