// The replay of a run that is over, below its head: a button in the head opens it, and so does ?replay=RUN.
import { debounce, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { microscopeAddress } from "../shared/handover.js";
import { onlyWatches, whyNot } from "../shared/visit.js";
import { t } from "../shared/language.js";

const SETTLED = 300; // milliseconds until the address says where a person has gone
const BUTTON_BACK = 5000;
const FEWEST = 2; // steps
const CURVES = ["objective/scores", "gold/score", "objective/kl"];

export class LiveReplay {
  /**
   * @param ask    the server's function for replays
   * @param has    whether the run kept the numbers of a step, which its microscope needs
   * @param moved  called when the place of the page has changed; gets whether "back" shall return to the one before
   * @param film   id of the recording that a run can be started like
   * @param like   starts that run, and shows it
   */
  constructor({ ask, has, moved, film, like }) {
    this.ask = ask;
    this.has = has;
    this.moved = moved;
    this.film = film;
    this.like = pushButton("rs-button rs-small rs-primary", t("Run it myself"), () => this.begin(like));
    this.like.dataset.tip = t(
      "Trains a run with the settings of this recording, in about a minute: see the same happen.",
    );
    this.button = pushButton("rs-button rs-small", t("Replay"), () => (this.wanted ? this.close() : this.open()));
    this.button.setAttribute("aria-expanded", "false");
    this.problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    this.stage = el("div");
    this.node = el("div", { class: "rs-box rs-panel", hidden: true }, this.problem, this.stage);
    this.tell = debounce(SETTLED, () => this.moved(false));
    this.reset("");
  }

  /** Another run is shown now; `wanted` are the parameters that led to it. */
  reset(run, wanted = {}) {
    this.end();
    this.run = run;
    show(this.button, false);
    if (run && wanted.replay === run) this.open(wanted);
  }

  /** What the address says while it is open: where it stands, or from where it plays. */
  get params() {
    if (!this.wanted) return {};
    const { player } = this;
    if (!player) return { ...this.wanted };
    return { replay: this.run, [player.playing ? "from" : "at"]: player.playing ? this.since : player.now };
  }

  /** News of the run: a run that is over can be replayed, where `has` says that it has recorded one of the curves.
   * Who `starts` runs may start one like the recording. */
  offer({ stage, step }, over, has, starts) {
    show(this.button, stage === "ppo" && over && step >= FEWEST && CURVES.some(has));
    show(this.like, starts && this.run === this.film);
  }

  /** Start a run like the recording, once for a double click. */
  begin(start) {
    if (this.like.disabled) return;
    this.like.disabled = true;
    setTimeout(() => (this.like.disabled = false), BUTTON_BACK);
    start();
  }

  /** Open it; `wanted` says at which step it stands (`at`), or from which it plays (`from`). */
  async open(wanted = {}) {
    const { run } = this;
    const led = "replay" in wanted;
    this.wanted = { replay: run, at: wanted.at, from: wanted.from };
    show(this.node, true);
    this.say("");
    this.button.setAttribute("aria-expanded", "true");
    if (!led) this.moved(true);
    const { startReplay, ...payload } = await this.fetch(run).catch((error) => ({ problem: whyNot(error) }));
    if (run !== this.run || !this.wanted || this.player) return;
    if (payload.problem) return void this.say(payload.problem);
    const stands = Number.isFinite(Number(this.wanted.at ?? "none"));
    this.since = Number(this.wanted.at ?? this.wanted.from) || payload.steps[0];
    this.player = startReplay(this.stage, payload, {
      autoplay: !stands,
      at: this.since,
      microscope: (step) => (this.has(step) ? microscopeAddress(run, { step }) : null),
      onplace: ({ step }) => {
        this.since = step;
        this.tell();
      },
      actions: [this.like, pushButton("rs-button rs-small", t("Close"), () => this.close())],
    });
    if (!led) this.player.toggle.focus({ preventScroll: true });
    this.node.scrollIntoView({ block: "start" });
  }

  /** The replay of a run, and what plays it, which is loaded when somebody wants to see it. */
  async fetch(run) {
    const { startReplay } = await import("../replay/replay.js");
    return { startReplay, ...(await this.ask({ run, view: onlyWatches() })) };
  }

  /** Go where an address leads. */
  follow(wanted) {
    const { player } = this;
    if (wanted.replay !== this.run) return this.end();
    if (!player) return void this.open(wanted);
    const place = Number(wanted.at ?? wanted.from);
    if (Number.isFinite(place)) player.go((this.since = place));
    if (wanted.at !== undefined && player.playing) player.pause();
    if (wanted.from !== undefined && !player.playing) player.follow();
    return undefined;
  }

  /** A key that was pressed beside it while it is open. Gives whether it is the one that leads to the next moment. */
  onkey(event) {
    const { key, ctrlKey, metaKey, altKey, target } = event;
    const types = target.closest?.("input:not([type=range]), select, textarea");
    if (!this.player || key.toLowerCase() !== "n" || ctrlKey || metaKey || altKey || types) return false;
    this.player.next();
    return true;
  }

  close() {
    this.end();
    this.moved(true);
    if (this.button.offsetParent) this.button.focus();
  }

  end() {
    this.wanted = null;
    this.player?.end();
    this.player = null;
    fill(this.stage);
    show(this.node, false);
    this.button.setAttribute("aria-expanded", "false");
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }
}
