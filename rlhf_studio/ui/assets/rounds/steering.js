// What the teacher does with a round: close it, show what was answered, run what answers it, show what is right.
import { address } from "../shared/address.js";
import { el, elEach, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { t } from "../shared/language.js";
import { REST } from "../shared/poll.js";
import { table } from "../shared/table.js";
import { Once, onlyWatches, whyNot } from "../shared/visit.js";

const LOOK = 3000; // milliseconds between two looks at the run
const NEXT = {
  open: ["close", t("Close the round")],
  closed: ["show", t("Show what the class answered")],
  shown: ["reveal", t("Show what is right")],
  revealed: ["over", t("Put it away")],
};
const STATES = {
  queued: t("waits for a run before it"),
  loading: t("is loading"),
  running: t("is at work"),
  paused: "pauses",
  failed: t("has failed"),
};

export class Steering {
  /** @param atStake  gives a sentence where putting the round away must be confirmed, else an empty text */
  constructor(server, view, poll, atStake) {
    this.server = server;
    this.view = view;
    this.poll = poll;
    this.news = poll.add({ ask: () => this.askForRun(), receive: (told) => this.receive(told), asleep: true });
    this.atStake = atStake;
    this.once = new Once();
    /** @type {(() => void) | null} called when the round has changed */
    this.moved = null;
    this.next = el("button", { type: "button", class: "rs-button rs-primary", onclick: () => this.go() });
    this.away = pushButton("rs-button", t("Put it away"), () => this.putAway());
    this.again = pushButton("rs-button", t("Open it again"), () => this.steer("open"));
    this.start = el(
      "button",
      { type: "button", class: "rs-button", hidden: true, onclick: () => this.begin() },
      t("Start the runs"),
    );
    this.open = el(
      "button",
      { type: "button", class: "rs-button", hidden: true, onclick: () => this.openRun() },
      t("Open the run"),
    );
    this.choice = el("select", { class: "rs-input", "aria-label": t("The run that answers"), hidden: true });
    this.choice.addEventListener("change", () => this.choice.value && this.setRun("run", { run: this.choice.value }));
    this.run = el("span", { class: "rs-class-run", role: "status" });
    this.said = el("p", { class: "rs-problem", role: "status" });
    this.names = el("div", {});
    this.details = el("details", {}, el("summary", {}, t("Answers one by one")), this.names);
    this.details.addEventListener("toggle", () => this.relist());
    this.node = el(
      "div",
      { class: "rs-class-steering" },
      this.offered(view),
      el(
        "div",
        { class: "rs-class-buttons" },
        this.start,
        this.next,
        this.again,
        this.open,
        this.choice,
        this.run,
        this.away,
      ),
      this.said,
      this.details,
    );
    this.take(view);
  }

  /** Another round is shown. */
  end() {
    this.poll.remove(this.news);
  }

  /** What students choose from, for who reads it on the wall. */
  offered({ kind, question }) {
    this.offer =
      kind === "curve"
        ? el(
            "p",
            { class: "rs-class-offer rs-wrap" },
            t("{label}, from step {first} to step {last}", {
              label: question.label,
              first: question.first,
              last: question.last,
            }),
          )
        : elEach("ul", { class: "rs-class-offer rs-wrap" }, question.options, (option) => el("li", {}, option));
    return this.offer;
  }

  take(view) {
    this.view = view;
    show(this.offer, !view.results);
    setText(this.next, this.step[1]);
    show(this.again, view.state === "closed");
    show(this.away, this.step[0] !== "over");
    this.sure(false);
    this.weigh();
    if (this.mayChange) this.news.wake();
  }

  /** What comes next stands out: where nobody knows what is right before the runs have begun, that is to start them. */
  weigh() {
    const runsFirst = !this.start.hidden && ["shown", "revealed"].includes(this.view.state);
    this.start.classList.toggle("rs-primary", runsFirst);
    this.next.classList.toggle("rs-primary", !runsFirst);
  }

  sure(on) {
    this.isSure = on;
    setText(this.away, on ? t("Put it away now") : t("Put it away"));
  }

  /** A round that is being answered is put away with the second click. */
  async putAway() {
    const open = this.atStake();
    if (this.isSure || !open) return this.steer("over");
    this.sure(true);
    setText(this.said, t("{open} Click again to put it away. “Earlier rounds” can show it again.", { open }));
    return undefined;
  }

  /** What comes next: [what the server is asked, the button's words]. What nobody knows to be right is not shown. */
  get step() {
    const { state, settles } = this.view;
    return NEXT[state === "shown" && !settles ? "revealed" : state];
  }

  send(op, more = {}) {
    return this.server.class_steer({ op, round: this.view.id, view: onlyWatches(), ...more });
  }

  async ask(op, more) {
    const told = await this.send(op, more).catch((error) => ({ problem: whyNot(error) }));
    setText(this.said, told.problem || "");
    return told;
  }

  go() {
    return this.steer(this.step[0]);
  }

  async steer(op) {
    await this.ask(op);
    this.moved?.();
  }

  begin() {
    return this.once.ask({ round: this.view.id }, (sent) => this.setRun("start", sent));
  }

  async setRun(op, more) {
    const told = await this.ask(op, more);
    if (!told.problem || "run" in told) this.tell(told);
    this.moved?.();
    return told;
  }

  tell({ run, name, state, step, steps, startable, runs, ended }) {
    this.runId = run;
    this.ended = ended && !startable;
    show(this.start, Boolean(startable));
    this.weigh();
    show(this.open, Boolean(run));
    const how = STATES[state] || t("has ended");
    const seen = this.view.state === "open" && step > 0 ? t(" Who opens Live or Runs sees it already.") : "";
    setText(
      this.run,
      run ? t("The run “{name}” {how}, at step {step} of {steps}.{seen}", { name, how, step, steps, seen }) : "",
    );
    if (!runs) return;
    const known = [...this.choice.options].slice(1).map((option) => option.value);
    show(this.choice, runs.length > 0);
    if (known.join() === runs.map((one) => one.run).join()) return;
    const options = runs.map((one) => el("option", { value: one.run }, `${one.name}, ${counted(one.steps, "step")}`));
    fill(this.choice, el("option", { value: "" }, t("Choose the run that answers")), options);
    this.choice.value = run || "";
  }

  /** Whether there may be news of the run that answers. */
  get mayChange() {
    const answers = this.view.kind === "curve" || this.view.question.experiment;
    return Boolean(answers) && !(this.ended && this.view.state === "revealed");
  }

  askForRun() {
    return this.send("look").catch((error) => {
      setText(this.said, whyNot(error));
      throw error;
    });
  }

  receive(told) {
    setText(this.said, told.problem || "");
    if (!told.problem || "run" in told) this.tell(told);
    return this.mayChange ? LOOK : REST;
  }

  openRun() {
    const { experiment, seed } = this.view.question;
    if (experiment && this.view.state === "revealed")
      address.lead("learn", { place: "break", show: experiment, seed: `${seed}` });
    else address.lead("live", { run: this.runId });
  }

  /** The answers one by one, as they are now, where they are looked at. */
  relist() {
    if (this.details.open) this.list();
  }

  async list() {
    const told = await this.ask("answers");
    const rows = (told.answers || []).map(({ name, said, changes }) => [
      name || t("no name"),
      said || t("a curve"),
      changes ? t("changed {changes}", { changes: counted(changes, "time") }) : "",
    ]);
    fill(this.names, rows.length ? table([], rows) : el("p", { class: "rs-help" }, t("Nobody has answered yet.")));
  }
}
