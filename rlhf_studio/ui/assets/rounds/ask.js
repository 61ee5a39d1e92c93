// The teacher's dialog for a question: ready ones, one's own, and the rounds there were.
import { t } from "../shared/language.js";
import { saveText } from "../shared/take.js";
import { address } from "../shared/address.js";
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { table } from "../shared/table.js";
import { onlyWatches, whyNot } from "../shared/visit.js";
import { OwnQuestion } from "./own.js";

const KINDS = [
  { value: "experiments", label: t("Break it") },
  { value: "lessons", label: t("Lessons") },
  { value: "own", label: t("Your own") },
  { value: "rounds", label: t("Earlier rounds") },
];
const MOST_SEED = 999;

export class AskDialog {
  /**
   * @param ready  (experiments, metrics, runs, rounds); the lessons' questions are fetched when they are wanted
   * @param around (card: of the round that there is, drafts: an object in which what was typed outlives the dialog,
   *               asked: called when a round has begun)
   */
  constructor(ready, server, { card, drafts, asked }) {
    this.ready = ready;
    this.server = server;
    this.card = card;
    this.drafts = drafts;
    this.asked = asked;
    this.wanted = null;
    this.tabs = new Segments({ "aria-label": t("Which questions") }, KINDS, "experiments", (kind) => this.choose(kind));
    this.body = el("div", { class: "rs-class-ask-body" });
    this.own = new OwnQuestion(ready, drafts.own);
    this.seed = el("input", { class: "rs-input", type: "number", min: 0, max: MOST_SEED, value: 0 });
    this.seeds = el("label", { class: "rs-class-seed" }, t("Seed of the runs "), this.seed);
    this.status = el("p", { class: "rs-problem", role: "status" });
    this.send = pushButton("rs-button rs-primary", t("Ask the class"), () => this.ask());
    const close = pushButton("rs-button", t("Close"), () => this.node.close());
    this.node = el(
      "dialog",
      { class: "rs-dialog rs-class-ask", "aria-labelledby": "rs-class-ask-title" },
      el("h2", { id: "rs-class-ask-title" }, t("Ask the class")),
      this.tabs.node,
      this.body,
      this.seeds,
      this.status,
      el("div", { class: "rs-dialog-buttons" }, close, this.send),
    );
    this.node.addEventListener("close", () => this.leave());
    this.choose(drafts.kind || "experiments");
  }

  /** What was typed and not asked is there again when the dialog is opened next. */
  leave() {
    const typed = this.kind === "own" && this.own.text.value.trim();
    Object.assign(this.drafts, { kind: typed ? "own" : "", own: this.own.values });
    this.node.remove();
  }

  choose(kind) {
    this.kind = kind;
    this.tabs.show(kind);
    this.wanted = null;
    this.sure(false);
    setText(this.status, "");
    show(this.send, kind !== "rounds");
    show(this.seeds, kind === "experiments");
    this.send.disabled = kind !== "own";
    if (kind === "own") fill(this.body, this.own.node);
    else if (kind === "rounds") this.earlier();
    else if (kind === "lessons" && !this.ready.lessons) this.readLessons();
    else this.groups(this.ready[kind]);
  }

  async readLessons() {
    fill(this.body, el("p", { class: "rs-help" }, t("Reading the lessons")));
    const told = await this.server.class_ready({ what: "lessons" }).catch((error) => ({ problem: whyNot(error) }));
    Object.assign(this.ready, told.problem ? {} : told);
    if (this.kind !== "lessons") return;
    setText(this.status, told.problem || "");
    if (told.lessons) this.groups(told.lessons);
  }

  groups(groups) {
    const names = groups.map(({ group }, place) => el("option", { value: place }, group));
    const choice = el("select", { class: "rs-input", "aria-label": t("Questions of") }, names);
    const list = el("div", { class: "rs-class-ready", role: "group", "aria-label": t("Questions") });
    const draw = () => {
      this.wanted = null;
      this.send.disabled = true;
      const buttons = groups[Number(choice.value)].questions.map(({ ask, text }) =>
        el(
          "button",
          { type: "button", class: "rs-class-choice", "aria-pressed": "false", onclick: (event) => pick(event, ask) },
          text,
        ),
      );
      fill(list, buttons);
    };
    const pick = ({ currentTarget }, ask) => {
      this.wanted = ask;
      this.send.disabled = false;
      for (const button of list.children) button.setAttribute("aria-pressed", String(button === currentTarget));
    };
    choice.addEventListener("change", draw);
    fill(this.body, choice, list);
    draw();
  }

  sure(on) {
    this.isSure = on;
    setText(this.send, on ? t("Put it away and ask") : t("Ask the class"));
  }

  /** A round that is being answered is replaced with the second click. */
  async ask() {
    const open = this.card.atStake;
    if (open && !this.isSure) {
      this.sure(true);
      setText(
        this.status,
        t("{open} Asking something else puts it away. “Earlier rounds” can show it again.", { open }),
      );
      return;
    }
    const question = this.kind === "own" ? this.own.question : this.wanted;
    const seed = this.kind === "experiments" ? { seed: Number(this.seed.value) } : {};
    this.send.disabled = true;
    setText(this.status, "");
    const sent = { ...question, ...seed, view: onlyWatches() };
    const told = await this.server.class_ask(sent).catch((error) => ({ problem: whyNot(error) }));
    this.send.disabled = false;
    setText(this.status, told.problem || "");
    if (told.problem) return;
    if (this.kind === "own") this.own = new OwnQuestion(this.ready);
    this.node.close();
    this.asked();
    if (told.lesson) address.lead("learn", { lesson: told.lesson, scene: told.scene });
  }

  // --- earlier rounds ---

  earlier() {
    const { rounds } = this.ready;
    if (!rounds.length) return fill(this.body, el("p", { class: "rs-help" }, t("There were no rounds yet.")));
    const day = (at) => new Date(1000 * at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
    const rows = rounds.map((one) => [
      [one.text, el("div", { class: "rs-help" }, `${day(one.at)}, ${counted(one.n, "answer")}`)],
      el(
        "td",
        { class: "rs-class-files" },
        this.action(t("Show again"), () => this.showAgain(one)),
        this.action("CSV", () => this.save(one, true)),
        this.action(t("JSON Lines"), () => this.save(one, false)),
        this.action(t("Delete"), (button) => this.remove(one, button)),
      ),
    ]);
    return fill(this.body, table([], rows));
  }

  action(words, act) {
    return pushButton("rs-button rs-small", words, (event) => act(event.currentTarget));
  }

  async steer(op, one, more = {}) {
    const sent = { op, round: one.id, view: onlyWatches(), ...more };
    const told = await this.server.class_steer(sent).catch((error) => ({ problem: whyNot(error) }));
    setText(this.status, told.problem || "");
    return told;
  }

  /** What was answered is shown again above everybody's page, and what is right can be shown after it. */
  async showAgain(one) {
    const told = await this.steer("again", one);
    if (told.problem) return;
    this.node.close();
    this.asked();
  }

  async save(one, table) {
    const told = await this.steer("file", one, { table });
    if (told.problem) return;
    saveText(told.text, told.name, table ? "text/csv" : "application/jsonl");
  }

  async remove(one, button) {
    if (button.dataset.sure !== "yes") {
      button.dataset.sure = "yes";
      setText(button, t("Delete it now"));
      return;
    }
    const told = await this.steer("delete", one);
    if (told.problem) return;
    this.ready.rounds = this.ready.rounds.filter((other) => other !== one);
    this.earlier();
    this.asked();
  }
}
