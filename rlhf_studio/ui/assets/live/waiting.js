// What stands in the place of numbers: while a run starts, and when there is no run to show.
import { onPlainClick } from "../shared/links.js";
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { duration } from "../shared/format.js";
import { firstStep, isAlive } from "./stage.js";
import { t } from "../shared/language.js";

/** In place of the charts while there is nothing to draw. */
export class Waiting {
  /**
   * @param film   makes what is watched meanwhile, under the words that it is given
   * @param fetch  asks the server
   */
  constructor(film, fetch) {
    this.film = film;
    this.fetch = fetch;
    this.since = null; // seconds since 1970, while it waits
    this.said = el("div", { class: "rs-waiting-said", role: "status" });
    this.times = el("span", { class: "rs-help", role: "timer" });
    this.node = el("section", { class: "rs-waiting rs-box", hidden: true }, this.said);
  }

  /** How long it has taken, and how long it usually takes until the first step begins. */
  tick(now) {
    if (this.since === null || this.node.hidden) return;
    const usual = this.usual && !this.running ? `, usually ${duration(this.usual)} here` : "";
    setText(this.times, `${duration(now - this.since)}${usual}`);
  }

  /** It begins to wait: earlier runs on this machine tell how long. */
  begin({ stage }, now) {
    this.since = now;
    this.usual = null;
    this.fetch({ kind: "starting", stage }).then((answer) => (this.usual = answer?.usual ?? null));
  }

  /** The recording begins when it is needed for the first time. */
  play() {
    if (this.node.children.length === 1) this.node.append(this.film(t("Meanwhile, a recorded run")).node);
  }

  update(status, none, settings, now) {
    const coming = none && isAlive(status.state);
    show(this.node, coming);
    if (!coming) return void (this.since = null);
    this.play();
    if (this.run !== status.run || this.since === null) this.begin(status, now);
    this.run = status.run;
    if (status.started_at !== null) this.since = Math.min(this.since, status.started_at); // a page that came later
    const running = (this.running = status.state === "running");
    this.tick(now);
    const title = running ? t("The first step is under way") : status.phase || t("Starting the engine");
    const text = running ? firstStep(status.stage, settings?.batch_size) : null; // the phase says what is being done
    if (this.said.dataset.text === title) return;
    this.said.dataset.text = title;
    fill(
      this.said,
      el("div", { class: "rs-spinner", "aria-hidden": "true" }),
      el("div", {}, el("strong", {}, title), " ", this.times),
      text && el("p", {}, text),
    );
  }
}

/** The whole page when there is no run to show. */
export class Empty {
  /**
   * @param trigger  sends an event to the server
   * @param film     makes what shows how this page will look
   * @param open     called with the id of a recording that is to be shown
   */
  constructor(trigger, film, open) {
    this.trigger = trigger;
    this.film = film;
    this.open = open;
    this.node = el("section", { class: "rs-empty", hidden: true });
  }

  /** There is no run at all yet: what to do, where something can be started, and the recordings that can be watched. */
  none(recordings, operator) {
    show(this.node, true);
    const kind = !operator && document.body.dataset.starts === "false" ? "watch" : "none";
    if (this.node.dataset.kind === kind) return;
    this.node.dataset.kind = kind;
    if (kind === "watch") {
      const empty = el(
        "div",
        {},
        el("h2", {}, t("No run here")),
        el("p", {}, t("Runs that others start appear here.")),
      );
      fill(this.node, recordings.length ? this.recorded(recordings) : empty);
      return;
    }
    const text = t(
      "Open Train and press Start run: the tiny world is chosen already, needs no download and takes about a minute.",
    );
    const own = [
      el("h2", {}, t("No run yet")),
      el("p", {}, text),
      this.button(t("Open Train"), "open_train", "rs-primary"),
    ];
    fill(
      this.node,
      el("div", {}, own),
      this.film(t("What you will watch here, in a recorded run")).node,
      recordings.length ? this.recorded(recordings) : null,
    );
  }

  recorded(recordings) {
    const row = ({ run, name, about }) => {
      const link = el("a", { href: `?tab=live&run=${run}`, onclick: onPlainClick(() => this.open(run)) }, name);
      return el("li", {}, link, el("span", {}, about));
    };
    const why = t("They came with the program, and open like any other run.");
    return el(
      "div",
      { class: "rs-recordings" },
      el("h3", {}, t("Watch a recording")),
      el("p", {}, why),
      el("ul", {}, recordings.map(row)),
    );
  }

  say(title, text) {
    show(this.node, true);
    this.node.dataset.kind = title;
    fill(this.node, el("h2", {}, title), el("p", {}, text), this.button(t("See all runs"), "open_runs", ""));
  }

  button(label, event, look) {
    return pushButton(`rs-button rs-small ${look}`, label, () => this.trigger(event, {}));
  }
}
