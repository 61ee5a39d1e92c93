// What a person sees without looking at the page: the tab's title, and, if wanted, notifications of ends and alarms.
import { stateWord } from "./format.js";
import { lasting } from "./lasting.js";
import { colon, t } from "./language.js";

const PRODUCT = "RLHF Studio";
const SIGNS = { loading: "\u25b7", running: "\u25b6", paused: "\u2016", queued: "\u2026", finished: "\u2713" };
const ALIVE = ["queued", "loading", "running", "paused"];

class Notices {
  constructor() {
    this.last = null;
    this.told = new Set(); // keys of what was told
  }

  get possible() {
    return "Notification" in window && window.isSecureContext;
  }

  get refused() {
    return this.possible && Notification.permission === "denied";
  }

  get wanted() {
    return this.possible && Notification.permission === "granted" && lasting.get("notify", false) === true;
  }

  /** Ask the browser for permission where that is needed; gives whether notifications will come. */
  async want(on) {
    if (on && Notification.permission === "default") await Notification.requestPermission();
    lasting.set("notify", on && Notification.permission === "granted");
    return this.wanted;
  }

  /** The state of the run that is watched: it becomes the tab's title, and its end a notification. */
  show({ run, name, state, step, total }) {
    const title = name || run;
    const place = ALIVE.includes(state) && step > 0 ? ` ${step}/${total}` : ` ${stateWord(state)}`;
    document.title = `${SIGNS[state] || "\u25a0"}${place} \u00b7 ${title} \u00b7 ${PRODUCT}`;
    const ended = this.last?.run === run && ALIVE.includes(this.last.state) && !ALIVE.includes(state);
    if (ended)
      this.tell({
        key: `${run}:${state}`,
        title: colon(title, stateWord(state)),
        text: t("Step {step} of {total}", { step, total }),
      });
    this.last = { run, state };
  }

  /** Tell something once, if that is wanted; what happens before somebody's eyes needs no notification. */
  tell({ key, title, text }) {
    if (this.told.has(key)) return;
    this.told.add(key);
    if (!this.wanted || document.visibilityState !== "hidden") return;
    const notification = new Notification(title, { body: text, tag: key }); // one for all tabs
    notification.addEventListener("click", () => window.focus());
  }

  /** No run is shown. */
  none() {
    document.title = PRODUCT;
    this.last = null;
  }
}

export const notices = new Notices();
