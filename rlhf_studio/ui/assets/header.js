// Name, state, progress, times and the buttons; below them one banner that says what is wrong or what to do next.
import { forceStop } from "./dialogs.js";
import { el, fill, setText, show } from "./dom.js";
import { bytes, clock, duration, lower, number, percent, signed } from "./format.js";
import { term } from "./tips.js";

const ALIVE = new Set(["loading", "running", "paused"]);
export const isAlive = (state) => ALIVE.has(state);

const BUTTONS = [
  { event: "checkpoint_run", label: "Checkpoint", tip: "Save the model and everything needed to resume, without stopping.", states: ["running", "paused"] },
  { event: "pause_run", label: "Pause", tip: "Wait after the present step; nothing is lost.", states: ["running"] },
  { event: "continue_run", label: "Continue", tip: "Go on with the next step.", states: ["paused"], primary: true },
  { event: "stop_run", label: "Stop and save", tip: "Finish the present step, write a checkpoint and end. The run can be resumed.", states: ["loading", "running", "paused"], stop: true },
  { event: "force_stop_run", label: "Force stop", tip: "End the engine now, without a checkpoint: it was asked to stop and has not.", states: ["loading", "running", "paused"], stop: true, forced: true },
  { event: "stop_run", label: "Remove from queue", tip: "The run will not start. Its settings stay in Runs.", states: ["queued"] },
  { event: "resume_run", label: "Resume", tip: "Go on from the last checkpoint.", states: ["interrupted", "stopped", "failed"], primary: true },
];
const WORKING = { checkpoint_run: "Saving…", pause_run: "Pausing…", continue_run: "Continuing…", stop_run: "Stopping…", force_stop_run: "Ending…", resume_run: "Resuming…" };
const PENDING_LIMIT = 8000;

export class Header {
  constructor(act) {
    this.act = act;
    this.pending = null;
    this.name = el("h2", { class: "rs-name" });
    this.stateWord = el("span", {});
    this.state = el("span", { class: "rs-state" }, el("i", { "aria-hidden": "true" }), this.stateWord);
    this.live = el("span", { class: "rs-sr", "aria-live": "polite" });
    this.stepText = el("span", { class: "rs-step" });
    this.bar = el("div", { class: "rs-bar-fill" });
    this.progress = el("div", { class: "rs-bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": "Progress" }, this.bar);
    this.times = el("span", { class: "rs-times", "data-term": "time/left" });
    this.device = el("span", { class: "rs-device" });
    this.phase = el("span", { class: "rs-phase" });
    this.buttons = BUTTONS.map((spec) => {
      const kind = spec.primary ? "primary" : spec.stop ? "stop" : "";
      const node = el("button", { type: "button", class: `rs-button ${kind}`, "data-event": spec.event, "data-tip": spec.tip, onclick: () => this.press(spec) }, spec.label);
      return { ...spec, node };
    });
    this.controls = el("div", { class: "rs-controls", role: "group", "aria-label": "Run controls" }, this.buttons.map((button) => button.node));
    this.viewer = el("span", { class: "rs-viewer" });
    this.questions = el("div", { class: "rt-root rs-questions" });
    this.node = el(
      "header",
      { class: "rs-head" },
      el("div", { class: "rs-head-main" }, this.name, this.state, this.live, this.device),
      el("div", { class: "rs-head-progress" }, this.stepText, this.progress, this.times, this.phase),
      el("div", { class: "rs-head-controls" }, this.viewer, this.controls),
      this.questions,
    );
  }

  whyNot(sentence) {
    setText(this.viewer, sentence);
  }

  async press(spec) {
    if (this.pending) return;
    if (spec.forced && !(await forceStop(this.questions, this.status.name || this.status.run))) return;
    this.pending = { event: spec.event, label: spec.label, until: Date.now() + PENDING_LIMIT, state: this.status.state, checkpoints: this.status.checkpoints.length };
    this.act(spec.event);
    this.setButtons();
  }

  /** Whether the asked-for change has happened, or has taken so long that the button should come back. */
  settle() {
    if (!this.pending) return;
    const { event, until, state, checkpoints } = this.pending;
    const saved = event === "checkpoint_run" && this.status.checkpoints.length !== checkpoints;
    if (saved || this.status.state !== state || Date.now() > until) this.pending = null;
  }

  setButtons() {
    show(this.controls, this.operator);
    show(this.viewer, !this.operator);
    for (const button of this.buttons) {
      show(button.node, button.states.includes(this.status.state) && (!button.forced || this.status.may_force_stop));
      const mine = this.pending?.event === button.event && this.pending.label === button.label;
      setText(button.node, mine ? WORKING[button.event] : button.label);
      button.node.setAttribute("aria-disabled", String(Boolean(this.pending)));
    }
  }

  update(status, operator, serverNow) {
    Object.assign(this, { status, operator });
    this.settle();
    setText(this.name, status.name || status.run);
    if (this.stateWord.textContent !== status.state) setText(this.live, `The run is ${status.state}.`);
    setText(this.stateWord, status.state);
    setText(this.device, [status.recipe, status.device].filter(Boolean).join(" · "));
    const starting = status.state === "loading" || status.state === "queued";
    show(this.stepText, !starting);
    setText(this.stepText, `step ${status.step} of ${status.total}`);
    const share = status.state === "loading" ? status.fraction : status.total ? status.step / status.total : null;
    show(this.progress, status.state !== "queued");
    this.progress.classList.toggle("unknown", share === null && isAlive(status.state));
    this.bar.style.width = `${100 * (share ?? 0)}%`;
    if (share === null) this.progress.removeAttribute("aria-valuenow");
    else this.progress.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    setText(this.phase, phaseOf(status));
    this.tick(serverNow);
    this.setButtons();
  }

  /** The clock parts, also between two polls. */
  tick(serverNow) {
    const { status } = this;
    if (!status) return;
    if (this.step !== status.step) [this.step, this.stepSeen] = [status.step, serverNow];
    const since = status.state === "running" ? serverNow - this.stepSeen : 0;
    const waiting = isAlive(status.state) && status.started_at !== null ? serverNow - status.started_at : null;
    const elapsed = status.worked === null ? waiting : status.worked + since;
    const parts = [];
    if (elapsed !== null) parts.push(`${duration(elapsed)} elapsed`);
    if (status.state === "running" && status.step_seconds !== null) {
      const left = status.step_seconds * (status.total - status.step) - Math.min(since, status.step_seconds);
      parts.push(`about ${duration(left)} left`);
    }
    setText(this.times, parts.join(", "));
  }
}

function phaseOf(status) {
  if (status.state === "loading") {
    const share = status.fraction === null ? "" : ` ${percent(status.fraction, 0)}`;
    return `${status.phase || "Starting the engine"}${share}`;
  }
  if (status.state === "running" && status.step === 0) return `Step 1 is under way${status.phase ? `: ${lower(status.phase)}` : ""}`;
  return status.state === "running" ? status.phase : "";
}

/** What the banner says: {tone, title, lines, rows} or null. */
export function bannerOf(status, operator) {
  const saved = status.checkpoints[status.checkpoints.length - 1];
  const from = saved ? `Last checkpoint: step ${saved.step} (${bytes(saved.bytes)}).` : "No checkpoint was written, so Resume starts from the beginning.";
  const how = operator ? [from] : [];
  switch (status.state) {
    case "queued":
      return { tone: "queued", title: status.queue_position > 1 ? `Waiting: number ${status.queue_position} in the queue` : "Waiting: next in the queue", lines: ["One run works at a time. This one starts by itself when those before it have ended."] };
    case "failed":
      return { tone: "failed", title: "The run failed", lines: [status.cause || "The engine gave no cause; its log is below.", ...how] };
    case "interrupted":
      return { tone: "interrupted", title: `Interrupted after step ${status.step} of ${status.total}`, lines: [status.cause || "The engine ended without saying why.", "Every finished step is kept.", ...how] };
    case "stopped":
      return { tone: "finished", title: `Stopped on request after step ${status.step} of ${status.total}`, lines: how, rows: status.summary };
    case "finished":
      return { tone: "finished", title: "Finished", lines: [finishedLine(status)], rows: status.summary };
    default:
      if (status.silent === null) return null;
      return { tone: "paused", title: `The engine has been silent for ${duration(status.silent)}`, lines: ["It still holds its run. It may be waiting for the disk or for memory; if this goes on, stop it and resume."] };
  }
}

function finishedLine(status) {
  const saved = status.checkpoints[status.checkpoints.length - 1];
  const took = status.worked !== null ? `${status.total} steps in ${duration(status.worked)}` : `${status.total} steps`;
  return saved ? `${took}. The model is saved as checkpoint ${saved.step} (${bytes(saved.bytes)}).` : `${took}.`;
}

export class Banner {
  constructor(go) {
    this.go = go;
    this.node = el("div", { class: "rs-banner", hidden: true });
    this.shown = "";
  }

  update(content, links) {
    const text = JSON.stringify([content, links]);
    if (text === this.shown) return;
    this.shown = text;
    show(this.node, Boolean(content));
    if (!content) return;
    this.node.dataset.tone = content.tone;
    this.node.setAttribute("role", content.tone === "failed" ? "alert" : "status");
    const rows = (content.rows || []).map((row) =>
      el("li", { "data-term": row.name }, el("span", {}, term(row.name).title), el("b", {}, `${number(row.from)} → ${number(row.to)}`), el("em", {}, signed(row.to - row.from))),
    );
    const next = content.tone === "finished" && links;
    fill(
      this.node,
      el("strong", {}, content.title),
      (content.lines || []).map((line) => el("p", {}, line)),
      rows.length ? el("ul", { class: "rs-summary", "aria-label": "Mean of the first and of the last tenth of the steps" }, rows) : null,
      next ? el("p", { class: "rs-next" }, "What next: compare the answers below, ", this.link("open_train", "start a variation"), " or ", this.link("open_runs", "see all runs"), ".") : null,
    );
  }

  link(event, label) {
    return el("button", { type: "button", class: "rs-link", onclick: () => this.go(event) }, label);
  }
}

/** "Connection lost" with the time of the last news and of the next try. */
export class LostBar {
  constructor(retry) {
    this.text = el("span", { role: "alert" });
    this.wait = el("span", { class: "rs-lost-wait" });
    this.node = el("div", { class: "rs-lost", hidden: true }, el("i", { "aria-hidden": "true" }), this.text, this.wait, el("button", { type: "button", class: "rs-button", onclick: retry }, "Try now"));
  }

  update(lost) {
    show(this.node, Boolean(lost));
    if (!lost) return setText(this.text, "");
    setText(this.text, `Connection to the app lost. What you see is from ${clock(lost.since / 1000)}; the run itself goes on.`);
    const wait = lost.retryAt ? Math.ceil((lost.retryAt - Date.now()) / 1000) : 0;
    return setText(this.wait, wait > 0 ? `Trying again in ${wait} s` : "Trying again…");
  }
}
