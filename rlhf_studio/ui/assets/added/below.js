// Questions and answers that people have added: read below a lesson, and added, answered and deleted there.
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { language, t } from "../shared/language.js";
import { onlyWatches, whyNot } from "../shared/visit.js";

/** @type {Intl.DateTimeFormatOptions} */
const DAY = { day: "numeric", month: "long", year: "numeric" };

const dayOf = (seconds) => new Date(1000 * seconds).toLocaleDateString(language(), DAY);

/** What an entry says of itself. */
function originOf({ answer, role, at }) {
  const values = { day: dayOf(at) };
  if (!answer) return t("Asked on {day} by a student. Only you see it: it waits for an answer.", values);
  if (role === "student") return t("Asked by a student, answered on {day}.", values);
  return role === "teacher" ? t("Added on {day} by a teacher.", values) : t("Added on {day} by an operator.", values);
}

let count = 0;

/** A field with its label; `lines` for a text of several. */
function field(label, lines, longest, value = "") {
  const id = `rs-added-${(count += 1)}`;
  const of = { id, class: "rs-input", maxlength: longest, required: true };
  const input = lines
    ? el("textarea", { ...of, rows: lines })
    : el("input", { ...of, type: "text", autocomplete: "off" });
  input.value = value;
  return { input, node: el("div", {}, el("label", { for: id, class: "rs-label" }, label), input) };
}

export class Added {
  /**
   * @param node    what holds them
   * @param place   a lesson or station; empty for all
   * @param server  the functions of the page
   * @param titles  of the places, where all are shown
   */
  constructor(node, place, server, titles = null) {
    this.node = node;
    this.place = place;
    this.server = server;
    this.titles = titles;
    this.said = el("p", { class: "rs-muted", role: "status" });
  }

  async look() {
    const found = await this.server
      .added_here({ place: this.place, view: onlyWatches() })
      .catch((error) => ({ error: whyNot(error) }));
    this.draw(found);
  }

  draw({ entries = [], change = false, ask = false, waits = false, longest = null, error = "" }) {
    if (error) setText(this.said, error);
    const own = change && this.place ? this.adding(longest) : ask ? this.asking(longest, waits) : null;
    const heading = this.titles ? null : el("h3", {}, t("Questions and answers"));
    fill(
      this.node,
      heading,
      entries.map((entry) => this.entry(entry, change, longest)),
      own,
      this.said,
    );
    show(this.node, Boolean(entries.length || own || error || this.titles));
  }

  /** Have the server do something, and show what is there then. */
  async tell(name, data, done = "", undo = null) {
    const reply = await this.server[name]({ ...data, view: onlyWatches() }).catch((error) => ({
      problem: whyNot(error),
    }));
    if (reply.problem) {
      fill(this.said, reply.problem);
      return reply;
    }
    await this.look();
    fill(this.said, done, undo ? " " : null, undo);
    return reply;
  }

  entry(entry, change, longest) {
    const waits = !entry.answer;
    const tools = change ? el("div", { class: "rs-wrap" }, this.buttons(entry, longest)) : null;
    return el(
      "article",
      { class: "rs-learn-added-entry" },
      this.titles ? el("p", { class: "rs-muted" }, this.titles.get(entry.place) || entry.place) : null,
      el("h4", {}, entry.question),
      waits ? null : el("p", { class: "rs-learn-added-answer" }, entry.answer),
      el("p", { class: "rs-muted" }, originOf(entry)),
      tools,
    );
  }

  buttons(entry, longest) {
    const undo = () => this.tell("added_change", { op: "restore", id: entry.id }, t("It is back."));
    const remove = () =>
      this.tell("added_change", { op: "delete", id: entry.id }, t("Deleted."), pushButton("rs-link", t("Undo"), undo));
    const form = (event) => {
      const tools = event.currentTarget.parentElement;
      const written = this.form(longest, entry, (data) =>
        this.tell("added_change", { op: "answer", id: entry.id, ...data }, t("Kept.")),
      );
      tools.replaceWith(written);
      written.querySelector("textarea").focus();
    };
    return [
      pushButton("rs-button rs-small", entry.answer ? t("Word it anew") : t("Answer it"), form),
      pushButton("rs-quiet", t("Delete"), remove),
    ];
  }

  form(longest, { question = "", answer = "" }, send) {
    const [asked, said] = [
      field(t("Question"), 0, longest.question, question),
      field(t("Answer"), 4, longest.answer, answer),
    ];
    const submit = (event) => {
      event.preventDefault();
      send({ question: asked.input.value, answer: said.input.value });
    };
    const button = el("button", { type: "submit", class: "rs-button rs-small rs-primary" }, t("Keep"));
    return el("form", { class: "rs-learn-added-form", onsubmit: submit }, asked.node, said.node, el("div", {}, button));
  }

  adding(longest) {
    const send = (data) => this.tell("added_change", { op: "add", place: this.place, ...data }, t("Added."));
    return el("details", {}, el("summary", {}, t("Add a question and its answer")), this.form(longest, {}, send));
  }

  /** A student asks the teacher. */
  asking(longest, waits) {
    if (waits)
      return el(
        "p",
        { class: "rs-muted" },
        t("Your question waits for your teacher. When it is answered, it stands here."),
      );
    const asked = field(t("Your question about this lesson"), 0, longest.question);
    const submit = (event) => {
      event.preventDefault();
      this.tell("added_ask", { place: this.place, question: asked.input.value });
    };
    const button = el("button", { type: "submit", class: "rs-button rs-small" }, t("Ask your teacher"));
    const form = el("form", { class: "rs-learn-added-form", onsubmit: submit }, asked.node, el("div", {}, button));
    return el("details", {}, el("summary", {}, t("Ask a question")), form);
  }
}
