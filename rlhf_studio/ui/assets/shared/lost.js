// The poll of a page, and the notice that the connection is lost: on every page the same.
import { el, pushButton, setText, show } from "./dom.js";
import { clock } from "./format.js";
import { Poll } from "./poll.js";
import { isOnScreen, whenShown } from "./visit.js";
import { t } from "./language.js";

/** "Connection lost" with the time of the last news and of the next try. */
class LostNotice {
  /** @param meanwhile  gives a sentence on what does not need this page, or an empty text */
  constructor(retry, meanwhile) {
    this.meanwhile = meanwhile;
    this.text = el("span", { role: "alert" });
    this.wait = el("span", { class: "rs-lost-wait" });
    this.node = el(
      "div",
      { class: "rs-lost rs-flow", hidden: true },
      el("i", { "aria-hidden": "true" }),
      this.text,
      this.wait,
      pushButton("rs-button rs-small", t("Try now"), retry),
    );
  }

  update(lost) {
    show(this.node, Boolean(lost));
    if (!lost) return setText(this.text, "");
    const seen = t("Connection to the app lost. What you see is from {since}.", { since: clock(lost.since / 1000) });
    setText(this.text, `${seen} ${this.meanwhile()}`.trim());
    const wait = lost.retryAt ? Math.ceil((lost.retryAt - Date.now()) / 1000) : 0;
    return setText(this.wait, wait > 0 ? t("Trying again in {wait} s", { wait }) : t("Trying again…"));
  }
}

/**
 * The poll of the page in `host`. Its `notice` is what the page shows above everything else. It asks when the page
 * comes into view.
 * @param {HTMLElement} host
 * @param {Partial<ConstructorParameters<typeof Poll>[0]> & { meanwhile?: () => string }} [options]
 * meanwhile: gives a sentence on what does not need this page; the others as `Poll` takes them
 */
export function pagePoll(host, { meanwhile = () => "", onlost = () => {}, ...options } = {}) {
  const notice = new LostNotice(() => poll.wake(), meanwhile);
  const tell = (lost) => {
    notice.update(lost);
    host.classList.toggle("rs-disconnected", Boolean(lost));
    onlost(lost);
  };
  const poll = new Poll({ awake: () => isOnScreen(host), onlost: tell, ...options });
  whenShown(host, () => poll.wake());
  return Object.assign(poll, { notice: notice.node });
}
