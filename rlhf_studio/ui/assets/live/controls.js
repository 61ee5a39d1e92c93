// The buttons that steer a run: plain ones, menus of related ones, and the question that changes settings.
import { forceStop, form } from "../shared/dialogs.js";
import { el, elEach, keepInside, setText, show } from "../shared/dom.js";
import { neverBegan } from "../shared/format.js";
import { nodeByArrow } from "../shared/segments.js";
import { t } from "../shared/language.js";

const ONGOING = ["running", "paused"];
const ONLY_PPO = new Set(["set_run", "phase_run"]); // other stages have no phases, and keep their settings
const ALIVE = ["loading", ...ONGOING];
const BUTTONS = [
  {
    event: "checkpoint_run",
    label: t("Checkpoint"),
    tip: t("Save the model and everything needed to resume, without stopping."),
    theirs: t("Ask the trainer to save after its present step."),
    states: ONGOING,
  },
  {
    event: "set_run",
    label: t("Change settings"),
    tip: t("Change a few settings while the run goes on."),
    states: ONGOING,
  },
  {
    label: t("Pause"),
    states: ["running"],
    menu: [
      { event: "pause_run", label: t("Pause"), tip: t("Wait after the present step; nothing is lost.") },
      { event: "step_run", label: t("One update"), tip: t("Train one more step, then wait.") },
      {
        event: "phase_run",
        label: t("Next phase"),
        tip: t("Go on to the end of the next phase of a step, then wait there."),
      },
    ],
  },
  {
    event: "step_run",
    label: t("One update"),
    tip: t("Train to the end of the next step, then wait again."),
    states: ["paused"],
  },
  {
    event: "phase_run",
    label: t("Next phase"),
    tip: t("Go on to the end of the next phase, then wait there."),
    states: ["paused"],
  },
  { event: "continue_run", label: t("Continue"), tip: t("Go on without stopping."), states: ["paused"], primary: true },
  {
    event: "discard_run",
    label: t("Stop following"),
    tip: t("Read this log no further. What was read stays, and the training that writes it goes on."),
    states: ALIVE,
    stop: true,
    log: true,
  },
  {
    label: t("Stop"),
    states: ALIVE,
    stop: true,
    log: false,
    menu: [
      {
        event: "stop_run",
        label: t("Stop and save"),
        tip: t(
          "Save and end. A short step is finished first; a long one may be dropped, and Resume trains it again. A " +
            "run that still loads ends at once.",
        ),
        theirs: t("Ask the trainer to save and end after its present step."),
      },
      {
        event: "discard_run",
        label: t("Stop without saving"),
        tip: t("End without saving: after this step, or inside a long one. Resume goes on from the last checkpoint."),
        theirs: t("Ask the trainer to end after its present step."),
      },
      {
        event: "force_stop_run",
        label: t("Force stop"),
        tip: t("End the engine now, without a checkpoint: it was asked to stop and has not."),
        forced: true,
      },
    ],
  },
  {
    event: "stop_run",
    label: t("Remove from queue"),
    tip: t("The run will not start. Its settings stay in Runs."),
    states: ["queued"],
  },
  {
    event: "resume_run",
    label: t("Resume"),
    tip: t("Go on with this run."),
    states: ["interrupted", "stopped", "failed"],
    primary: true,
  },
];
const WORKING = {
  checkpoint_run: t("Saving…"),
  set_run: t("Changing…"),
  pause_run: t("Pausing…"),
  step_run: t("One update…"),
  phase_run: t("Next phase…"),
  continue_run: t("Continuing…"),
  stop_run: t("Stopping…"),
  discard_run: t("Stopping…"),
  force_stop_run: t("Ending…"),
  resume_run: t("Resuming…"),
};
// What can be asked of another trainer, whose run is only recorded here.
const PASSED_ON = { checkpoint_run: ["checkpoint"], stop_run: ["stop", "checkpoint"], discard_run: ["stop"] };
const PENDING_LIMIT = 8000;

/** A button that opens a list of related ones. */
class Menu {
  constructor(spec, button, onpick) {
    this.button = button;
    this.items = spec.menu.map((item) => {
      const node = el(
        "button",
        {
          type: "button",
          role: "menuitem",
          tabindex: "-1",
          class: "rs-menu-item",
          "data-event": item.event,
          onclick: () => {
            this.close(true);
            onpick(item);
          },
          onkeydown: (event) => nodeByArrow(event, this.open)?.focus(),
        },
        el("strong", {}, item.label),
        el("span", {}, item.tip),
      );
      return { ...item, node };
    });
    this.list = elEach(
      "div",
      { class: "rs-menu rs-box", role: "menu", "aria-label": spec.label, hidden: true },
      this.items,
      (item) => item.node,
    );
    this.node = el("div", { class: "rs-menu-box" }, button, this.list);
    button.setAttribute("aria-haspopup", "menu");
    button.setAttribute("aria-expanded", "false");
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.list.hidden) return;
      event.stopPropagation();
      this.close(true);
    });
    this.node.addEventListener("focusout", (event) => {
      if (!this.node.contains(event.relatedTarget)) this.close(false);
    });
  }

  get open() {
    return this.items.map((item) => item.node).filter((node) => !node.hidden);
  }

  toggle() {
    if (!this.list.hidden) return this.close(true);
    show(this.list, true);
    keepInside(this.list);
    this.button.setAttribute("aria-expanded", "true");
    return this.open[0]?.focus();
  }

  close(focus) {
    if (this.list.hidden) return;
    show(this.list, false);
    this.button.setAttribute("aria-expanded", "false");
    if (focus) this.button.focus();
  }
}

export class Controls {
  /**
   * @param act      sends an event with more data; gives false when the person went back
   * @param steered  the settings that can be changed while a run goes on: [{name, title, help, minimum ...}]
   */
  constructor(act, steered) {
    this.act = act;
    this.steered = steered;
    this.pending = null;
    this.buttons = BUTTONS.map((spec) => this.make(spec));
    this.node = elEach(
      "div",
      { class: "rs-controls rs-wrap", role: "group", "aria-label": t("Run controls") },
      this.buttons,
      (button) => button.menu?.node || button.node,
    );
  }

  make(spec) {
    const node = el(
      "button",
      {
        type: "button",
        class: spec.stop ? "rs-button rs-small rs-stop" : "rs-button rs-small",
        "data-event": spec.event,
        "data-tip": spec.menu ? null : spec.tip,
        onclick: () =>
          made.menu ? node.getAttribute("aria-disabled") !== "true" && made.menu.toggle() : this.press(spec),
      },
      spec.label,
    );
    const made = { ...spec, node };
    if (spec.menu) {
      made.menu = new Menu(spec, node, (item) => this.press(item));
      node.append(el("span", { class: "rs-caret", "aria-hidden": "true" }, "▾"));
    }
    return made;
  }

  async press(spec) {
    const stopping = spec.event === "stop_run" || spec.event === "discard_run";
    if (this.pending || (stopping && this.status.stop_asked)) return;
    if (spec.forced && !(await forceStop(this.node, this.status.name || this.status.run))) return;
    let more = {};
    if (spec.event === "set_run") {
      const changes = await changeSettings(this.node, this.steered, this.settings?.steered || {});
      if (!changes) return;
      more = { changes };
    }
    const { state, step, phase } = this.status;
    const pending = { event: spec.event, until: Infinity, at: `${state} ${step} ${phase}` };
    this.pending = { ...pending, state, checkpoints: this.status.checkpoints.length };
    const mine = this.pending;
    Promise.resolve(this.act(spec.event, more)).then((sent) => {
      // Changed settings are planned as soon as they are sent: no status shows them before the next step.
      if (sent !== false && spec.event !== "set_run")
        mine.until = Date.now() + PENDING_LIMIT; // from now: a person may have taken long to answer
      else if (this.pending === mine) this.pending = null;
      this.draw();
    });
    this.draw();
  }

  /** Whether the asked-for change has happened, or has taken so long that the button should come back. */
  settle() {
    if (!this.pending) return;
    const { event, until, state, at, checkpoints } = this.pending;
    const { status } = this;
    const saved = event === "checkpoint_run" && status.checkpoints.length !== checkpoints;
    const stopping = ["stop_run", "discard_run"].includes(event) && status.stop_asked; // the status itself shows it now
    const stepped =
      ["step_run", "phase_run"].includes(event) && at !== `${status.state} ${status.step} ${status.phase}`;
    if (saved || stopping || stepped || status.state !== state || Date.now() > until) this.pending = null;
  }

  draw() {
    const { status } = this;
    const passed = (event) => PASSED_ON[event]?.every((control) => status.controls.includes(control));
    const gone = (event) =>
      (status.stage !== "ppo" && ONLY_PPO.has(event)) ||
      (status.controls && !passed(event)) ||
      (event === "resume_run" && status.only_read);
    show(this.node, this.operator);
    const isLog = status.kind === "log"; // one that is followed: there is nothing to save, and nobody to ask
    for (const { node, menu, states, label, event, primary, theirs, log } of this.buttons) {
      // first mend what failed, or collapsed
      const broken = status.state === "failed" || status.verdict === "collapsed";
      node.classList.toggle("rs-primary", Boolean(primary) && !broken);
      const events = menu ? menu.items.map((item) => item.event) : [event];
      const own = log === undefined || log === isLog;
      show(menu?.node || node, own && states.includes(status.state) && !events.every(gone));
      for (const item of menu?.items || []) {
        show(item.node, (!item.forced || status.may_force_stop) && !gone(item.event));
        if (status.controls && item.theirs) setText(item.node.lastChild, item.theirs);
      }
      if (status.controls && theirs) node.dataset.tip = theirs;
      const asked = (events.includes("stop_run") || log) && status.stop_asked;
      const busy = asked ? "stop_run" : events.find((own) => own === this.pending?.event);
      const usual = event === "resume_run" && neverBegan(status) ? t("Start again") : label;
      setText(node.firstChild, busy ? WORKING[busy] : usual);
      node.setAttribute("aria-disabled", String(Boolean(this.pending || (asked && !status.may_force_stop))));
    }
  }

  update(status, operator, settings) {
    this.status = status;
    this.operator = operator;
    this.settings = settings;
    this.settle();
    this.draw();
  }
}

/** Ask for new values of the settings that may change while a run goes on; resolves to those that differ, or null. */
function changeSettings(host, steered, now) {
  const offered = steered.filter((spec) => spec.name in now);
  const inputs = offered.map((spec) =>
    el("input", {
      class: "rs-input",
      type: "number",
      step: "any",
      required: true,
      min: spec.minimum ?? null,
      max: spec.maximum ?? null,
      value: String(now[spec.name]),
      id: `rs-set-${spec.name}`,
      "aria-describedby": `rs-set-help-${spec.name}`,
    }),
  );
  const rows = offered.map((spec, index) =>
    el(
      "div",
      {},
      el("label", { class: "rs-label", for: `rs-set-${spec.name}` }, spec.title),
      inputs[index],
      el("p", { class: "rs-help", id: `rs-set-help-${spec.name}` }, spec.help),
    ),
  );
  const lead = t("They count from the next step on. Each change is recorded, and is a mark on every chart.");
  const submit = async () => {
    const changed = offered.flatMap(({ name }, index) =>
      Number(inputs[index].value) === now[name] ? [] : [[name, Number(inputs[index].value)]],
    );
    return changed.length
      ? Object.fromEntries(changed)
      : { problem: t("Nothing differs yet. Change a value, or go back.") };
  };
  const title = t("Change settings while the run goes on");
  return form(host, { title, body: [el("p", {}, lead), ...rows], confirm: t("Change"), submit, first: inputs[0] });
}
