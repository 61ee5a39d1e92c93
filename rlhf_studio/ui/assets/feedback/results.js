// What a task has found: agreement, how each annotator leans, and where people disagree. For operators.
import { saveText } from "../shared/take.js";
import { answerCard, sideBySide } from "../shared/answers.js";
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted, integer, NONE, number, percent, readable } from "../shared/format.js";
import { handRecipe } from "../shared/handover.js";
import { figure, numberHead, table } from "../shared/table.js";
import { NO_ANSWER } from "../shared/visit.js";
import { ALPHA } from "./tasks.js";

const WORDS = {
  chosen: "one is better",
  tie: "equally good",
  both_bad: "both bad",
  ranks: "in order",
  skip: "skipped",
};

export class Results {
  constructor(server, { leave, openTrain }) {
    this.server = server;
    this.openTrain = openTrain;
    this.task = null;
    this.known = "";
    this.title = el("h3", {});
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.body = el("div", { class: "rs-results-body" });
    const small = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    this.train = pushButton("rs-button rs-small rs-primary", "Train a reward model on these", () => this.trainOn());
    this.node = el(
      "section",
      { class: "rs-results", hidden: true },
      el(
        "div",
        { class: "rs-results-head rs-flow" },
        pushButton("rs-quiet", "\u2190 All tasks", leave),
        this.title,
        el(
          "div",
          { class: "rs-rate-buttons rs-wrap" },
          small("Export each answer", () => this.take("each")),
          small("Export what most said", () => this.take("agreed")),
          this.train,
        ),
      ),
      this.problem,
      this.body,
    );
  }

  say(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }

  async show(task) {
    const known = `${task.id} ${task.progress.votes} ${task.progress.items}`;
    if (known === this.known) return;
    this.known = known;
    this.task = task;
    setText(this.title, readable(task.name, 200));
    const reply = await this.server.results({ task: task.id }).catch(() => ({ problem: NO_ANSWER }));
    if (this.task !== task) return;
    this.say(reply.problem || "");
    if (reply.problem) this.known = "";
    else this.draw(reply);
  }

  async take(rows) {
    const reply = await this.server.export({ task: this.task.id, rows }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem || "");
    if (reply.problem) return;
    saveText(reply.lines, reply.name, "application/jsonl");
  }

  /** The answers become a file of the app's machine, and the Train page's form is filled with it. */
  async trainOn() {
    this.train.disabled = true;
    const reply = await this.server.train_on({ task: this.task.id }).catch(() => ({ problem: NO_ANSWER }));
    this.train.disabled = false;
    this.say(reply.problem || "");
    if (reply.problem) return;
    handRecipe(reply.recipe, reply.values);
    this.openTrain();
  }

  draw({ agreement, verdicts, people, disagreements }) {
    const { progress } = this.task;
    show(this.train, progress.votes > 0);
    const order = Object.keys(WORDS);
    const answers = Object.entries(verdicts)
      .sort(([one], [other]) => order.indexOf(one) - order.indexOf(other) || one.localeCompare(other))
      .map(([word, count]) => `${WORDS[word] || word}: ${integer(count)}`);
    fill(
      this.body,
      el(
        "p",
        {},
        `${integer(progress.done)} of ${counted(progress.items, "item")} complete, `,
        counted(progress.votes, "answer"),
        answers.length ? ` (${answers.join(", ")}).` : ".",
      ),
      progress.votes
        ? [agreementOf(agreement), peopleOf(people, this.task.kind), disagreementsOf(disagreements)]
        : waiting(),
    );
  }
}

const waiting = () =>
  el(
    "p",
    { class: "rs-message" },
    "No answers yet. Open the task with Start, or send the rating link to your annotators.",
  );

function tile(title, value, help) {
  return el(
    "div",
    { class: "rs-agreed-one rs-box" },
    el("span", { class: "rs-help" }, title),
    el("b", {}, value === null ? NONE : number(value)),
    el("span", { class: "rs-help" }, help),
  );
}

function agreementOf({ items, alpha, level, fleiss, fleiss_items: fleissItems, same, cohen }) {
  if (!items)
    return el(
      "section",
      {},
      el("h4", {}, "Agreement"),
      el("p", { class: "rs-help" }, "It can be computed once two people have answered the same item."),
    );
  const pairs = cohen.map(({ people, kappa, items: count }) => [
    readable(people[0], 40),
    readable(people[1], 40),
    figure(kappa === null ? NONE : number(kappa)),
    figure(integer(count)),
  ]);
  return el(
    "section",
    {},
    el("h4", {}, "Agreement"),
    el(
      "div",
      { class: "rs-agreed" },
      tile("Krippendorff's alpha", alpha, `${counted(items, "comparison")}, ${level}`),
      tile("Fleiss' kappa", fleiss, counted(fleissItems, "comparison")),
      cohen.length === 1 ? tile("Cohen's kappa", cohen[0].kappa, counted(cohen[0].items, "comparison")) : null,
      el(
        "div",
        { class: "rs-agreed-one rs-box" },
        el("span", { class: "rs-help" }, "All said the same"),
        el("b", {}, percent(same, 0)),
        el("span", { class: "rs-help" }, "chance not taken off"),
      ),
    ),
    el("p", { class: "rs-help" }, ALPHA),
    cohen.length > 1
      ? el(
          "details",
          {},
          el("summary", {}, "Cohen's kappa of each two"),
          sideways(["Annotator", "Annotator", "Kappa", "Comparisons"], pairs, 2),
        )
      : null,
  );
}

const sideways = (heads, rows, numbersFrom) =>
  el(
    "div",
    { class: "rs-sideways" },
    table(
      heads.map((title, place) => (place < numbersFrom ? title : numberHead(title))),
      rows,
    ),
  );

/** A share with its interval; one that chance does not explain is marked by a word, not by colour alone. */
function lean({ share, count, interval, leans }) {
  if (share === null) return NONE;
  const range = `${percent(interval[0], 0)} to ${percent(interval[1], 0)}`;
  return el(
    "span",
    { title: `${counted(count, "choice")}; 95 % interval ${range}` },
    percent(share, 0),
    leans ? el("em", {}, " leans") : "",
  );
}

function peopleOf(people, kind) {
  const compares = kind === "pair";
  const rows = people.map((person) => [
    readable(person.name, 40),
    ...[
      integer(person.votes),
      integer(person.skips),
      person.seconds === null ? NONE : `${number(person.seconds, 1)} s`,
      ...(compares ? [integer(person.ties), lean(person.first), lean(person.longer)] : []),
      ...(kind === "rating" ? [person.rating === null ? NONE : number(person.rating)] : []),
      person.rounds ? integer(person.rounds) : NONE,
    ].map((value) => figure(value)),
  ]);
  const heads = ["Annotator", "Answers", "Skipped", "Usual time"];
  if (compares) heads.push("Ties", "Chose the left", "Chose the longer");
  if (kind === "rating") heads.push("Mean rating");
  return el(
    "section",
    {},
    el("h4", {}, "Annotators"),
    sideways([...heads, "Rounds"], rows, 1),
    compares
      ? el(
          "p",
          { class: "rs-help" },
          "Places are drawn at random, so a fair annotator chooses the left one half of the time. Leans: more than " +
            "chance explains. " +
            "To choose the longer one more often can be a bias, or longer responses are better here.",
        )
      : null,
  );
}

function disagreementsOf(found) {
  if (!found.length) return null;
  return el(
    "section",
    {},
    el("h4", {}, "Where people disagree most"),
    found.map((item) =>
      el(
        "details",
        { class: "rs-disagreement" },
        el("summary", {}, `${item.number}. ${readable(item.prompt || item.responses[0], 120)}`),
        el(
          "p",
          { class: "rs-help" },
          item.said.map((one) => `${readable(one.name, 40)}: ${wordOf(one)}`).join(" \u00b7 "),
        ),
        sideBySide(
          item.responses.map((text, place) => {
            const name = item.responses.length > 1 ? `Response ${place + 1} ` : "Response ";
            const source = el("small", {}, readable(item.sources[place] || "", 80));
            return answerCard([name, source], readable(text, 4000));
          }),
        ),
      ),
    ),
  );
}

function wordOf({ verdict, value }) {
  if (verdict === "chosen") return `response ${value + 1}`;
  if (verdict === "rating") return String(value);
  if (verdict === "ranks") return value.join(" ");
  return WORDS[verdict];
}
