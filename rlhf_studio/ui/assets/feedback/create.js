// A new task: what is asked, and the rows that fill it: pasted, from a file of this computer, by a path on the app's
// machine, or from the answers of an evaluation.
import { el, fill, labelled, pushButton, setText, show } from "../shared/dom.js";
import { counted, toldApart } from "../shared/format.js";
import { t, tp } from "../shared/language.js";
import { NO_ANSWER, Once } from "../shared/visit.js";
import { Segments } from "../shared/segments.js";

const PART = 400000; // characters of rows in one request
const MOST_TOLD = 8; // rows that could not be used, told one by one
const LARGEST_FILE = 20000000; // bytes of a file that is read into the page
const EXAMPLES = {
  pair: [
    '{"prompt": "The film was", "responses": ["a joy.", "dull."]}',
    '{"prompt": "...", "chosen": "...", "rejected": "..."}',
  ].join("\n"),
  ranking: '{"prompt": "The film was", "responses": ["a joy.", "dull.", "long."]}',
  rating: '{"prompt": "The film was", "response": "a joy."}',
};

export class NewTask {
  constructor(server, { leave, made }) {
    this.server = server;
    this.made = made;
    this.once = new Once();
    this.busy = false;
    this.kind = "pair";
    this.begun = this.edited = "";
    this.name = field(t("Name"), { maxlength: "200", required: true });
    this.criterion = field(t("What is judged"), { maxlength: "200", placeholder: t("such as: helpful") });
    this.guidelines = area(
      t("Guidelines"),
      t("What makes a response better, and what to do in doubt. Annotators can open them at any time."),
      4,
    );
    this.warning = area(t("Content warning"), t("Shown before the first item. Leave it empty where none is due."), 2);
    this.people = field(t("Annotators for each item"), { type: "number", min: "1", max: "100", value: "1" });
    this.points = field(t("Highest rating"), { type: "number", min: "2", max: "9", value: "5" });
    this.known = field(t("First rows with a known answer"), { type: "number", min: "0", max: "1000", value: "0" });
    this.pass = field(t("Needed to pass, in percent"), { type: "number", min: "0", max: "100", value: "80" });
    const input = el("textarea", { class: "rs-input rs-area", id: "rs-task-rows", rows: "8", spellcheck: "false" });
    this.rows = { input };
    this.path = field(t("Or a path on the app's machine"), { placeholder: t("such as: /data/pairs.jsonl.gz") });
    this.evaluation = chooser(t("Or the answers of an evaluation"));
    this.file = el("input", {
      type: "file",
      accept: ".jsonl,.ndjson,.json,.txt",
      hidden: true,
      onchange: () => this.read(),
    });
    const kinds = [
      { value: "pair", label: t("Which of two is better") },
      { value: "ranking", label: t("Put in order") },
      { value: "rating", label: t("Rate each") },
    ];
    this.kinds = new Segments({ "aria-label": t("Kind of task") }, kinds, "pair", (kind) => this.setKind(kind), {
      radio: true,
      framed: true,
    });
    const orders = [
      { value: "random", label: t("At random") },
      { value: "uncertainty", label: t("Most uncertain first") },
    ];
    this.order = "random";
    this.orders = new Segments({ "aria-label": t("Order") }, orders, "random", (order) => (this.order = order), {
      radio: true,
      framed: true,
    });
    this.sure = el("input", { type: "checkbox", checked: true });
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.partly = el("div", { class: "rs-message rs-partly", role: "status", hidden: true });
    this.submit = el("button", { type: "submit", class: "rs-button rs-primary" });
    this.build(() => {
      this.begin("");
      leave();
    });
    this.begin("");
    this.setKind("pair");
  }

  build(leave) {
    this.title = el("h3", {}, t("New task"));
    const form = el(
      "form",
      { class: "rs-new-task", onsubmit: (event) => this.send(event) },
      this.title,
      (this.kindField = label(tp("a task", "What to do"), this.kinds.node)),
      this.name.node,
      this.criterion.node,
      this.guidelines.node,
      this.warning.node,
      el(
        "div",
        { class: "rs-fields rs-wrap" },
        this.people.node,
        this.points.node,
        label(t("Next item"), this.orders.node),
      ),
      el("label", { class: "rs-ask-sure rs-middle" }, this.sure, t(" Ask how sure they are")),
      el(
        "fieldset",
        { class: "rs-calibration" },
        el("legend", {}, t("Before an annotator begins")),
        el("div", { class: "rs-fields rs-wrap" }, this.known.node, this.pass.node),
        el(
          "p",
          { class: "rs-help" },
          t(
            "A round with known answers shows whether the guidelines are understood. Of the first rows, " +
              "chosen is what is expected. Any row may say it as answer instead (the number of the response " +
              "from 0, a list of ranks, or a rating), and explain it as why.",
          ),
        ),
      ),
      (this.source = el(
        "fieldset",
        { class: "rs-calibration" },
        el("legend", {}, t("What is rated")),
        el(
          "div",
          { class: "rs-task-rows-head rs-flow" },
          el("label", { class: "rs-label", for: "rs-task-rows" }, t("Rows (JSON Lines)")),
          this.file,
          pushButton("rs-button rs-small", t("Choose a file"), () => this.file.click()),
        ),
        this.rows.input,
        el("div", { class: "rs-fields rs-wrap" }, this.path.node, this.evaluation.node),
      )),
      this.problem,
      this.partly,
      el("div", { class: "rs-rate-buttons rs-wrap" }, this.submit, pushButton("rs-button", t("Go back"), leave)),
    );
    this.node = el("section", { class: "rs-feedback-new", hidden: true }, form);
  }

  update({ evaluations }) {
    const chosen = this.evaluation.input.value;
    const none = el("option", { value: "" }, evaluations.length ? t("None") : t("No evaluation has finished yet"));
    fill(
      this.evaluation.input,
      none,
      ...toldApart(evaluations).map(({ value, name }) => el("option", { value }, name)),
    );
    this.evaluation.input.value = evaluations.some(({ value }) => value === chosen) ? chosen : "";
    this.evaluation.input.disabled = !evaluations.length;
  }

  /** Change the settings of a task that is there; a new one where none is given. What is rated stays as it is. */
  edit(task) {
    const id = task?.id || "";
    if (id === this.edited) return;
    this.edited = id;
    this.begin("");
    this.say("");
    setText(this.title, task ? t("Settings of the task") : t("New task"));
    if (task) setText(this.submit, t("Save"));
    show(this.kindField, !task);
    show(this.source, !task);
    for (const name of ["name", "criterion", "guidelines", "warning"]) this[name].input.value = task?.[name] || "";
    this.people.input.value = task?.annotators || 1;
    this.points.input.value = task?.points || 5;
    this.pass.input.value = Math.round(100 * (task?.pass_mark ?? 0.8));
    this.order = task?.order || "random";
    this.orders.show(this.order);
    this.sure.checked = task?.ask_confidence ?? true;
    this.kind = task?.kind || "pair";
    this.kinds.show(this.kind);
    this.setKind(this.kind);
    if (task) show(this.known.node, false);
  }

  async save() {
    this.busy = this.submit.disabled = true;
    const asked = this.server.manage({ op: "change", task: this.edited, settings: this.settings });
    const reply = await asked.catch(() => ({ problem: NO_ANSWER }));
    this.busy = this.submit.disabled = false;
    if (reply.problem) return this.say(reply.problem);
    const { edited } = this;
    this.edited = null;
    return this.made(edited);
  }

  setKind(kind) {
    this.kind = kind;
    show(this.points.node, kind === "rating");
    show(this.known.node, kind === "pair");
    this.rows.input.placeholder = EXAMPLES[kind];
  }

  /** Which task the next rows go to: one that was made without some of its rows; empty for a new one. */
  begin(task) {
    this.begun = task;
    show(this.partly, Boolean(task));
    setText(this.submit, task ? t("Add the rows again") : t("Create task"));
    this.submit.classList.toggle("rs-primary", !task);
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
    if (text) this.problem.scrollIntoView({ block: "nearest" });
  }

  async read() {
    const [file] = this.file.files;
    if (!file) return;
    this.file.value = "";
    this.say("");
    if (file.size > LARGEST_FILE)
      return this.say(
        t("{name} has more than 20 MB. Put it on the app's machine and give its path.", { name: file.name }),
      );
    try {
      this.rows.input.value = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      return this.say(t("{name} is not UTF-8 text. Save it as UTF-8 and choose it again.", { name: file.name }));
    }
    if (!this.name.input.value) this.name.input.value = file.name.replace(/\.[^.]*$/, "");
    return undefined;
  }

  get settings() {
    return {
      kind: this.kind,
      name: this.name.input.value,
      criterion: this.criterion.input.value,
      guidelines: this.guidelines.input.value,
      warning: this.warning.input.value,
      annotators: Number(this.people.input.value),
      points: Number(this.points.input.value),
      pass_mark: Number(this.pass.input.value) / 100,
      order: this.order,
      ask_confidence: this.sure.checked,
    };
  }

  async send(event) {
    event.preventDefault();
    if (this.busy) return;
    if (this.edited) return this.save();
    // blank lines above the first row stay, so that problems name the lines as they stand here
    const text = this.rows.input.value.trimEnd();
    const path = this.path.input.value.trim();
    const run = this.evaluation.input.value;
    this.say("");
    const named = [text, path, run].filter(Boolean).length;
    if (!named) return this.say(t("Paste rows, choose a file, or name an evaluation: a task needs something to rate."));
    if (named > 1) return this.say(t("Rows, a path and an evaluation: use one of them."));
    this.busy = this.submit.disabled = true;
    try {
      await this.make(run ? [{ run }] : path ? [{ path }] : parts(text));
    } catch {
      this.say(NO_ANSWER);
    }
    this.busy = this.submit.disabled = false;
  }

  async make(sources) {
    const { task, problem } = this.begun
      ? await this.server.manage({ op: "change", task: this.begun, settings: this.settings })
      : await this.once.ask({ op: "create", settings: this.settings }, (sent) => this.server.manage(sent));
    if (problem) return this.say(problem);
    const calibration = this.kind === "pair" ? Number(this.known.input.value) : 0;
    const total = { added: 0, repeated: 0, problems: [] };
    for (const part of sources) {
      const reply = await this.server.add_items({ task, calibration, ...part });
      total.added += reply.added || 0;
      total.repeated += reply.repeated || 0;
      total.problems.push(...(reply.problems || [reply.problem]));
      if (reply.problem) break;
    }
    if (!total.added && !this.begun) {
      await this.server.manage({ op: "delete", task });
      return this.say(t("Nothing could be added. {join}", { join: total.problems.slice(0, 3).join(" ") }));
    }
    if (!total.problems.length && (this.begun || !total.repeated)) return this.finish(task);
    return this.tell(task, total);
  }

  /** Some rows could not be used: which, and the task as it is, or the rows once more. */
  tell(task, { added, repeated, problems }) {
    const known = repeated ? t(", {repeated} there already", { repeated: counted(repeated, "row") }) : "";
    const rest =
      problems.length > MOST_TOLD
        ? el("li", {}, t("And {length} more.", { length: problems.length - MOST_TOLD }))
        : null;
    fill(
      this.partly,
      el("p", {}, t("{added} added{known}.", { added: counted(added, "item"), known })),
      problems.length
        ? el(
            "ul",
            {},
            problems.slice(0, MOST_TOLD).map((text) => el("li", {}, text)),
            rest,
          )
        : null,
      pushButton("rs-button rs-small rs-primary", t("Open the task"), () => this.finish(task)),
    );
    this.begin(task);
    this.partly.scrollIntoView({ block: "nearest" });
  }

  finish(task) {
    for (const one of [this.name, this.criterion, this.guidelines, this.warning, this.rows, this.path, this.evaluation])
      one.input.value = "";
    this.say("");
    this.begin("");
    this.made(task);
  }
}

/** The rows in pieces that a request can hold, each with the number of its first line, and of the rows before it. */
function* parts(text) {
  let first = 1;
  let before = 0;
  let lines = [];
  let size = 0;
  for (const line of text.split(/\r?\n/)) {
    if (size + line.length > PART && lines.length) {
      const kept = together(lines, line);
      const sent = lines.slice(0, lines.length - kept.length);
      yield { lines: sent.join("\n"), first, before };
      first += sent.length;
      before += sent.filter((one) => one.trim()).length;
      [lines, size] = [kept, kept.reduce((sum, one) => sum + one.length + 1, 0)];
    }
    lines.push(line);
    size += line.length + 1;
  }
  yield { lines: lines.join("\n"), first, before };
}

/** The last lines that belong to the next one: completions of one prompt are put together in one request. */
function together(lines, next) {
  const prompt = prompted(next);
  let start = lines.length;
  while (prompt !== null && start > 0 && prompted(lines[start - 1]) === prompt) start -= 1;
  return start ? lines.slice(start) : [];
}

/** The prompt of a row with a single completion; null for any other line. */
function prompted(line) {
  try {
    const row = JSON.parse(line);
    return typeof row.prompt === "string" && "completion" in row ? row.prompt : null;
  } catch {
    return null;
  }
}

const label = (text, ...children) =>
  el("div", { class: "rs-labelled" }, el("span", { class: "rs-label" }, text), children);

function field(text, attributes) {
  const input = el("input", { class: "rs-input", type: "text", autocomplete: "off", ...attributes });
  return { input, node: labelled(text, input) };
}

function chooser(text) {
  const input = el("select", { class: "rs-input" });
  return { input, node: labelled(text, input) };
}

function area(text, help, rows) {
  const input = el("textarea", { class: "rs-input rs-area", rows: String(rows), spellcheck: "false" });
  return { input, node: labelled(text, input, help) };
}
