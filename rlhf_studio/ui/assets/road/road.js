// The Road page: the stages as cards, one click that goes along all of them, and where each result comes from.
import { firstOne, recorded } from "../pictures/recorded.js";
import { between, shares } from "../pictures/shares.js";
import { address } from "../shared/address.js";
import { each, el, fill, pushButton, redraw, setText, show, svg } from "../shared/dom.js";
import { counted, fixed, percent, readable } from "../shared/format.js";
import { pageLink } from "../shared/links.js";
import { pagePoll } from "../shared/lost.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";
import { NewRoad } from "./new.js";
import { bracketed, clauses, t, tn, tp } from "../shared/language.js";

const LOOK_AGAIN = 2000; // milliseconds between two looks at roads that rest

const STATES = {
  waiting: t("Waiting"),
  running: t("Under way"),
  done: tp("road", "Done"),
  failed: t("Failed"),
  stopped: t("Stopped"),
  skipped: t("Left out"),
};
/** What each stage does, and what its number says. */
const WHAT = {
  sft: t(
    "A network with random weights learns to imitate reviews; it is the policy, the model that writes. Loss: how " +
      "much an unseen review surprises it; lower is better.",
  ),
  pairs: t("It writes three reviews to each prompt, and a judge who sometimes errs says which of each two is better."),
  reward_model: t(
    "A copy learns to foresee the judge. Accuracy: how often it is right on unseen pairs; 50\u202f% is guessing.",
  ),
  ppo: t(
    "The policy learns to write what the reward model likes. Gold: what the world\u2019s own rule says; nothing " +
      "learns from it.",
  ),
  evaluation: t(
    "Start and end answer the same prompts. Win rate: in how many of 100 comparisons the end is better; a tie " +
      "counts half.",
  ),
};
const NEEDS = {
  sft: t("Needs examples of good answers."),
  pairs: t("Needs a policy that writes, and somebody who compares."),
  reward_model: t("Needs pairs of which one is preferred."),
  ppo: t("Needs the fine-tuned policy and the reward model."),
  evaluation: t("Needs prompts that no stage has learned from."),
};

const COLUMNS = { sft: 1, pairs: 2, reward_model: 3, ppo: 4, evaluation: 5 };
const OWN_COLUMNS = { sft: 1, reward_model: 2, ppo: 3, evaluation: 4 };
const FIRST = t("The first prompts that were held back from training.");
/** What the numbers beside the answers are, by the measure that decides. */
const SCORED = {
  gold: t("Behind Start and End: the gold score, from \u22121 to 1. Nothing learns from it."),
  judge: t("Behind Start and End: the judge\u2019s score. Nothing has learned from this judge."),
  score: t("Behind Start and End: the reward\u2019s score."),
};
const GAINED = { most: t("Gained most"), "the middle": t("In the middle"), least: t("Gained least") };
const OPEN = ["none", "waiting"]; // states of a part that has done nothing yet
const OVER = ["done", "skipped"]; // of one that nothing is left to do of

const dateOf = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
const minutes = (seconds) =>
  seconds < 90 ? `${Math.round(seconds)} s` : t("{seconds} min", { seconds: Math.round(seconds / 60) });

/** The round that a part belongs to, from its key: `ppo` is of the first, `ppo-2` of the second. */
const roundOf = (key) => Number(key.split("-")[1] || 1);

/** Where a road stands, in a few words. */
function standing({ parts, going, held_up: heldUp }) {
  const todo = parts.filter(({ state }) => state !== "skipped");
  const done = todo.filter(({ state }) => state === "done").length;
  const part = t("{done} of {length} parts done", { done, length: todo.length });
  const took = minutes(parts.reduce((sum, { seconds }) => sum + seconds, 0));
  if (done === todo.length) return t("Done, {took} in all", { took });
  if (going) return t("Under way, {part}", { part });
  if (heldUp) return t("Waits for you, {part}", { part });
  const failed = parts.some(({ state }) => state === "failed");
  return failed ? t("Failed, {part}", { part }) : t("Stopped, {part}", { part });
}

/** What a card says in bold, and the rest of it. */
function inShort({ headline, comparison, state }) {
  if (comparison) {
    const { rate, low, high } = comparison;
    const range = between(low ?? NaN, high ?? NaN);
    return [
      t("Wins {rate}", { rate: range ? `${percent(rate, 0)}${bracketed(range)}` : percent(rate, 0) }),
      t("on {prompts}", { prompts: counted(comparison.prompts, "prompt") }),
    ];
  }
  const end = state === "skipped" ? -1 : headline.search(/\. |。(?=.)/);
  return end < 0 ? [headline, ""] : [headline.slice(0, end + 1), headline.slice(end + 1).trim()];
}

/** How often the end of a road wins against its start, as a bar. */
const wonOf = ({ rate, low, high, prompts }, own) =>
  shares([
    {
      name: own ? t("The end against the start") : t("The end against the fine-tuned policy"),
      share: rate,
      low: low ?? NaN,
      high: high ?? NaN,
      note: t("on {prompts}; thin line: 95\u202f% interval", { prompts: counted(prompts, "prompt") }),
    },
  ]);

const SHARE = /accuracy/; // a metric for which one half is guessing
const COLOURS = { sft: "--q-policy", reward_model: "--q-part", ppo: "--q-gold" };
const [WIDE, HIGH, EDGE] = [120, 40, 6]; // of the picture of a card

/** How the number of a training went from its beginning to its end; the words beside it say the same. */
function slope(stage, course) {
  if (!Number.isFinite(course?.first) || !Number.isFinite(course?.last)) return null;
  const ends = [course.first, course.last];
  const [low, high] = SHARE.test(course.metric) ? [0.5, 1] : [Math.min(0, ...ends), Math.max(0, ...ends)];
  const y = (value) => HIGH - EDGE - ((value - low) / (high - low || 1)) * (HIGH - 2 * EDGE);
  const [from, to] = ends.map(y);
  return svg(
    "svg",
    {
      class: "rs-road-slope",
      viewBox: `0 0 ${WIDE} ${HIGH}`,
      width: WIDE,
      height: HIGH,
      "aria-hidden": "true",
      style: { "--c": `var(${COLOURS[stage] || "--q-score"})` },
    },
    svg("path", { d: `M0 ${y(Math.max(low, 0))}H${WIDE}`, class: "rs-road-zero" }),
    svg("path", { d: `M${EDGE} ${from}L${WIDE - EDGE} ${to}` }),
    svg("circle", { cx: EDGE, cy: from, r: 3 }),
    svg("circle", { cx: WIDE - EDGE, cy: to, r: 4 }),
  );
}

const ended = ({ parts }) => parts.every(({ state }) => OVER.includes(state));

class RoadPage {
  constructor({ host, server, trigger }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.once = new Once();
    this.drawn = "";
    this.road = address.params("road").road || "";
    this.message = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.poll = pagePoll(host, { meanwhile: () => t("The road does not need this page.") });
    this.news = this.poll.add({
      ask: () => server.road_news({ road: this.road, view: onlyWatches() }),
      receive: (reply) => this.receive(reply),
    });
    this.form = new NewRoad({
      look: (own) => server.road_look({ own, view: onlyWatches() }),
      begin: (wish) => this.begin(wish),
      chosen: () => this.draw(),
    });
    this.opener = pushButton("rs-button", t("New road"), () => this.open(!this.opened));
    this.viewer = el("p", { class: "rs-help", hidden: true });
    this.gone = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true }, t("This road is not here."));
    this.older = el("p", { class: "rs-help", hidden: true });
    this.name = el("h3", { class: "rs-road-name" });
    this.standing = el("p", { class: "rs-road-standing", role: "status" });
    this.choice = el("select", {
      class: "rs-input",
      "aria-label": t("Road"),
      onchange: () => this.choose(this.choice.value),
    });
    this.actions = el("div", { class: "rs-road-actions" });
    this.verdict = el("p", { class: "rs-road-verdict", role: "status", hidden: true });
    this.won = el("div", { class: "rs-road-won", hidden: true });
    this.startSmall = pushButton("rs-button rs-primary", t("Go along the road"), () => this.form.beginWorld());
    this.long = el("span", {});
    this.first = firstOne(this.startSmall, this.long);
    this.others = el(
      "details",
      { class: "rs-road-others" },
      el("summary", {}, t("Other choices: your own model and files, the full length, several rounds")),
      this.form.node,
    );
    this.recorded = el(
      "div",
      { hidden: true },
      recorded(t("A small road through the tiny world, as one click makes it. Your own will look like this.")),
    );
    this.held = el("p", { class: "rs-message rs-road-held", role: "status", hidden: true });
    this.cards = el("ol", { class: "rs-road-cards" });
    this.explained = el(
      "details",
      { class: "rs-road-explained" },
      el("summary", {}, t("What the stages do")),
      el(
        "ol",
        {},
        Object.values(WHAT).map((words) => el("li", { class: "rs-help" }, words)),
      ),
    );
    this.examples = el("div", { class: "rs-road-examples" });
    this.lineage = el("div", { class: "rs-road-lineage" });
    fill(
      host,
      el("h2", { class: "rs-hidden" }, t("Road")),
      el("p", { class: "rs-road-intro" }, t("From a model that knows nothing to one whose answers are preferred.")),
      this.poll.notice,
      this.message,
      this.first,
      this.others,
      this.viewer,
      this.recorded,
      this.gone,
      (this.head = el(
        "div",
        { class: "rs-road-head" },
        this.choice,
        this.name,
        this.older,
        this.standing,
        this.actions,
        this.opener,
      )),
      this.verdict,
      this.won,
      this.held,
      this.cards,
      this.explained,
      this.examples,
      this.lineage,
    );
    this.news.wake();
  }

  say(text) {
    setText(this.message, text || "");
    show(this.message, Boolean(text));
  }

  route({ road = "" }) {
    this.road = road;
    this.draw();
    this.news.wake(); // the road may be an older one, which is told only to who asks for it
  }

  choose(road) {
    address.put("road", { road }, true);
    this.route({ road });
  }

  receive(reply) {
    this.reply = reply;
    this.draw();
    return reply.roads.some(({ going }) => going) ? undefined : LOOK_AGAIN;
  }

  get shown() {
    const roads = this.reply?.roads || [];
    const example = this.reply?.example;
    if (this.road) return [...roads, example].find((one) => one?.id === this.road);
    return roads[0] || example || undefined;
  }

  draw() {
    const reply = this.reply;
    if (!reply) return;
    const fresh = !reply.roads.length || Boolean(this.opened);
    const road = this.shown;
    const isRecorded = Boolean(road) && road === reply.example;
    const focused = this.form.node.contains(document.activeElement);
    show(this.first, reply.operator && !reply.roads.length);
    show(this.others, reply.operator && fresh);
    if (this.opened) this.others.open = true;
    show(this.recorded, isRecorded);
    const seconds = (reply.example?.parts || []).reduce((sum, part) => sum + part.seconds, 0);
    setText(
      this.long,
      t("Five small stages: each hands its result to the next, unattended.") +
        (seconds ? t(" The recorded road took {seconds} on two busy cores.", { seconds: minutes(seconds) }) : ""),
    );
    show(this.opener, reply.operator && reply.roads.length > 0);
    if (focused && !fresh) this.opener.focus(); // the form that had the focus is gone
    setText(this.opener, this.opened ? t("Close the form") : t("New road"));
    setText(this.viewer, reply.why_not);
    show(this.viewer, Boolean(reply.why_not));
    const over = Boolean(road) && ended(road) && !isRecorded; // then the next step is to look at its result
    this.form.draw({ under: reply.under_way, most: reply.most_rounds, secondary: over && !this.opened });
    const gone = Boolean(this.road) && !road;
    if (gone && reply.wanted !== this.road) return; // the next news will tell
    show(this.gone, gone);
    this.askLineage(road);
    this.askExamples(road);
    const text = JSON.stringify([
      road,
      reply.roads.map(({ id }) => id),
      reply.older,
      gone,
      reply.operator,
      this.opened,
    ]);
    if (text === this.drawn) return;
    this.drawn = text;
    const several = reply.roads.length > 1;
    const title = ({ created_at, own }) =>
      `${own ? t("Road of {own}", { own }) : t("Road through the world")}, ${dateOf(created_at)}`;
    show(this.head, (Boolean(road) && !isRecorded) || several || gone);
    show(this.choice, several || gone);
    show(this.name, Boolean(road) && !several);
    show(this.standing, Boolean(road));
    show(this.older, reply.older > 0);
    setText(this.older, t("{older} not listed", { older: counted(reply.older, "older road") }));
    fill(
      this.choice,
      gone && el("option", { value: this.road, disabled: true }, t("Choose a road")),
      reply.roads.map((one) => el("option", { value: one.id }, title(one))),
    );
    this.choice.value = road ? road.id : this.road;
    if (road) {
      setText(this.name, title(road));
      setText(this.standing, standing(road));
    }
    setText(this.verdict, road?.verdict || "");
    show(this.verdict, Boolean(road?.verdict));
    const compared = road?.parts.find(({ key }) => key === "evaluation")?.comparison;
    show(this.won, Boolean(compared));
    fill(this.won, compared ? wonOf(compared, Boolean(road.own)) : []);
    const held = road?.held_up && !road.going ? road.held_up : null;
    setText(
      this.held,
      held
        ? t("The road stopped after “{title}”, which was not worth going on from. {advice}", {
            title: held.title,
            advice: held.advice,
          })
        : "",
    );
    show(this.held, Boolean(held));
    redraw(this.actions, this.choice, () =>
      fill(this.actions, road && !isRecorded && reply.operator ? this.buttons(road) : [], over ? this.next(road) : []),
    );
    const planned = gone ? [] : reply.parts;
    this.world = !road?.own;
    show(this.explained, this.world);
    this.columns = road?.own ? OWN_COLUMNS : COLUMNS;
    this.cards.classList.toggle("rs-road-own", Boolean(road?.own));
    const parts = road ? road.parts : planned.map((part) => ({ ...part, state: "", headline: "", problem: "" }));
    this.last = Math.max(1, ...parts.map(({ key }) => roundOf(key)));
    redraw(this.cards, this.choice, () => each(this.cards, parts, (part) => this.card(part)));
  }

  buttons(road) {
    const button = (label, action) => pushButton("rs-button", label, action);
    if (road.going) return [button(t("Stop"), () => this.act("road_stop", road))];
    if (road.held_up) return [button(t("Go on anyway"), () => this.act("road_go", road, { anyway: true }))];
    return ended(road) ? [] : [button(t("Go on"), () => this.act("road_go", road))];
  }

  /** What to do with the result of a road that has ended: look at the comparison first. */
  next(road) {
    const run = (stage) => road.parts.findLast(({ key }) => key.split("-")[0] === stage)?.run;
    const [compared, trained] = [run("evaluation"), run("ppo")];
    return [
      compared && this.link(t("Open the table"), "evaluate", { evaluation: compared }, this.opened ? "" : "rs-primary"),
      trained && this.link(t("Talk to it"), "talk", { talk: trained }),
    ];
  }

  /** A link to another page, which is shown without loading this document again. */
  link(label, page, params, look = "") {
    return pageLink(label, page, params, `rs-button ${look}`);
  }

  card(part) {
    const stage = part.key.split("-")[0];
    const row = stage === "evaluation" ? this.last : roundOf(part.key);
    const returns = stage === "ppo" && row < this.last; // the next part is in the row below
    const state = part.state ? STATES[part.state] : "";
    const [headline, more] = inShort(part);
    const step = part.total_steps
      ? t("Step {step} of {total_steps}", { step: part.step, total_steps: part.total_steps })
      : "";
    const work = part.run_state === "queued" ? t("Waiting in the queue") : step;
    const progress = part.state === "running" ? work : "";
    const took = part.state === "done" && part.seconds ? `${minutes(part.seconds)}` : "";
    const table = stage === "evaluation" && ["running", "done"].includes(part.state);
    const waits = part.limit ? t("At most {limit}", { limit: minutes(60 * part.limit) }) : NEEDS[stage] || "";
    const open = !part.run
      ? null
      : table
        ? this.link(t("Open the table"), "evaluate", { evaluation: part.run }, "rs-small")
        : pushButton("rs-button rs-small", t("Open run"), () => this.trigger("open_road_run", { run: part.run }));
    return el(
      "li",
      {
        class: "rs-road-card rs-column rs-box",
        data: { state: part.state || "none", returns: String(returns), weak: String(Boolean(part.weak)) },
        style: { "--rs-column": this.columns[stage], "--rs-row": row },
      },
      el("h3", {}, part.title.replace(/round (?=\d)/, "round\u00a0")),
      state && el("p", { class: "rs-road-state" }, clauses([state, took])),
      progress && el("p", { class: "rs-road-progress" }, progress),
      headline && el("p", { class: part.state === "skipped" ? "rs-help" : "rs-road-headline" }, headline),
      slope(stage, part.course),
      more && el("p", { class: "rs-help" }, more),
      part.problem && el("p", { class: "rs-problem" }, part.problem),
      !this.world && OPEN.includes(part.state || "none") && el("p", { class: "rs-help" }, waits),
      part.run && open,
    );
  }

  async askExamples(road) {
    const run = road?.parts.find(({ key, state }) => key === "evaluation" && state === "done")?.run || "";
    if (run === this.shownExamples) return;
    this.shownExamples = run;
    fill(this.examples);
    if (!run) return;
    const reply = await this.server.road_examples({ road: road.id, view: onlyWatches() }).catch(() => null);
    if (run !== this.shownExamples) return;
    if (!reply)
      this.shownExamples = ""; // with the next news it is asked again
    else this.drawExamples(reply);
  }

  drawExamples({ examples, decides, better, worse, of, phrase }) {
    if (!examples.length) return;
    const spread = Boolean(examples[0].gained);
    const counts = tn(
      "{count} of {answers} is better at the end than at the start, {worse} worse.",
      "{count} of {answers} are better at the end than at the start, {worse} worse.",
      better,
      { answers: counted(of, "answer"), worse },
    );
    const lost = (one) => one.gained === "least" && one.score_after < one.score_before;
    const said = (name, text, score) =>
      el(
        "div",
        { class: "rs-road-said" },
        el("h4", {}, name, score === null ? null : el("span", { class: "rs-road-score" }, fixed(score, 2))),
        el("p", {}, readable(text.trimStart())),
      );
    fill(
      this.examples,
      el("h3", {}, t("Before and after")),
      of > 0 && el("p", {}, counts, phrase && ` ${readable(phrase, 300)}`),
      el("p", { class: "rs-help" }, [spread ? "" : FIRST, SCORED[decides]].filter(Boolean).join(" ")),
      examples.map((one) =>
        el(
          "article",
          { class: "rs-road-example" },
          one.gained && el("p", { class: "rs-label" }, lost(one) ? t("Lost most") : GAINED[one.gained]),
          el("p", { class: "rs-road-prompt" }, readable(one.prompt)),
          said(tp("road", "Start"), one.before, one.score_before),
          said(tp("road", "End"), one.after, one.score_after),
        ),
      ),
    );
  }

  async askLineage(road) {
    const done = road && road !== this.reply.example ? road.parts.filter(({ run, file }) => run || file).length : 0;
    const asked = JSON.stringify([road?.id, road?.going, road?.parts.map(({ run, state }) => [run, state])]);
    if (!done) {
      this.asked = asked;
      this.told = "";
      fill(this.lineage);
    }
    if (asked === this.asked) return;
    this.asked = asked;
    const reply = await this.server.road_lineage({ road: road.id, view: onlyWatches() }).catch(() => null);
    if (asked !== this.asked) return;
    if (reply && JSON.stringify(reply) !== this.told) this.drawLineage(reply.rows);
    this.told = JSON.stringify(reply);
    if (!reply || reply.again) this.asked = ""; // with the next news it is asked again
  }

  drawLineage(rows) {
    const source = (one) =>
      el(
        "li",
        { data: { standing: one.standing } },
        el(
          "span",
          { class: "rs-road-source" },
          `${one.name}${one.step === null ? "" : t(", step {step}", { step: one.step })}`,
        ),
        one.sha256 && el("code", {}, one.sha256.slice(0, 12)),
        el(
          "span",
          { class: "rs-road-standing" },
          one.sentence || (one.standing === "as it was" ? t("unchanged") : one.standing),
        ),
      );
    if (!rows.some(({ sources, problem }) => sources.length || problem)) return void fill(this.lineage);
    const wasOpen = this.lineage.querySelector("details")?.open || false;
    fill(
      this.lineage,
      el(
        "details",
        { open: wasOpen },
        el("summary", {}, t("Where each result comes from")),
        el(
          "p",
          { class: "rs-help" },
          t("Every model and file has a hash of what it held when the run began; a later change shows here."),
        ),
        rows.map((row) =>
          el(
            "div",
            { class: "rs-road-row" },
            el("h4", {}, row.title),
            row.problem && el("p", { class: "rs-problem" }, row.problem),
            el("ul", {}, row.sources.map(source)),
          ),
        ),
      ),
    );
  }

  /** Show the form of a new road, or hide it again. */
  open(opened) {
    this.opened = opened;
    this.draw();
  }

  async begin(wish) {
    const reply = await this.once
      .ask(wish, (sent) => this.server.road_start(sent))
      .catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem);
    if (reply.road) {
      this.opened = false;
      this.choose(reply.road);
      this.news.wake();
    }
    return reply;
  }

  async act(name, road, more = {}) {
    const reply = await this.server[name]({ road: road.id, ...more }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem);
    this.news.wake();
  }
}

/** Draw the page into `host`; called once when the component appears. */
export function mount(options) {
  const page = new RoadPage(options);
  address.watch("road", (params) => page.route(params));
}
