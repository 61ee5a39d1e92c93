// Name, state, progress, times and the buttons; below them one banner that says what is wrong or what to do next.
import { Controls } from "./controls.js";
import { isAlive, stepOf } from "./stage.js";
import { el, fill, redraw, setText, show } from "../shared/dom.js";
import { bytes, counted, duration, lower, percent, readable, stateWord } from "../shared/format.js";
import { clauses, t, tp } from "../shared/language.js";

const CAUSE = /^The (Space|app) was restarted$/; // also in runs/hosted/ending.py
const MOST_OF_DEVICE = 120; // characters: a log of another program may name anything
const RECORDED = t(
  "This recording came with the program. It can be watched and compared, but not changed or trained further.",
);

export class Header {
  /**
   * @param act, steered  as Controls takes them
   * @param more          a button beside them that changes nothing
   */
  constructor(act, steered, more) {
    this.limit = 0; // seconds after which the run is stopped, where it is an own one that has such a limit
    this.name = el("h2", { class: "rs-name" });
    this.stateWord = el("span", {});
    this.state = el("span", { class: "rs-state" }, el("i", { "aria-hidden": "true" }), this.stateWord);
    this.recording = el("span", { class: "rs-chip", hidden: true }, tp("chip", "Recording"));
    this.live = el("span", { class: "rs-hidden", "aria-live": "polite" });
    this.stepText = el("span", { class: "rs-step" });
    this.kept = el("span", { class: "rs-kept rs-muted", hidden: true });
    this.bar = el("div", { class: "rs-progress-fill" });
    this.progress = el(
      "div",
      {
        class: "rs-progress",
        role: "progressbar",
        "aria-valuemin": "0",
        "aria-valuemax": "100",
        "aria-label": t("Progress"),
      },
      this.bar,
    );
    this.times = el("span", { class: "rs-times", "data-term": "time/left" });
    this.device = el("span", { class: "rs-run-device rs-cut" });
    this.phase = el("span", { class: "rs-phase rs-cut" });
    this.controls = new Controls(act, steered);
    this.viewer = el("span", { class: "rs-viewer" });
    this.node = el(
      "header",
      { class: "rs-head rs-flow" },
      el("div", { class: "rs-head-main" }, this.name, this.recording, this.state, this.live, this.device),
      el("div", { class: "rs-head-progress rs-flow" }, this.stepText, this.progress, this.times, this.phase, this.kept),
      el("div", { class: "rs-head-controls rs-flow" }, this.viewer, more, this.controls.node),
    );
  }

  whyNot(sentence) {
    setText(this.viewer, sentence);
  }

  update(status, operator, serverNow, settings) {
    this.status = status;
    show(this.viewer, !operator && !status.recording); // of a recording the banner says it
    this.controls.update(status, operator, settings);
    setText(this.name, status.name || status.run);
    show(this.recording, status.recording);
    const state = stateWord(status.state);
    if (this.stateWord.textContent !== state) setText(this.live, t("The run is {state}.", { state }));
    setText(this.stateWord, state);
    setText(this.device, readable([status.recipe, status.device].filter(Boolean).join(" · "), MOST_OF_DEVICE));
    const starting = status.state === "loading" || status.state === "queued";
    show(this.stepText, !starting);
    setText(this.stepText, stepOf(status));
    setText(this.kept, keptLine(status));
    show(this.kept, status.recorded > status.step && !starting);
    const share = status.state === "loading" ? status.fraction : doneOf(status);
    show(this.progress, status.state !== "queued");
    this.progress.classList.toggle("rs-unknown", share === null && isAlive(status.state));
    this.bar.style.width = `${100 * (share ?? 0)}%`;
    if (share === null) this.progress.removeAttribute("aria-valuenow");
    else this.progress.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    setText(this.phase, phaseOf(status));
    this.tick(serverNow);
  }

  /** The clock parts, also between two polls. */
  tick(serverNow) {
    const { status } = this;
    if (!status) return;
    if (this.step !== status.step) {
      this.step = status.step;
      this.stepSeen = serverNow;
    }
    const since = status.state === "running" ? serverNow - this.stepSeen : 0;
    const waiting = isAlive(status.state) && status.started_at !== null ? serverNow - status.started_at : null;
    const elapsed = status.worked === null ? waiting : status.worked + since;
    const parts = [];
    // Before the first step what stands in the place of the charts has the clock, loading included.
    if (elapsed !== null && (status.step > 0 || !isAlive(status.state)))
      parts.push(
        status.worked === null
          ? t("{time} since the start", { time: duration(elapsed) })
          : t("{time} elapsed", { time: duration(elapsed) }),
      );
    if (status.state === "running" && status.left !== null && status.silent === null && !status.stop_asked) {
      const left = status.left - Math.min(since, status.step_seconds);
      parts.push(t("about {time} left", { time: duration(left) }));
      const ends = this.limit && status.started_at !== null && serverNow - status.started_at + left > this.limit;
      if (ends)
        parts.push(t("but it is stopped after {minutes} minutes, the limit here", { minutes: this.limit / 60 }));
    }
    setText(this.times, clauses(parts));
  }
}

/** What lies behind the present step since a resume from an earlier one. */
function keptLine(status) {
  const kept = { first: status.step + 1, last: status.recorded };
  return status.recorded === status.step + 1
    ? t("Step {last} was made before the resume. It is hidden until the run makes it again.", kept)
    : t("Steps {first} to {last} were made before the resume. They are hidden until the run makes them again.", kept);
}

/** The share of its steps that a run has done; null while it is not known how many there are. */
function doneOf({ state, step, total }) {
  if (total) return step / total;
  return state === "finished" ? 1 : null;
}

function phaseOf(status) {
  if (status.state === "loading") {
    const share = status.fraction === null ? "" : ` ${percent(status.fraction, 0)}`;
    return `${status.phase || t("Starting the engine")}${share}`;
  }
  if (status.state === "paused") return status.phase;
  if (status.state === "running" && status.step === 0)
    return status.phase ? t("Step 1 is under way: {phase}", { phase: lower(status.phase) }) : t("Step 1 is under way");
  return status.state === "running" ? status.phase : "";
}

/**
 * What the banner says: {tone, title, lines, operator, verdict} or null.
 * @param steers  whether this person may resume the run
 * @param coming  whether the app that has stopped the run has not begun again yet
 */
export function bannerOf(status, { operator, steers, coming }) {
  const resume = steers ? [t("Press Resume to go on.")] : [];
  const content = restarted(status) ? restartBanner(status, { how: resume, coming }) : contentOf(status, operator);
  return content && { ...content, operator, verdict: status.verdict };
}

/** How far a run came that broke off. */
const placeOf = ({ step, total }) =>
  step ? t("after {step}", { step: stepOf({ step, total }) }) : t("before the first step");

function contentOf(status, operator) {
  const saved = status.checkpoints.at(-1);
  // Another trainer's run goes on there, if at all.
  const how = operator && !status.only_read ? [whatResumeDoes(status, saved)] : [];
  switch (status.state) {
    case "queued":
      return {
        tone: "queued",
        title:
          status.queue_position > 1
            ? t("Waiting: number {queue_position} in the queue", { queue_position: status.queue_position })
            : t("Waiting: next in the queue"),
        lines: [
          t("One run works at a time. This one starts by itself when those before it have ended."),
          ...(status.held
            ? [t("The run that works now waits for people: \u201c{held}\u201d.", { held: readable(status.held, 120) })]
            : []),
        ],
      };
    case "failed":
      return {
        tone: "failed",
        title: status.step
          ? t("The run failed after {step}", { step: stepOf(status) })
          : t("The run failed before the first step"),
        lines: [status.cause || t("The engine gave no cause; its log is below."), ...how],
      };
    case "interrupted":
      return {
        tone: "interrupted",
        title: t("Interrupted after {step}", { step: stepOf(status) }),
        lines: [status.cause || t("The engine ended without saying why."), ...how],
      };
    case "stopped":
      return status.cause?.startsWith("Waits") ? waitingBanner(status, how) : stoppedBanner(status, how);
    case "finished":
      return {
        tone: "finished",
        title: t("Finished"),
        lines: [finishedLine(status), status.recording ? RECORDED : ""].filter(Boolean),
      };
    default:
      return silentBanner(status, operator) || ratingBanner(status);
  }
}

/**
 * What the host has restarted, "Space" or "app", which stopped the run without any person's wish; else nothing.
 */
const restarted = ({ state, cause }) => (state === "stopped" ? CAUSE.exec(cause || "")?.[1] : undefined);

/** Knows whether the app that has stopped a run is still on its way to its end. */
export class Restart {
  /** The connection is lost: whoever answers next is the app that has begun again. */
  lost() {
    this.worked = "";
  }

  /** Whether this page has seen the run at work, and then stopped, without losing the connection in between. */
  isUnderWay(status) {
    if (isAlive(status.state)) this.worked = status.run;
    return this.worked === status.run && Boolean(restarted(status));
  }
}

/**
 * The banner of such a run.
 * @param how     what Resume does, for whoever may press it
 * @param coming  whether the app has not begun again yet
 */
function restartBanner(status, { how, coming }) {
  const { step, total } = status;
  const what = restarted(status);
  const place = placeOf({ step, total });
  const now = {
    title: t("The {what} is being restarted", { what }),
    lines: [t("The run was stopped {place}. It can go on then.", { place })],
  };
  const then = { title: t("The {what} was restarted {place}", { what, place }), lines: how };
  return { tone: "interrupted", ...(coming ? now : then) };
}

/** A run that somebody has stopped, or that has stopped by itself, which has a cause. */
function stoppedBanner({ step, total, cause }, how) {
  const at = { step: stepOf({ step, total }) };
  const title = cause ? t("Stopped after {step}", at) : t("Stopped on request after {step}", at);
  return { tone: "finished", title, lines: cause ? [cause, ...how] : how };
}

/** A run that waits for a GPU until somebody resumes it. */
function waitingBanner({ step, total, cause }, how) {
  const title = step ? t("Waits after {step}", { step: stepOf({ step, total }) }) : t("Waits for its first step");
  return { tone: "interrupted", title, lines: [cause, ...how] };
}

/** A run that waits for people who rate its responses; null for all others. */
function ratingBanner({ rating, phase }) {
  if (!rating) return null;
  const line = t(
    "The run goes on by itself when all responses of this step are rated. It can be paused or stopped meanwhile.",
  );
  return { tone: "rating", title: phase, lines: [line] };
}

/** An engine that does not answer, and what can be done about it; null while it does. */
function silentBanner(status, operator) {
  const { silent, stop_asked: asked, may_force_stop: force } = status;
  if (silent === null && !force) return null;
  const title =
    silent === null
      ? t("The engine was asked to stop and works on")
      : t("The engine has been silent for {silent}", { silent: duration(silent) });
  const held = t("It still holds its run; it may be waiting for the disk or for memory.");
  if (status.kind === "program")
    return {
      tone: "paused",
      title,
      lines: [t("It is trained by {trained_by}: end it where you started it.", { trained_by: status.trained_by })],
    };
  if (status.only_read) return { tone: "paused", title, lines: [] };
  const way = force
    ? t("Force stop ends it now, without a checkpoint.")
    : asked
      ? t("It was asked to stop; Force stop is offered if it does not.")
      : t("If this goes on, stop it; the run can be resumed.");
  return { tone: "paused", title, lines: operator ? [`${held} ${way}`] : [held] };
}

/** One sentence that is true whether there is a checkpoint or not. */
function whatResumeDoes({ step }, saved) {
  if (!saved)
    return step
      ? t("There is no checkpoint: Resume begins again at step 1, and asks first.")
      : t("Resume begins at step 1.");
  const about = { step: saved.step, bytes: bytes(saved.bytes), first: saved.step + 1, last: step };
  if (saved.step >= step) return t("Resume goes on from the checkpoint of step {step} ({bytes}).", about);
  return saved.step + 1 === step
    ? t("Resume goes on from the checkpoint of step {step} ({bytes}) and trains step {last} again.", about)
    : t("Resume goes on from the checkpoint of step {step} ({bytes}) and trains steps {first} to {last} again.", about);
}

function finishedLine(status) {
  const saved = status.checkpoints.at(-1);
  const steps = counted(status.total || status.step, "step");
  const took = status.worked !== null ? t("{steps} in {worked}", { steps, worked: duration(status.worked) }) : steps;
  if (status.stage === "evaluation")
    return t("{took}. Nothing was trained: the table compares the policies.", { took });
  return saved
    ? t("{took}. The model is saved as checkpoint {step} ({bytes}).", {
        took,
        step: saved.step,
        bytes: bytes(saved.bytes),
      })
    : t("{took}.", { took });
}

export class Banner {
  /** @param ending  what can be done when a run is over, as rows of buttons */
  constructor(ending) {
    this.ending = ending;
    this.node = el("div", { class: "rs-banner rs-column", hidden: true, tabindex: "-1" });
    this.problem = el("p", { role: "alert" });
    this.content = null;
    this.shown = "";
  }

  update(content) {
    const text = JSON.stringify(content);
    if (text === this.shown) return;
    this.shown = text;
    this.content = content;
    this.say("");
    if (!content) return;
    this.node.dataset.tone = content.tone;
    this.node.setAttribute("role", content.tone === "failed" ? "alert" : "status");
    const lines = (content.lines || []).map((line) => el("p", {}, line));
    const said = el("div", { class: "rs-banner-said rs-wrap" }, el("strong", {}, content.title), lines);
    const buttons = this.ending.buttons(content.tone, content.operator);
    const parts = content.tone === "finished" ? [buttons, this.problem, said] : [said, buttons, this.problem];
    redraw(this.node, this.node, () => fill(this.node, parts));
  }

  /** Say why a button could not do its work, also when there is nothing else to say; an empty text says nothing. */
  say(text) {
    if (!this.content) {
      this.node.dataset.tone = "failed";
      fill(this.node, this.problem);
    }
    show(this.node, Boolean(text || this.content));
    setText(this.problem, text);
    show(this.problem, Boolean(text));
    if (text) this.node.scrollIntoView({ block: "nearest" });
  }
}
