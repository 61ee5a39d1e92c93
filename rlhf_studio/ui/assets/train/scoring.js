// One question to the process that scores texts, from its start to its end.
import { REST } from "../shared/poll.js";
import { bracketed } from "../shared/language.js";

const ASK_AGAIN = 400;

export class Scoring {
  /**
   * @param poll  of the page
   * @param ask   async ({op, ...}) -> {state, key, progress, fraction, result, error, problems}
   * @param say   shows how far it is
   */
  constructor({ poll, ask, say }) {
    this.poll = poll;
    this.ask = ask;
    this.say = say;
  }

  /** The last answer, which is done or failed; null where none came. */
  async run(question) {
    let answer = await this.ask({ op: "start", ...question }).catch(() => null);
    const receive = (next) => {
      answer = next;
      if (next.state !== "working") return REST;
      this.key = next.key;
      this.say(next.fraction ? `${next.progress}${bracketed(`${Math.round(100 * next.fraction)} %`)}` : next.progress);
      return ASK_AGAIN;
    };
    if (!answer || receive(answer) === REST) return answer;
    return (await this.poll.until({ ask: () => this.ask({ op: "poll", key: this.key }), receive })) ? answer : null;
  }

  async cancel() {
    await this.ask({ op: "cancel", key: this.key }).catch((error) =>
      console.error("the scoring could not be stopped:", error),
    );
  }
}
