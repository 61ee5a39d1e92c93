// What stands in the place of numbers: while a run starts, and when there is no run to show.
import { el, fill, show } from "../shared/dom.js";
import { isAlive } from "./header.js";
import { firstStep } from "./stage.js";

/** In place of the charts while there is nothing to draw. */
export class Waiting {
  constructor() {
    this.node = el("section", { class: "rs-waiting", hidden: true });
  }

  update(status, none, settings) {
    const coming = none && isAlive(status.state);
    show(this.node, coming);
    if (!coming) return;
    const running = status.state === "running";
    const title = running ? "The first step is under way" : status.phase || "Starting the engine";
    const text = running
      ? firstStep(status.stage, settings?.batch_size)
      : "Models are being read. Large ones take a while the first time, later starts are quicker.";
    if (this.node.dataset.text === title) return;
    this.node.dataset.text = title;
    fill(
      this.node,
      el("div", { class: "rs-spinner", "aria-hidden": "true" }),
      el("strong", {}, title),
      el("p", {}, text),
    );
  }
}

/** The whole page when there is no run to show. */
export class Empty {
  /** @param trigger  sends an event to the server */
  constructor(trigger) {
    this.trigger = trigger;
    this.node = el("section", { class: "rs-empty", hidden: true });
  }

  /** There is no run at all yet: what to do. */
  none() {
    show(this.node, true);
    if (this.node.dataset.kind === "none") return;
    this.node.dataset.kind = "none";
    const steps = [
      "Open Train. The tiny world is chosen already; it needs no download and takes about a minute.",
      "Press Start run.",
      "Watch here: curves rise, tokens colour, answers change.",
    ];
    const list = el(
      "ol",
      {},
      steps.map((text) => el("li", {}, text)),
    );
    fill(this.node, el("h2", {}, "No run yet"), list, this.button("Open Train", "open_train", "rs-primary"));
  }

  say(title, text) {
    show(this.node, true);
    this.node.dataset.kind = title;
    fill(this.node, el("h2", {}, title), el("p", {}, text), this.button("See all runs", "open_runs", ""));
  }

  button(label, event, look) {
    return el(
      "button",
      { type: "button", class: `rs-button rs-small ${look}`, onclick: () => this.trigger(event, {}) },
      label,
    );
  }
}
