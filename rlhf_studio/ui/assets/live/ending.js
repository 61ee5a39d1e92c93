// What there is to do when a run is over. No button for what this app does not have.
import { ask } from "../shared/dialogs.js";
import { el, memory } from "../shared/dom.js";

export class Ending {
  /**
   * @param host      where questions are asked
   * @param trigger   sends an event to the server: (name, data)
   * @param run       gives {run, name, state, total, checkpoints} of the run that is shown
   * @param vary      opens the form with the run's settings; true marks the setting that made it fail
   * @param takeHome  opens the dialog that exports a run: ({run, name})
   */
  constructor({ host, trigger, run, vary, takeHome }) {
    Object.assign(this, { host, trigger, run, vary, takeHome });
  }

  /** The row of buttons for a banner of this tone; null when there is nothing to do. */
  buttons(tone, operator) {
    const failed = tone === "failed";
    if (!failed && tone !== "finished") return null;
    const saved = this.run().checkpoints.length > 0; // without one there is no policy to talk to
    const some = !failed &&
      saved && [
        this.button("Talk to it", () => this.send("open_talk"), true),
        this.button("Take it home", () => this.takeHome(this.run()), false),
      ];
    const list = [
      failed && operator && this.button("Fix settings", () => this.vary(true), true),
      ...(some || []),
      !failed && this.button("Run a variation", () => this.vary(false), false),
      this.button("Compare", () => this.compare(), false),
      this.run().state === "finished" && operator && this.button("Go on with more steps", () => this.goOn(), false),
    ].filter(Boolean);
    return el("div", { class: "rs-ending", role: "group", "aria-label": "What next" }, list);
  }

  button(label, act, primary) {
    return el(
      "button",
      { type: "button", class: primary ? "rs-button rs-small rs-primary" : "rs-button rs-small", onclick: act },
      label,
    );
  }

  send(event) {
    this.trigger(event, { run: this.run().run });
  }

  /** Open the list of runs with this one ticked. */
  compare() {
    const { run } = this.run();
    memory.set("compare", [run]);
    window.dispatchEvent(new CustomEvent("rlhf-studio:compare", { detail: [run] }));
    this.send("open_compare");
  }

  async goOn() {
    const { run, total } = this.run();
    const steps = await ask(this.host, {
      title: "How many more steps?",
      text: `The run has ${total}. It goes on from its last checkpoint, with the same settings.`,
      confirm: "Go on",
      input: { label: "Steps to add", value: String(total), maxlength: 7 },
    });
    if (steps === null) return;
    this.trigger("go_on_run", { run, steps: /^\d+$/.test(steps.trim()) ? Number(steps) : steps });
  }
}
