// The recorded run above the form: folded, and one click away.
import { el, fill, pushButton } from "../shared/dom.js";
import { RecordedReplay } from "../replay/recorded.js";
import { t } from "../shared/language.js";

export class Film {
  /** @param ask, run  as RecordedReplay takes them */
  constructor(ask, run) {
    this.about = { ask, run };
    this.node = el("div", { class: "rs-film" });
    this.show(false);
  }

  show(open) {
    this.replay?.pause();
    this.replay = null;
    if (!open)
      return fill(
        this.node,
        pushButton("rs-link", t("Show the recorded run"), () => this.show(true)),
      );
    const away = pushButton("rs-button rs-small", t("Hide"), () => {
      this.show(false);
      this.node.querySelector("button").focus();
    });
    this.replay = new RecordedReplay({ ...this.about, words: t("See it happen in a recorded run"), actions: [away] });
    return fill(this.node, this.replay.node);
  }

  /** A person is at work in the form. */
  pause() {
    this.replay?.pause();
  }
}
