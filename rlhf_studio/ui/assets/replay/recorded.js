// A recorded run that plays by itself, small, where there is nothing of one's own to see yet.
import { el, setText, show } from "../shared/dom.js";
import { onlyWatches, whenShown, whyNot } from "../shared/visit.js";
import { colon, t } from "../shared/language.js";

const STORY = t("a model pleases its judge, then fools it.");
const SIGNS = t("The score rises; gold, which it never sees, falls.");
const SHORT_STORY = t("a model fools its judge.");

let newest = null; // the player that was shown last: another page goes on where it stands

export class RecordedReplay {
  /**
   * @param ask      the server's function for replays
   * @param run      the id of the recording of a run that exploits its reward
   * @param words    what the sentence above begins with
   * @param actions  more buttons for its controls
   * @param hero     whether it is what its page is about: large, with words explained, and a short sentence above
   */
  constructor({ ask, run, words, actions = [], hero = false }) {
    this.ask = ask;
    this.run = run;
    this.actions = actions;
    this.hero = hero;
    this.problem = el("p", { class: "rs-help", role: "status", hidden: true });
    this.stage = el("div", { class: "rs-replay-stage" });
    this.node = el(
      "section",
      { class: "rs-replay-recorded rs-box", "data-hero": hero ? "true" : null, "aria-label": t("A recorded run") },
      el(
        "p",
        { class: "rs-replay-lead" },
        [colon(words, hero ? SHORT_STORY : STORY), hero ? "" : SIGNS].filter(Boolean).join(" "),
      ),
      this.stage,
      this.problem,
    );
    whenShown(this.node, () => this.begin());
  }

  /** Fetch it when it is seen for the first time. */
  async begin() {
    if (this.begun) return;
    this.begun = true;
    try {
      const { startReplay } = await import("./replay.js");
      const payload = await this.ask({ run: this.run, view: onlyWatches() });
      if (payload.problem) return this.say(payload.problem);
      const at = newest?.payload.run === payload.run ? newest.now : undefined;
      newest?.pause();
      newest = this.player = startReplay(this.stage, payload, {
        compact: true,
        hero: this.hero,
        autoplay: true,
        at,
        actions: this.actions,
      });
      this.say("");
    } catch (error) {
      console.error(error);
      this.begun = false; // asked again when it is next seen
      this.say(whyNot(error));
    }
    return undefined;
  }

  /** Be quiet: a person is at work. */
  pause() {
    if (this.player?.playing) this.player.pause();
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }
}
