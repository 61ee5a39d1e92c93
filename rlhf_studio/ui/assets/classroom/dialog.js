// The teacher's dialog: the class link with its code, what students may do, the own link, and the end of the class.
import { each, el, fill, pushButton, setText, show, svg } from "../shared/dom.js";
import { clock, counted, readable } from "../shared/format.js";
import { t } from "../shared/language.js";
import { whyNot } from "../shared/visit.js";

const BORDER = 4; // that cameras need

export class ClassDialog {
  /**
   * @param answer   the class as the server has it
   * @param tell     sends a change; gives the class anew
   * @param lead     begins to lead the class, or stops
   * @param changed  called when what pages show may have changed
   */
  constructor(answer, tell, lead, changed) {
    this.tell = tell;
    this.changed = changed;
    this.link = el("code", { class: "rs-class-link", tabindex: "0" });
    this.picture = el("div", {});
    this.own = el("code", { class: "rs-class-link", tabindex: "0" });
    this.status = el("p", { class: "rs-help", role: "status" });
    this.switches = el(
      "div",
      {},
      this.lead(answer.leads, lead),
      this.check("runs", answer.runs, t("Students may start small runs of their own")),
      this.check("names", answer.names, t("Students may type a name; turning this off removes the names")),
      this.tryIt(),
    );
    this.places = el("input", { type: "number", class: "rs-input", min: "1", max: String(answer.most_places) });
    this.places.addEventListener("change", () => this.do({ places: Number(this.places.value) }));
    this.came = el("summary", {});
    this.list = el("details", { ontoggle: () => this.list.open && this.list.scrollIntoView({ block: "start" }) });
    this.students = el("ol", { class: "rs-class-students" });
    this.told = el("p", {});
    this.renew = el("button", { type: "button", class: "rs-button", onclick: () => this.replace() });
    this.end = el("button", { type: "button", class: "rs-button rs-class-end", onclick: () => this.finish() });
    const close = el("button", { type: "button", class: "rs-button rs-primary" }, t("Close"));
    close.addEventListener("click", () => this.node.close());
    this.node = el(
      "dialog",
      { class: "rs-dialog rs-class", "aria-labelledby": "rs-class-title" },
      el("h2", { id: "rs-class-title" }, t("Your class")),
      this.told,
      this.picture,
      el("p", {}, this.link),
      this.switches,
      this.whoCame(),
      this.teachersLink(),
      this.status,
      el("div", { class: "rs-dialog-buttons" }, this.end, this.renew, close),
    );
    this.node.addEventListener("close", () => this.node.remove());
    this.draw(answer);
  }

  check(name, on, words) {
    const box = el("input", { type: "checkbox", checked: on });
    box.addEventListener("change", () => this.do({ [name]: box.checked }));
    return el("label", {}, box, ` ${words}`);
  }

  /** Students ask a run's policies on their Talk page: which run, and how many ask. */
  tryIt() {
    const tell = () => this.do({ talk: this.tries.checked ? this.talkRun.value : "" });
    this.tries = el("input", { type: "checkbox", onchange: tell });
    this.talkRun = el("select", {
      class: "rs-input",
      "aria-label": t("The run that students ask"),
      onchange: () => this.tries.checked && tell(),
    });
    this.asks = el("p", { class: "rs-help" });
    const label = el("label", {}, this.tries, t(" Students may try it: ask a model short questions on Talk"));
    return el("div", { class: "rs-class-tries" }, label, this.talkRun, this.asks);
  }

  drawTries({ talk, talk_runs: runs, asking, asked }) {
    const chosen = talk || this.talkRun.value;
    const gone = talk && !runs.some(({ id }) => id === talk) ? [{ id: talk, name: t("a run that is gone") }] : [];
    each(this.talkRun, [...runs, ...gone], ({ id, name }) => el("option", { value: id }, readable(name, 60)));
    this.talkRun.value = [...runs, ...gone].some(({ id }) => id === chosen) ? chosen : (runs[0]?.id ?? "");
    this.tries.checked = Boolean(talk);
    this.tries.disabled = !runs.length && !talk;
    show(this.talkRun, !this.tries.disabled);
    const count = t("{asked} so far, {asking} in line now.", {
      asked: counted(asked, "question"),
      asking: asking || t("none"),
    });
    const none = t("This is possible once a run has written a checkpoint.");
    setText(
      this.asks,
      this.tries.disabled ? none : talk ? t("{count} Your own questions and training go first.", { count }) : "",
    );
  }

  lead(on, action) {
    const box = el("input", { type: "checkbox", checked: on });
    const failed = (error) => setText(this.status, whyNot(error));
    box.addEventListener("change", () => action(box.checked).catch(failed));
    return el(
      "label",
      {},
      box,
      t(" Lead the class: who follows sees the page that you see, and the token you point at"),
    );
  }

  button(words, change, said) {
    return pushButton("rs-button rs-small", words, () => this.do(change, said));
  }

  /** How many places there are, and who has come. */
  whoCame() {
    const help = t(
      "Those who open the link first have the places. Later ones watch, until you raise the number or " +
        "strike somebody. Who is struck loses the place and all answers.",
    );
    const label = el("label", { class: "rs-class-places" }, t("Places for students "), this.places);
    fill(this.list, this.came, el("p", { class: "rs-help" }, help), this.students);
    this.room = el("div", {}, label, this.list);
    return this.room;
  }

  drawStudents(students, places) {
    this.places.value = String(places);
    const late = students.filter((student) => student.late).length;
    const more = late ? t("; {late} without a place", { late: counted(late, "student") }) : "";
    setText(
      this.came,
      t("{length} of {places} taken{more}", { length: students.length - late, places: counted(places, "place"), more }),
    );
    const rows = students.map(({ id, name, at, late }) => {
      const who = t("{name}, came at {at}{late}", {
        name: name || t("no name"),
        at: clock(at),
        late: late ? t(", no place") : "",
      });
      return el(
        "li",
        {},
        el("span", {}, who),
        this.striking(t("Strike"), id, t("{name} is struck.", { name: name || t("The student") })),
      );
    });
    const all = this.striking(t("Strike all without a place"), "late", t("They are struck."));
    fill(this.students, rows, late > 1 ? el("li", {}, all) : null);
  }

  /** A button that takes a student out of the class, at its second click. */
  striking(words, strike, said) {
    const button = el("button", { type: "button", class: "rs-button rs-small", "data-words": words }, words);
    const lost = t("Who is struck loses the place and all answers. Click again.");
    button.addEventListener("click", () => this.isSure(button, t("Strike now"), lost) && this.do({ strike }, said));
    return button;
  }

  /** Somebody has come, or has a place now; a button that was clicked once is not moved away. */
  async refresh(look) {
    const answer = await look().catch((error) => console.error(error));
    if (answer && !answer.problem && !this.sure) this.draw(answer);
  }

  /** Out of sight until it is opened: who has it is the teacher. */
  teachersLink() {
    const renew = this.button(
      t("New teacher's link"),
      { teacher: true },
      t("The old teacher's link has ended. This page has the new one."),
    );
    return el(
      "details",
      { class: "rs-class-own-link" },
      el("summary", {}, t("Your own link, for another device")),
      el("p", { class: "rs-help" }, t("Who opens it may do everything. Do not show it on the projector.")),
      el("p", {}, this.own),
      renew,
    );
  }

  replace() {
    if (this.over) return this.do({ renew: true }, t("A new class has begun. Students need this link."));
    const lost = t("The old link ends at once: every student must open the new one. Click again to make it.");
    if (!this.isSure(this.renew, t("Make a new link now"), lost)) return undefined;
    return this.do({ renew: true }, t("The old link has ended. Students need this link."));
  }

  finish() {
    const names = this.named ? t("with the names that students typed") : t("without names");
    const kept = t("Their answers stay in “Earlier rounds”, {names}.", { names });
    const lost = t("The link ends for all students. {kept} Click again to end the class.", { kept });
    if (!this.isSure(this.end, t("End it now"), lost)) return undefined;
    return this.do({ end: true }, t("The answers are in “Earlier rounds”, below “Ask the class”."));
  }

  /** Whether a button was clicked twice; after the first click it says what follows from the second. */
  isSure(button, words, lost) {
    if (this.sure === button) return true;
    this.calm();
    this.sure = button;
    button.classList.add("rs-danger");
    setText(button, words);
    setText(this.status, lost);
    return false;
  }

  /** Nothing is about to be lost. */
  calm() {
    if (this.sure?.dataset.words) setText(this.sure, this.sure.dataset.words);
    this.sure?.classList.remove("rs-danger");
    this.sure = null;
    for (const button of [this.end, this.renew]) button.classList.remove("rs-danger");
    setText(this.end, t("End the class"));
    setText(this.renew, this.over ? t("Begin a new class") : t("New link"));
  }

  async do(change, said = "") {
    const answer = await this.tell(change).catch((error) => (console.error(error), { problem: whyNot(error) }));
    setText(this.status, answer.problem || said);
    if (answer.problem) return;
    // so that this browser keeps the new token
    if (change.teacher) await fetch(new URL(answer.teacher).search, { redirect: "manual" });
    this.draw(answer);
    this.changed();
  }

  draw(answer) {
    const { link, code, teacher, ended, names, students, places, only_here: onlyHere } = answer;
    this.over = ended;
    this.named = names;
    this.calm();
    const join = onlyHere
      ? t("Only this machine can reach this link. For students, start the app with --classroom and no --host.")
      : t("Students open this link, or point a phone at the code. They need no account.");
    setText(this.told, ended ? t("The class has ended: its link admits nobody any more.") : join);
    setText(this.link, link);
    setText(this.own, teacher);
    for (const node of [this.picture, this.switches, this.room, this.end]) show(node, !ended);
    if (!ended) fill(this.picture, picture(code));
    this.drawStudents(students, places);
    this.drawTries(answer);
  }
}

/** A QR code from its rows of 1 and 0. */
function picture(code) {
  const size = code.length + 2 * BORDER;
  const square = (x, y) => `M${x + BORDER} ${y + BORDER}h1v1h-1z`;
  const dark = code.flatMap((row, y) => [...row].flatMap((one, x) => (one === "1" ? square(x, y) : [])));
  const look = {
    class: "rs-class-code",
    viewBox: `0 0 ${size} ${size}`,
    role: "img",
    "aria-label": t("The link as a QR code"),
  };
  return svg("svg", look, svg("path", { d: dark.join("") }));
}
