// The dialog "Send or save": the report and other records, weights as a zip or on the hub; what was made, to download.
import { each, el, fill, labelled, pushButton, setText, show } from "../shared/dom.js";
import { bytes } from "../shared/format.js";
import { REST } from "../shared/poll.js";
import { NO_ANSWER, onlyWatches } from "../shared/visit.js";
import { t, tp } from "../shared/language.js";

const WORKING = 700; // milliseconds between two looks at what is being made
const KINDS = { adapter: t("Adapter"), merged: t("Whole model") };
const FIRST = "html"; // what most people look for who want to send a result to somebody
const RECORDS = [
  ["html", t("Report"), t("To send to somebody: the whole story in one file, which opens without a network.")],
  ["replay", t("Replay"), t("To send as well: the run played back, in one file.")],
  ["csv", t("Metrics (CSV)"), t("One row for each step, for spreadsheets.")],
  ["jsonl", t("All data (JSON Lines)"), t("Metrics and responses with every token's numbers; opens again as a run.")],
];

/**
 * One for each page. `host` is where the dialog lives, so that it has the page's styles; `server` has the functions
 * export_look, export_start and export_cancel; `api` is what mount() is given; `poll` is the page's.
 */
export class TakeHome {
  constructor({ host, server, api, poll }) {
    this.host = host;
    this.server = server;
    this.api = api;
    this.poll = poll;
  }

  /** Open the dialog for a run {run, name}. Resolves when it is closed. */
  open(run) {
    this.run = run;
    this.key = null;
    this.build();
    this.host.append(this.dialog);
    this.dialog.showModal();
    this.news = this.poll.add({ ask: () => this.call("export_look", {}), receive: (answer) => this.receive(answer) });
    this.news.wake();
    return new Promise((resolve) => {
      this.dialog.addEventListener("close", () => {
        this.poll.remove(this.news);
        this.dialog.remove();
        resolve();
      });
    });
  }

  build() {
    this.step = el("select", { class: "rs-input", id: "rs-take-step" });
    this.kind = el("select", { class: "rs-input", id: "rs-take-kind" });
    this.make = pushButton("rs-button", t("Make zip"), () => this.weights(""));
    this.name = el("input", {
      class: "rs-input",
      id: "rs-take-name",
      type: "text",
      maxlength: 200,
      placeholder: "owner/name",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.public = el("input", { type: "checkbox", id: "rs-take-public" });
    this.pushButton = pushButton("rs-button", t("Push to the hub"), () => this.weights(this.name.value.trim()));
    this.push = el(
      "details",
      { class: "rs-take-push" },
      el("summary", {}, t("Push to the Hugging Face hub")),
      el("label", { class: "rs-label", for: "rs-take-name" }, t("Name on the hub")),
      this.name,
      el("label", { class: "rs-take-check rs-middle", for: "rs-take-public" }, this.public, t("Everyone may see it")),
      el("p", { class: "rs-help" }, t("Private unless you tick this. The token of the app's environment is used.")),
      this.pushButton,
    );
    this.none = el("p", { class: "rs-help" }, t("This run has no checkpoint, so there are no weights to take."));
    this.choice = el(
      "div",
      {},
      el(
        "div",
        { class: "rs-take-choice" },
        labelled(t("Checkpoint"), this.step),
        labelled(tp("weights", "As"), this.kind),
        this.make,
      ),
      el("p", { class: "rs-help" }, t("With tokenizer, generation settings and a model card filled from the run.")),
      this.push,
    );
    this.records = RECORDS.map(([what, title, help]) => ({
      what,
      button: pushButton(what === FIRST ? "rs-button rs-small rs-primary" : "rs-button rs-small", title, () =>
        this.start({ what }),
      ),
      help,
    }));
    this.making = el(
      "div",
      {},
      section(
        t("The result"),
        this.records.map(({ button, help }) =>
          el("div", { class: "rs-take-record" }, button, el("p", { class: "rs-help" }, help)),
        ),
      ),
      section(t("The model"), this.none, this.choice),
    );
    this.viewer = el("p", { class: "rs-help", hidden: true });
    this.bar = el("progress", { max: 1, "aria-label": t("Progress") });
    this.cancel = pushButton("rs-quiet", t("Stop"), () => this.stop());
    this.said = el("p", { class: "rs-take-said", role: "status" });
    this.working = el("div", { class: "rs-take-working rs-middle", hidden: true }, this.bar, this.cancel);
    this.problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    this.files = el("ul", { class: "rs-take-files" });
    this.drawn = "";
    this.ready = section(t("Ready to download"), this.files);
    const close = pushButton("rs-button", t("Close"), () => this.dialog.close());
    this.title = el("h2", { id: "rs-take-title", tabindex: "-1", autofocus: true }, t("Send or save"));
    this.dialog = el(
      "dialog",
      { class: "rs-dialog rs-take", "aria-labelledby": "rs-take-title" },
      this.title,
      el("p", { class: "rs-help rs-take-run" }, this.run.name),
      this.viewer,
      this.making,
      this.said,
      this.working,
      this.problem,
      this.ready,
      el("div", { class: "rs-dialog-buttons" }, close),
    );
  }

  /** Milliseconds until the next look: none once nothing is being made. */
  receive(answer) {
    this.tell(answer.problem);
    if (answer.files) this.draw(answer);
    const working = answer.job?.state === "working" || answer.busy;
    return working || !answer.files ? WORKING : REST;
  }

  call(name, data) {
    return this.server[name]({ run: this.run.run, view: onlyWatches(), ...data });
  }

  /** Ask for something a person waits for; says what is wrong. */
  async ask(name, data) {
    const answer = await this.call(name, data).catch(() => ({ problem: NO_ANSWER }));
    this.tell(answer.problem);
    return answer;
  }

  tell(problem) {
    setText(this.problem, problem || "");
    show(this.problem, Boolean(problem));
  }

  draw(answer) {
    setText(this.viewer, answer.why_not);
    show(this.viewer, !answer.operator);
    show(this.making, answer.operator);
    show(this.none, !answer.checkpoints.length);
    show(this.choice, answer.checkpoints.length > 0);
    show(this.push, answer.push);
    this.options(answer);
    show(this.ready, answer.files.length > 0 || !answer.operator);
    this.list(answer.files);
    this.job(answer);
  }

  /** What was made: drawn anew only when it changed, and then the link that had the focus gets it back. */
  list(files) {
    const drawn = JSON.stringify(files);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const had = this.files.contains(document.activeElement) ? document.activeElement.textContent : null;
    fill(
      this.files,
      files.map((file) => this.file(file)),
      files.length ? null : el("li", { class: "rs-help" }, t("Nothing was made yet.")),
    );
    if (had === null) return;
    const same = [...this.files.querySelectorAll("a")].find((link) => link.textContent === had);
    (same || this.title).focus();
  }

  /** The lists, filled once: a choice that was made stays. */
  options({ checkpoints, adapter, best }) {
    if (this.step.options.length) return;
    const option = (value, text) => el("option", { value }, text);
    const newest = checkpoints.at(-1)?.step;
    const others = checkpoints.filter(({ step }) => step !== newest).reverse();
    fill(
      this.step,
      option("", t("Newest (step {newest})", { newest })),
      best !== null && best !== newest ? option("best", t("Best score (step {best})", { best })) : null,
      others.map(({ step }) => option(String(step), t("Step {step}", { step }))),
    );
    each(this.kind, adapter ? ["adapter", "merged"] : ["merged"], (kind) => option(kind, KINDS[kind]));
  }

  job({ job, busy }) {
    const working = job?.state === "working" || busy;
    const had = document.activeElement;
    for (const button of [this.make, this.pushButton, ...this.records.map((record) => record.button)])
      button.disabled = working;
    show(this.working, Boolean(working));
    show(this.cancel, job?.state === "working");
    if (working && Number.isFinite(job?.fraction)) this.bar.value = job.fraction;
    else this.bar.removeAttribute("value");
    if (busy) setText(this.said, t("Another run's export is being made."));
    else if (working) setText(this.said, job.progress);
    else if (job && job.key === this.key) this.ended(job);
    else if (!this.key) setText(this.said, "");
    this.keepFocus(had);
  }

  /** What had the focus can be pressed no more: go on to Stop, and from there to what was made. */
  keepFocus(had) {
    if (!this.dialog.contains(had) || !(had.disabled || had.offsetParent === null)) return;
    const next = this.working.hidden || this.cancel.hidden ? this.files.querySelector("a") : this.cancel;
    (next || this.title).focus();
  }

  ended(job) {
    setText(
      this.said,
      job.state === "failed"
        ? ""
        : job.address
          ? t("Pushed to {address}", { address: job.address })
          : t("Done: your browser saves it."),
    );
    if (job.state === "failed") this.tell(job.error);
    else if (!job.address && this.saved !== job.key) this.save(job);
  }

  /** What was asked for is saved by the browser without another click, once; it stays in the list. */
  save({ key, files }) {
    this.saved = key;
    const made = [...this.files.querySelectorAll("a")].filter((link) => files.includes(link.dataset.file));
    if (made.length === 1) made[0].click();
    else setText(this.said, t("Done: it is below."));
  }

  file({ name, bytes: size }) {
    const address = new URL(`${this.api}/../exports/${this.run.run}/${name}`, location.href).href;
    return el(
      "li",
      {},
      el("a", { href: address, download: `${fileName(this.run.name)}-${name}`, data: { file: name } }, name),
      el("span", { class: "rs-help" }, bytes(size)),
    );
  }

  weights(push) {
    if (document.activeElement === this.pushButton && !push) {
      this.tell(t("Give the name that it shall have on the hub, such as owner/name."));
      this.name.focus();
      return;
    }
    const at = /^\d+$/.test(this.step.value) ? Number(this.step.value) : this.step.value;
    this.start({ what: this.kind.value, at, push, public: this.public.checked });
  }

  async start(wanted) {
    setText(this.said, t("Starting"));
    const answer = await this.ask("export_start", wanted);
    if (answer.problem) {
      setText(this.said, "");
      return;
    }
    this.key = answer.key;
    this.news.wake();
  }

  async stop() {
    await this.ask("export_cancel", {});
    this.news.wake();
  }
}

/** A run's name as the beginning of a file's name; the longest is short enough for every disk. */
const fileName = (name) =>
  name
    .replace(/[^\p{L}\p{N}._-]+/gu, "-")
    .replace(/^[.-]+|-+$/g, "")
    .slice(0, 60) || "run";

const section = (title, ...content) => el("section", { class: "rs-take-part" }, el("h3", {}, title), ...content);
