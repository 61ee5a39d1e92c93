// Name, state, progress, times and the buttons; below them one banner that says what is wrong or what to do next.
import { forceStop } from "../shared/dialogs.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { bytes, clock, duration, lower, number, percent, signed } from "../shared/format.js";
import { term } from "../shared/tips.js";

const ALIVE = new Set(["loading", "running", "paused"]);
export const isAlive = (state) => ALIVE.has(state);

const BUTTONS = [
  {
    event: "checkpoint_run",
    label: "Checkpoint",
    tip: "Save the model and everything needed to resume, without stopping.",
    states: ["running", "paused"],
  },
  { event: "pause_run", label: "Pause", tip: "Wait after the present step; nothing is lost.", states: ["running"] },
  { event: "continue_run", label: "Continue", tip: "Go on with the next step.", states: ["paused"], primary: true },
  {
    event: "stop_run",
    label: "Stop and save",
    tip:
      "Finish the present step, write a checkpoint and end; while the run still loads, end at once. " +
      "It can be resumed.",
    states: ["loading", "running", "paused"],
    stop: true,
  },
  {
    event: "force_stop_run",
    label: "Force stop",
    tip: "End the engine now, without a checkpoint: it was asked to stop and has not.",
    states: ["loading", "running", "paused"],
    stop: true,
    forced: true,
  },
  {
    event: "stop_run",
    label: "Remove from queue",
    tip: "The run will not start. Its settings stay in Runs.",
    states: ["queued"],
  },
  {
    event: "resume_run",
    label: "Resume",
    tip: "Go on with this run.",
    states: ["interrupted", "stopped", "failed"],
    primary: true,
  },
];
const WORKING = {
  checkpoint_run: "Saving…",
  pause_run: "Pausing…",
  continue_run: "Continuing…",
  stop_run: "Stopping…",
  force_stop_run: "Ending…",
  resume_run: "Resuming…",
};
const PENDING_LIMIT = 8000;

export class Header {
  constructor(act) {
    this.act = act;
    this.pending = null;
    this.name = el("h2", { class: "rs-name" });
    this.stateWord = el("span", {});
    this.state = el("span", { class: "rs-state" }, el("i", { "aria-hidden": "true" }), this.stateWord);
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
        "aria-label": "Progress",
      },
      this.bar,
    );
    this.times = el("span", { class: "rs-times", "data-term": "time/left" });
    this.device = el("span", { class: "rs-run-device" });
    this.phase = el("span", { class: "rs-phase" });
    this.buttons = BUTTONS.map((spec) => {
      const kind = spec.primary ? "rs-primary" : spec.stop ? "rs-stop" : "";
      const node = el(
        "button",
        {
          type: "button",
          class: `rs-button rs-small ${kind}`,
          "data-event": spec.event,
          "data-tip": spec.tip,
          onclick: () => this.press(spec),
        },
        spec.label,
      );
      return { ...spec, node };
    });
    this.controls = el(
      "div",
      { class: "rs-controls", role: "group", "aria-label": "Run controls" },
      this.buttons.map((button) => button.node),
    );
    this.viewer = el("span", { class: "rs-viewer" });
    this.node = el(
      "header",
      { class: "rs-head" },
      el("div", { class: "rs-head-main" }, this.name, this.state, this.live, this.device),
      el("div", { class: "rs-head-progress" }, this.stepText, this.progress, this.times, this.phase, this.kept),
      el("div", { class: "rs-head-controls" }, this.viewer, this.controls),
    );
  }

  whyNot(sentence) {
    setText(this.viewer, sentence);
  }

  async press(spec) {
    if (this.pending || (spec.event === "stop_run" && this.status.stop_asked)) return;
    if (spec.forced && !(await forceStop(this.node, this.status.name || this.status.run))) return;
    this.pending = {
      event: spec.event,
      label: spec.label,
      until: Infinity,
      state: this.status.state,
      checkpoints: this.status.checkpoints.length,
    };
    const pending = this.pending;
    Promise.resolve(this.act(spec.event)).then((sent) => {
      if (sent !== false)
        pending.until = Date.now() + PENDING_LIMIT; // from now: a person may have taken long to answer
      else if (this.pending === pending) this.pending = null;
      this.setButtons();
    });
    this.setButtons();
  }

  /** Whether the asked-for change has happened, or has taken so long that the button should come back. */
  settle() {
    if (!this.pending) return;
    const { event, until, state, checkpoints } = this.pending;
    const saved = event === "checkpoint_run" && this.status.checkpoints.length !== checkpoints;
    const stopping = event === "stop_run" && this.status.stop_asked; // from now on the status itself shows it
    if (saved || stopping || this.status.state !== state || Date.now() > until) this.pending = null;
  }

  setButtons() {
    show(this.controls, this.operator);
    show(this.viewer, !this.operator);
    for (const button of this.buttons) {
      show(button.node, button.states.includes(this.status.state) && (!button.forced || this.status.may_force_stop));
      const mine = this.pending?.event === button.event && this.pending.label === button.label;
      const stopping = button.event === "stop_run" && this.status.stop_asked;
      setText(button.node, mine || stopping ? WORKING[button.event] : button.label);
      button.node.setAttribute("aria-disabled", String(Boolean(this.pending || stopping)));
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
    setText(this.kept, keptLine(status));
    show(this.kept, status.recorded > status.step && !starting);
    const share = status.state === "loading" ? status.fraction : status.total ? status.step / status.total : null;
    show(this.progress, status.state !== "queued");
    this.progress.classList.toggle("rs-unknown", share === null && isAlive(status.state));
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
    // Before the first step: since the start, loading included. From the first step on: the training time.
    if (elapsed !== null) parts.push(`${duration(elapsed)} ${status.worked === null ? "since the start" : "elapsed"}`);
    if (status.state === "running" && status.step_seconds !== null && status.silent === null && !status.stop_asked) {
      const left = status.step_seconds * (status.total - status.step) - Math.min(since, status.step_seconds);
      parts.push(`about ${duration(left)} left`);
    }
    setText(this.times, parts.join(", "));
  }
}

/** What lies behind the present step since a resume from an earlier one. */
function keptLine(status) {
  const steps =
    status.recorded === status.step + 1
      ? `Step ${status.recorded} is`
      : `Steps ${status.step + 1} to ${status.recorded} are`;
  return `${steps} from before the resume: kept, but not shown, until played again.`;
}

function phaseOf(status) {
  if (status.state === "loading") {
    const share = status.fraction === null ? "" : ` ${percent(status.fraction, 0)}`;
    return `${status.phase || "Starting the engine"}${share}`;
  }
  if (status.state === "running" && status.step === 0)
    return `Step 1 is under way${status.phase ? `: ${lower(status.phase)}` : ""}`;
  return status.state === "running" ? status.phase : "";
}

/** What the banner says: {tone, title, lines, rows} or null. */
export function bannerOf(status, operator) {
  const saved = status.checkpoints.at(-1);
  const how = operator ? [whatResumeDoes(status, saved)] : [];
  switch (status.state) {
    case "queued":
      return {
        tone: "queued",
        title:
          status.queue_position > 1
            ? `Waiting: number ${status.queue_position} in the queue`
            : "Waiting: next in the queue",
        lines: ["One run works at a time. This one starts by itself when those before it have ended."],
      };
    case "failed":
      return {
        tone: "failed",
        title: "The run failed",
        lines: [status.cause || "The engine gave no cause; its log is below.", ...how],
      };
    case "interrupted":
      return {
        tone: "interrupted",
        title: `Interrupted after step ${status.step} of ${status.total}`,
        lines: [status.cause || "The engine ended without saying why.", ...how],
      };
    case "stopped":
      return {
        tone: "finished",
        title: `Stopped on request after step ${status.step} of ${status.total}`,
        lines: how,
        rows: status.summary,
      };
    case "finished":
      return { tone: "finished", title: "Finished", lines: [finishedLine(status)], rows: status.summary };
    default:
      return silentBanner(status, operator);
  }
}

/** An engine that does not answer, and what can be done about it; null while it does. */
function silentBanner({ silent, stop_asked: asked, may_force_stop: force }, operator) {
  if (silent === null && !force) return null;
  const title =
    silent === null
      ? "The engine was asked to stop and works on"
      : `The engine has been silent for ${duration(silent)}`;
  const held = "It still holds its run; it may be waiting for the disk or for memory.";
  const way = force
    ? "Force stop ends it now, without a checkpoint."
    : asked
      ? "It was asked to stop; Force stop is offered if it does not."
      : "If this goes on, stop it; the run can be resumed.";
  return { tone: "paused", title, lines: operator ? [`${held} ${way}`] : [held] };
}

/** One sentence that is true whether there is a checkpoint or not. */
function whatResumeDoes({ step }, saved) {
  if (!saved)
    return step
      ? "No checkpoint was written: Resume can only begin again at step 1, and asks first."
      : "Resume begins at step 1.";
  const from = `Resume goes on from the checkpoint of step ${saved.step} (${bytes(saved.bytes)})`;
  if (saved.step >= step) return `${from}.`;
  const again = saved.step + 1 === step ? `step ${step}` : `steps ${saved.step + 1} to ${step}`;
  return `${from} and trains ${again} again.`;
}

function finishedLine(status) {
  const saved = status.checkpoints.at(-1);
  const took = status.worked !== null ? `${status.total} steps in ${duration(status.worked)}` : `${status.total} steps`;
  return saved ? `${took}. The model is saved as checkpoint ${saved.step} (${bytes(saved.bytes)}).` : `${took}.`;
}

export class Banner {
  /** @param go  what its links do: `vary` opens the form with this run's settings, `runs` the list of runs */
  constructor(go) {
    this.go = go;
    this.node = el("div", { class: "rs-banner", hidden: true });
    this.problem = el("p", { role: "alert" });
    this.shown = "";
  }

  update(content) {
    const text = JSON.stringify(content);
    if (text === this.shown) return;
    this.shown = text;
    show(this.node, Boolean(content));
    if (!content) return;
    this.node.dataset.tone = content.tone;
    this.node.setAttribute("role", content.tone === "failed" ? "alert" : "status");
    const rows = (content.rows || []).map((row) =>
      el(
        "li",
        { "data-term": row.name },
        el("span", {}, term(row.name).title),
        el("b", {}, `${number(row.from)} → ${number(row.to)}`),
        el("em", {}, signed(row.to - row.from)),
      ),
    );
    const next = content.tone === "finished";
    fill(
      this.node,
      el("strong", {}, content.title),
      (content.lines || []).map((line) => el("p", {}, line)),
      rows.length
        ? el("ul", { class: "rs-summary", "aria-label": "Mean of the first and of the last tenth of the steps" }, rows)
        : null,
      next
        ? el(
            "p",
            {},
            "What next: compare the answers below, ",
            this.link("vary", "start a variation"),
            " or ",
            this.link("runs", "see all runs"),
            ".",
          )
        : null,
      this.problem,
    );
    this.say("");
  }

  /** Say why a link could not do its work; an empty text says nothing. */
  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }

  link(way, label) {
    return el("button", { type: "button", class: "rs-link", onclick: () => this.go[way]() }, label);
  }
}

/** "Connection lost" with the time of the last news and of the next try. */
export class LostBar {
  constructor(retry) {
    this.text = el("span", { role: "alert" });
    this.wait = el("span", { class: "rs-lost-wait" });
    this.node = el(
      "div",
      { class: "rs-lost", hidden: true },
      el("i", { "aria-hidden": "true" }),
      this.text,
      this.wait,
      el("button", { type: "button", class: "rs-button rs-small", onclick: retry }, "Try now"),
    );
  }

  update(lost) {
    show(this.node, Boolean(lost));
    if (!lost) return setText(this.text, "");
    setText(
      this.text,
      `Connection to the app lost. What you see is from ${clock(lost.since / 1000)}; the run itself goes on.`,
    );
    const wait = lost.retryAt ? Math.ceil((lost.retryAt - Date.now()) / 1000) : 0;
    return setText(this.wait, wait > 0 ? `Trying again in ${wait} s` : "Trying again…");
  }
}
