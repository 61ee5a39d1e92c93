// The Road page: the stages as cards, one click that goes along all of them, and where each result comes from.
import { address } from "../shared/address.js";
import { each, el, fill, pushButton, redraw, setText, show } from "../shared/dom.js";
import { counted } from "../shared/format.js";
import { pageLink } from "../shared/links.js";
import { pagePoll } from "../shared/lost.js";
import { NO_ANSWER, Once, onlyWatches } from "../shared/visit.js";

const LOOK_AGAIN = 2000; // milliseconds between two looks at roads that rest

const STATES = {
  waiting: "Waiting",
  running: "Under way",
  done: "Done",
  failed: "Failed",
  stopped: "Stopped",
};
const NEEDS = {
  sft: "Needs examples of good answers.",
  pairs: "Needs a policy that writes, and somebody who compares.",
  reward_model: "Needs pairs of which one is preferred.",
  ppo: "Needs the fine-tuned policy and the reward model.",
  evaluation: "Needs prompts that no stage has learned from.",
};

const COLUMNS = { sft: 1, pairs: 2, reward_model: 3, ppo: 4, evaluation: 5 };
const OPEN = ["none", "waiting"]; // states of a part that has done nothing yet

const dateOf = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
const minutes = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);

/** The round that a part belongs to, from its key: `ppo` is of the first, `ppo-2` of the second. */
const roundOf = (key) => Number(key.split("-")[1] || 1);

/** Where a road stands, in a few words. */
function standing({ parts, going }) {
  const done = parts.filter(({ state }) => state === "done").length;
  const took = minutes(parts.reduce((sum, { seconds }) => sum + seconds, 0));
  if (done === parts.length) return `Done, ${took} in all`;
  if (going) return `Under way, ${done} of ${parts.length} parts done`;
  const failed = parts.some(({ state }) => state === "failed");
  return `${failed ? "Failed" : "Stopped"}, ${done} of ${parts.length} parts done`;
}

const ended = ({ parts }) => parts.every(({ state }) => state === "done");

class RoadPage {
  constructor({ host, server, trigger }) {
    this.host = host;
    this.server = server;
    this.trigger = trigger;
    this.once = new Once();
    this.drawn = "";
    this.road = address.params("road").road || "";
    this.message = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.poll = pagePoll(host, { meanwhile: () => "The road does not need this page." });
    this.news = this.poll.add({
      ask: () => server.road_news({ road: this.road, view: onlyWatches() }),
      receive: (reply) => this.receive(reply),
    });
    this.rounds = el("select", { class: "rs-input", id: "rs-road-rounds" });
    this.start = pushButton("rs-button rs-primary", "Run all on the world", () => this.begin());
    const rounds = el("label", { class: "rs-label", for: "rs-road-rounds" }, "Rounds");
    this.small = el("input", { type: "checkbox" });
    const small = el(
      "label",
      { class: "rs-road-small rs-middle" },
      this.small,
      "Small: a minute, to see that all parts fit",
    );
    const help = "Each round samples new pairs, trains the reward model on them and goes on with PPO.";
    this.tools = el(
      "div",
      { class: "rs-road-tools" },
      this.start,
      small,
      rounds,
      this.rounds,
      el("p", { class: "rs-help" }, help),
    );
    this.viewer = el("p", { class: "rs-help", hidden: true });
    this.gone = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true }, "This road is not here.");
    this.older = el("p", { class: "rs-help", hidden: true });
    this.name = el("h3", { class: "rs-road-name" });
    this.standing = el("p", { class: "rs-road-standing", role: "status" });
    this.choice = el("select", {
      class: "rs-input",
      "aria-label": "Road",
      onchange: () => this.choose(this.choice.value),
    });
    this.actions = el("div", { class: "rs-road-actions" });
    this.verdict = el("p", { class: "rs-road-verdict", role: "status", hidden: true });
    this.note = el("p", { class: "rs-road-note", hidden: true });
    this.cards = el("ol", { class: "rs-road-cards" });
    this.lineage = el("div", { class: "rs-road-lineage" });
    fill(
      host,
      el("h2", { class: "rs-hidden" }, "Road"),
      el(
        "p",
        { class: "rs-road-intro" },
        "From an untrained model to one that people prefer, stage by stage: each hands its result to the next. ",
        "On the bundled world all of it runs by itself.",
      ),
      this.poll.notice,
      this.message,
      this.tools,
      this.viewer,
      this.gone,
      (this.head = el(
        "div",
        { class: "rs-road-head" },
        this.choice,
        this.name,
        this.older,
        this.standing,
        this.actions,
      )),
      this.verdict,
      this.note,
      this.cards,
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
    return this.road ? roads.find(({ id }) => id === this.road) : roads[0];
  }

  draw() {
    const reply = this.reply;
    if (!reply) return;
    show(this.tools, reply.operator);
    setText(this.viewer, reply.why_not);
    show(this.viewer, Boolean(reply.why_not));
    const under = reply.under_way;
    this.start.disabled = this.starting || under;
    this.start.title = under ? "A road is under way: wait for its end, or stop it first." : "";
    if (!this.rounds.options.length) {
      for (let n = 1; n <= reply.most_rounds; n += 1) this.rounds.append(el("option", { value: n }, String(n)));
    }
    const road = this.shown;
    const gone = Boolean(this.road) && !road;
    if (gone && reply.wanted !== this.road) return; // the next news will tell
    show(this.gone, gone);
    this.askLineage(road);
    const text = JSON.stringify([road, reply.roads.map(({ id }) => id), reply.older, gone, reply.operator]);
    if (text === this.drawn) return;
    this.drawn = text;
    const several = reply.roads.length > 1;
    const title = ({ created_at }) => `Road of ${dateOf(created_at)}`;
    show(this.head, Boolean(road) || several || gone);
    show(this.choice, several || gone);
    show(this.name, Boolean(road) && !several);
    show(this.standing, Boolean(road));
    show(this.older, reply.older > 0);
    setText(this.older, `${counted(reply.older, "older road")} not listed`);
    fill(
      this.choice,
      gone && el("option", { value: this.road, disabled: true }, "Choose a road"),
      reply.roads.map((one) => el("option", { value: one.id }, title(one))),
    );
    this.choice.value = road ? road.id : this.road;
    if (road) {
      setText(this.name, title(road));
      setText(this.standing, standing(road));
    }
    setText(this.verdict, road?.verdict || "");
    show(this.verdict, Boolean(road?.verdict));
    setText(this.note, road?.note || "");
    show(this.note, Boolean(road?.note));
    const over = Boolean(road) && ended(road);
    this.start.classList.toggle("rs-primary", !over); // the next step of a road that has ended is to look at its result
    redraw(this.actions, this.start, () =>
      fill(this.actions, road && reply.operator ? this.buttons(road) : [], over ? this.next(road) : []),
    );
    const planned = gone ? [] : reply.parts;
    const parts = road ? road.parts : planned.map((part) => ({ ...part, state: "", headline: "", problem: "" }));
    this.last = Math.max(1, ...parts.map(({ key }) => roundOf(key)));
    redraw(this.cards, this.start, () => each(this.cards, parts, (part) => this.card(part)));
  }

  buttons(road) {
    const button = (label, action) => pushButton("rs-button", label, action);
    if (road.going) return [button("Stop", () => this.act("road_stop", road))];
    return ended(road) ? [] : [button("Go on", () => this.act("road_go", road))];
  }

  /** What to do with the result of a road that has ended: look at the comparison first. */
  next(road) {
    const run = (stage) => road.parts.findLast(({ key }) => key.split("-")[0] === stage)?.run;
    const [compared, trained] = [run("evaluation"), run("ppo")];
    return [
      compared && this.link("Open the table", "evaluate", { evaluation: compared }, "rs-primary"),
      trained && this.link("Talk to it", "talk", { talk: trained }),
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
    const step = part.total_steps ? `Step ${part.step} of ${part.total_steps}` : "";
    const work = part.run_state === "queued" ? "Waiting in the queue" : step;
    const progress = part.state === "running" ? work : "";
    const took = part.state === "done" && part.seconds ? `${minutes(part.seconds)}` : "";
    const table = stage === "evaluation" && ["running", "done"].includes(part.state);
    const open = table
      ? this.link("Open the table", "evaluate", { evaluation: part.run }, "rs-small")
      : pushButton("rs-button rs-small", "Open run", () => this.trigger("open_road_run", { run: part.run }));
    return el(
      "li",
      {
        class: "rs-road-card rs-column rs-box",
        data: { state: part.state || "none", returns: String(returns) },
        style: { "--rs-column": COLUMNS[stage], "--rs-row": row },
      },
      el("h3", {}, part.title.replace(/round (?=\d)/, "round\u00a0")),
      state && el("p", { class: "rs-road-state" }, [state, took].filter(Boolean).join(", ")),
      progress && el("p", { class: "rs-road-progress" }, progress),
      part.headline && el("p", { class: "rs-road-headline" }, part.headline),
      part.problem && el("p", { class: "rs-problem" }, part.problem),
      OPEN.includes(part.state || "none") && el("p", { class: "rs-help" }, NEEDS[stage] || ""),
      part.file && el("p", { class: "rs-road-file" }, el("code", {}, part.file)),
      part.run && open,
    );
  }

  async askLineage(road) {
    const done = road ? road.parts.filter(({ run, file }) => run || file).length : 0;
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
        el("span", { class: "rs-road-source" }, `${one.name}${one.step === null ? "" : `, step ${one.step}`}`),
        one.sha256 && el("code", {}, one.sha256.slice(0, 12)),
        el(
          "span",
          { class: "rs-road-standing" },
          one.sentence || (one.standing === "as it was" ? "unchanged" : one.standing),
        ),
      );
    if (!rows.some(({ sources, problem }) => sources.length || problem)) return void fill(this.lineage);
    fill(
      this.lineage,
      el("h3", {}, "Where each result comes from"),
      el(
        "p",
        { class: "rs-help" },
        "Every model and file has a hash of what it held when the run began; a later change shows here.",
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
    );
  }

  async begin() {
    const wish = { rounds: Number(this.rounds.value) || 1, small: this.small.checked };
    this.start.disabled = this.starting = true;
    const reply = await this.once
      .ask(wish, (sent) => this.server.road_start(sent))
      .catch(() => ({ problem: NO_ANSWER }));
    this.start.disabled = this.starting = false;
    this.say(reply.problem);
    if (reply.road) {
      this.choose(reply.road);
      this.news.wake();
    }
  }

  async act(name, road) {
    const reply = await this.server[name]({ road: road.id }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem);
    this.news.wake();
  }
}

/** Draw the page into `host`; called once when the component appears. */
export function mount(options) {
  const page = new RoadPage(options);
  address.watch("road", (params) => page.route(params));
}
