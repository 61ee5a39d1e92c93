// What a task has found: which was chosen, agreement, the round with known answers, how each annotator leans, and where
// people disagree. For operators.
import { shares } from "../pictures/shares.js";
import { colon, listing, t, tp } from "../shared/language.js";
import { saveText } from "../shared/take.js";
import { answerCard, sideBySide } from "../shared/answers.js";
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted, integer, NONE, number, ofOneRun, percent, policyName, readable } from "../shared/format.js";
import { handRecipe } from "../shared/handover.js";
import { figure, head, numberHead, rowHead, table } from "../shared/table.js";
import { NO_ANSWER } from "../shared/visit.js";

export const ALPHA = t(
  "Krippendorff\u2019s alpha is agreement beyond chance: 1 if all say the same, 0 if they guess. " +
    "0.8 and more is good; below 0.67, look at the guidelines and the disagreements.",
);
const WORDS = {
  chosen: t("one is better"),
  tie: t("equally good"),
  both_bad: t("both bad"),
  ranks: t("in order"),
  skip: t("skipped"),
};

export class Results {
  /** @param change  called with a task whose settings are to be changed */
  constructor(server, { leave, openTrain, change }) {
    this.server = server;
    this.openTrain = openTrain;
    this.task = null;
    this.known = "";
    this.title = el("h3", {});
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.body = el("div", { class: "rs-results-body" });
    const small = (label, onclick) => pushButton("rs-button rs-small", label, onclick);
    this.change = small(t("Change settings"), () => change(this.task));
    this.train = pushButton("rs-button rs-small rs-primary", t("Train a reward model on these"), () => this.trainOn());
    this.node = el(
      "section",
      { class: "rs-results", hidden: true },
      el(
        "div",
        { class: "rs-results-head rs-flow" },
        pushButton("rs-quiet", t("\u2190 All tasks"), leave),
        this.title,
        el(
          "div",
          { class: "rs-rate-buttons rs-wrap" },
          this.change,
          small(t("Export each answer"), () => this.take("each")),
          small(t("Export what most said"), () => this.take("agreed")),
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

  draw(found) {
    show(this.train, this.task.progress.votes > 0);
    show(this.change, !this.task.run);
    fill(this.body, pictured(this.task, found));
  }
}

/** Everything of a task, the pictures first; who has answered is folded where there are any. */
export function pictured(task, { agreement, verdicts, people, preferred, disagreements }) {
  const { progress } = task;
  const order = Object.keys(WORDS);
  const answers = Object.entries(verdicts)
    .sort(([one], [other]) => order.indexOf(one) - order.indexOf(other) || one.localeCompare(other))
    .map(([word, count]) => colon(WORDS[word] || word, integer(count)));
  const far = el(
    "p",
    { class: "rs-help" },
    t("{done} of {items} complete, ", { done: integer(progress.done), items: counted(progress.items, "item") }),
    counted(progress.votes, "answer"),
    answers.length ? t(" ({answers}).", { answers: listing(answers) }) : ".",
  );
  if (!progress.votes) return [far, waiting()];
  const panels = [preferredOf(preferred), agreementOf(agreement)];
  return [
    el("div", {}, sentenceOf(preferred), far),
    el("div", { class: "rs-picture-pair" }, panels),
    disagreementsOf(disagreements),
    el(
      "details",
      { open: preferred.length < 2 && !agreement.items },
      el("summary", {}, t("Annotators: {count}, how they lean, and what they got right", { count: people.length })),
      knownOf(people, task.pass_mark),
      peopleOf(people, task.kind),
    ),
    figuresOf(agreement),
  ];
}

/** What the answers come to; null where they are not about two sources. */
function sentenceOf(preferred) {
  if (preferred.length !== 2) return null;
  const [best, other] = [...preferred].sort((one, another) => another.share - one.share);
  const alone = ofOneRun([best.source, other.source]);
  const about = {
    best: policyName(best.source, alone),
    other: policyName(other.source, alone),
    share: percent(best.share, 0),
    count: integer(best.count),
  };
  const words = (alone ? OF_ONE_RUN : OF_TWO)[best.interval?.[0] > 0.5 ? "sure" : "unsure"];
  return el("h3", { class: "rs-results-sentence" }, words(about));
}

const OF_TWO = {
  sure: (about) =>
    t("\u201c{best}\u201d is preferred: it was chosen over \u201c{other}\u201d in {share} of {count} choices.", about),
  unsure: (about) => t("No sure preference: \u201c{best}\u201d was chosen in {share} of {count} choices.", about),
};
/** There the sources are called "before training" and "after 36 steps". */
const OF_ONE_RUN = {
  sure: (about) =>
    t("The answers {best} are preferred: they were chosen over those {other} in {share} of {count} choices.", about),
  unsure: (about) => t("No sure preference: the answers {best} were chosen in {share} of {count} choices.", about),
};

const panel = (title, ...content) =>
  el("section", { class: "rs-picture-panel rs-box", "aria-label": title }, el("h4", {}, title), content.flat());

/** Which source was chosen how often, where the items say where their responses come from. */
function preferredOf(preferred) {
  if (preferred.length < 2) return null;
  const alone = ofOneRun(preferred.map(({ source }) => source));
  const rows = preferred.map(({ source, share, interval, wins, count }) => ({
    name: policyName(source, alone),
    share,
    low: interval?.[0],
    high: interval?.[1],
    note: t("chosen {wins} of {count}", { wins: integer(wins), count: counted(count, "time") }),
  }));
  const help = t(
    "Ties are not counted. Thin line: 95\u202f% interval; beyond the mark at 50\u202f% it is surely preferred.",
  );
  return panel(t("Which was chosen"), shares(rows), el("p", { class: "rs-help" }, help));
}

/** The round with known answers, where there was one: who was right how often, and what was needed to pass. */
function knownOf(people, mark) {
  const asked = people.filter(({ known }) => known.count > 0);
  if (!asked.length) return null;
  const rows = asked.map(({ name, known }) => ({
    name: readable(name, 40),
    share: known.share,
    low: known.interval?.[0],
    high: known.interval?.[1],
    note: t("right in {right} of {count}", { right: integer(known.right), count: integer(known.count) }),
  }));
  const help = t(
    "Calibration: before the task each one answers items whose right answer is known. The mark is " +
      "what is needed to pass; whoever fails does the round again, and all rounds count here.",
  );
  return panel(t("Calibration: right on known answers"), shares(rows, mark), el("p", { class: "rs-help" }, help));
}

const waiting = () =>
  el(
    "p",
    { class: "rs-message" },
    t("No answers yet. Open the task with Start, or send the rating link to your annotators."),
  );

const NONE_YET = t("It can be computed once two people have answered the same item.");
const MOST_IN_GRID = 8; // people whose agreement fits beside the other pictures

/** What a number of Krippendorff's alpha means, by the usual limits. */
const wordFor = (alpha) =>
  alpha >= 0.8 ? t("good") : alpha >= 0.67 ? t("fair") : alpha > 0 ? t("weak") : t("no better than chance");

const LIMITS = [0.67, 0.8]; // from which on agreement is fair, and good

/** Where alpha lies between guessing and saying the same, with the two usual limits; the words beside it say it too. */
const alphaBar = (alpha) =>
  el(
    "span",
    { class: "rs-share-bar", "aria-hidden": "true" },
    el("i", { class: "rs-share-fill", style: { width: `${100 * Math.max(0, Math.min(1, alpha))}%` } }),
    LIMITS.map((limit) => el("i", { class: "rs-share-mark", style: { left: `${100 * limit}%` } })),
  );

function agreementOf({ items, alpha, same }) {
  if (!items) return panel(t("Agreement"), el("p", { class: "rs-help" }, NONE_YET));
  return panel(
    t("Agreement"),
    el(
      "p",
      { class: "rs-agreement" },
      el("b", {}, alpha === null ? NONE : number(alpha)),
      " ",
      alpha === null ? "alpha" : colon("alpha", wordFor(alpha)),
    ),
    alpha === null ? null : alphaBar(alpha),
    el(
      "p",
      { class: "rs-help" },
      t("{alpha} All said the same in {same} of {items}.", {
        alpha: ALPHA,
        same: percent(same, 0),
        items: counted(items, "comparison"),
      }),
    ),
  );
}

/** How well each two people agree, as a grid; null where there are too few of them, or too many. */
function gridOf({ cohen }) {
  const names = [...new Set(cohen.flatMap(({ people }) => people))];
  return names.length > 2 && names.length <= MOST_IN_GRID ? kappaGrid(names, cohen) : null;
}

/** Each two people, the stronger the colour, the better they agree. */
function kappaGrid(names, cohen) {
  const of = (one, other) => cohen.find(({ people }) => people.includes(one) && people.includes(other));
  const cell = (one, other) => {
    if (one === other) return el("td", { class: "rs-number" }, "");
    const kappa = of(one, other)?.kappa ?? null;
    const share = `${Math.round(45 * Math.max(0, Math.min(1, kappa ?? 0)))}%`;
    return el(
      "td",
      { class: "rs-number rs-kappa", style: { "--share": share } },
      kappa === null ? NONE : number(kappa),
    );
  };
  const short = names.map((name) => readable(name, 40));
  const rows = names.map((one, place) => [rowHead(short[place]), ...names.map((other) => cell(one, other))]);
  const corner = head(el("span", { class: "rs-hidden" }, t("Annotator")));
  const grid = table([corner, ...short.map((name) => numberHead(name))], rows, { class: "rs-kappas" });
  return [
    scrolled(t("Agreement of each two"), grid),
    el(
      "p",
      { class: "rs-help" },
      t("Cohen\u2019s kappa: the same for two people alone. The stronger the colour, the better they agree."),
    ),
  ];
}

/** The rest of the figures of agreement, folded. */
function figuresOf({ items, level, fleiss, fleiss_items: fleissItems, cohen }) {
  const grid = gridOf({ cohen });
  if (!items) return null;
  const pairs = cohen.map(({ people, kappa, items: count }) => [
    readable(people[0], 40),
    readable(people[1], 40),
    figure(kappa === null ? NONE : number(kappa)),
    figure(integer(count)),
  ]);
  return el(
    "details",
    {},
    el("summary", {}, t("More figures of agreement")),
    grid,
    el(
      "p",
      { class: "rs-help" },
      t(
        "Krippendorff\u2019s alpha was computed of {items}, {level}. Fleiss\u2019 kappa, for items that " +
          "equally many answered: {none} of {fleissItems}.",
        {
          items: counted(items, "comparison"),
          level,
          none: fleiss === null ? NONE : number(fleiss),
          fleissItems: counted(fleissItems, "comparison"),
        },
      ),
    ),
    sideways([t("Annotator"), t("Annotator"), t("Cohen\u2019s kappa"), t("Comparisons")], pairs, 2),
  );
}

const sideways = (heads, rows, numbersFrom) =>
  scrolled(
    listing(heads),
    table(
      heads.map((title, place) => (place < numbersFrom ? title : numberHead(title))),
      rows,
    ),
  );

/** What may be wider than a phone: it is scrolled sideways, by keys too. */
const scrolled = (name, node) =>
  el("div", { class: "rs-sideways", tabindex: "0", role: "region", "aria-label": name }, node);

/** A share with its interval; one that chance does not explain is marked by a word, not by colour alone. */
function lean({ share, count, interval, leans }) {
  if (share === null) return NONE;
  const range = t("{interval} to {interval2}", {
    interval: percent(interval[0], 0),
    interval2: percent(interval[1], 0),
  });
  return el(
    "span",
    { title: t("{count}; 95 % interval {range}", { count: counted(count, "choice"), range }) },
    percent(share, 0),
    leans ? el("em", {}, t(" leans")) : "",
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
  const heads = [t("Annotator"), tp("how many", "Answers"), t("Skipped"), t("Usual time")];
  if (compares) heads.push(t("Ties"), t("Chose the left"), t("Chose the longer"));
  if (kind === "rating") heads.push(t("Mean rating"));
  return el(
    "section",
    {},
    el("h4", {}, t("Annotators")),
    sideways([...heads, t("Rounds")], rows, 1),
    compares
      ? el(
          "p",
          { class: "rs-help" },
          t(
            "Places are drawn at random, so a fair annotator chooses the left one half of the time. Leans: " +
              "more than chance explains. To choose the longer one more often can be a bias, or longer " +
              "responses are better here.",
          ),
        )
      : null,
  );
}

const disagreementsOf = (found) =>
  found.length ? el("details", {}, el("summary", {}, t("Where annotators disagree most")), disagreements(found)) : null;

const disagreements = (found) =>
  found.map((item) =>
    el(
      "details",
      { class: "rs-disagreement" },
      el("summary", {}, `${item.number}. ${readable(item.prompt || item.responses[0], 120)}`),
      el(
        "p",
        { class: "rs-help" },
        item.said.map((one) => colon(readable(one.name, 40), wordOf(one))).join(" \u00b7 "),
      ),
      sideBySide(
        item.responses.map((text, place) => {
          const name = item.responses.length > 1 ? t("Response {place} ", { place: place + 1 }) : t("Response ");
          const source = el("small", {}, policyName(item.sources[place] || ""));
          return answerCard([name, source], readable(text.trimStart(), 4000));
        }),
      ),
    ),
  );

function wordOf({ verdict, value }) {
  if (verdict === "chosen") return t("response {value}", { value: value + 1 });
  if (verdict === "rating") return String(value);
  if (verdict === "ranks") return value.join(" ");
  return WORDS[verdict];
}
