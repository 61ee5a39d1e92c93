// The Road page: the stages as cards, one click that goes along all of them, and where each result comes from.
import { address } from "../shared/address.js";
import { el, fill, redraw, setText, show } from "../shared/dom.js";
import { Poller } from "../shared/poll.js";
import { NO_ANSWER, Once, isOnScreen, onlyWatches, whenShown } from "../shared/visit.js";

const LOOK_AGAIN = 2000; // milliseconds between two looks at the roads

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

const minutes = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);

class RoadPage {
  constructor({ host, server, trigger }) {
    Object.assign(this, { host, server, trigger, once: new Once(), road: "", drawn: "" });
    this.message = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.lost = el("p", { class: "rs-message", role: "status", hidden: true });
    this.rounds = el("select", { class: "rs-input", id: "rs-road-rounds" });
    this.start = el(
      "button",
      { class: "rs-button rs-primary", type: "button", onclick: () => this.begin() },
      "Run all on the world",
    );
    const rounds = el("label", { class: "rs-label", for: "rs-road-rounds" }, "Rounds");
    this.tools = el("div", { class: "rs-road-tools" }, this.start, rounds, this.rounds);
    this.choice = el("select", {
      class: "rs-input",
      "aria-label": "Road",
      onchange: () => this.choose(this.choice.value),
    });
    this.actions = el("div", { class: "rs-road-actions" });
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
      this.lost,
      this.message,
      this.tools,
      el("div", { class: "rs-road-head" }, this.choice, this.actions),
      this.cards,
      this.lineage,
    );
    this.poller = new Poller({
      ask: () => server.road_news({ view: onlyWatches() }),
      onreply: (reply) => this.receive(reply),
      onlost: (lost) => this.hear(lost),
      awake: () => isOnScreen(host),
    });
    whenShown(host, () => this.poller.wake());
    this.poller.wake();
    this.route(address.params("road"));
  }

  say(text) {
    setText(this.message, text || "");
    show(this.message, Boolean(text));
  }

  hear(lost) {
    setText(this.lost, lost ? "The app does not answer. Trying again; the road goes on." : "");
    show(this.lost, Boolean(lost));
  }

  route({ road = "" }) {
    this.road = road;
    this.draw();
  }

  choose(road) {
    address.put("road", { road }, true);
    this.route({ road });
  }

  receive(reply) {
    this.reply = reply;
    this.draw();
    return LOOK_AGAIN;
  }

  get shown() {
    const roads = this.reply?.roads || [];
    return roads.find(({ id }) => id === this.road) || roads[0];
  }

  draw() {
    const reply = this.reply;
    if (!reply) return;
    show(this.tools, reply.operator);
    if (!this.rounds.options.length) {
      for (let n = 1; n <= reply.most_rounds; n += 1) this.rounds.append(el("option", { value: n }, String(n)));
    }
    const road = this.shown;
    const text = JSON.stringify([road, reply.roads.map(({ id }) => id), reply.operator]);
    if (text === this.drawn) return;
    this.drawn = text;
    show(this.choice, reply.roads.length > 1);
    const named = ({ id, created_at }) =>
      el("option", { value: id }, `Road of ${new Date(created_at * 1000).toLocaleString()}`);
    fill(this.choice, reply.roads.map(named));
    if (road) this.choice.value = road.id;
    redraw(this.actions, this.start, () => fill(this.actions, road && reply.operator ? this.buttons(road) : []));
    const parts = road ? road.parts : reply.parts.map((part) => ({ ...part, state: "", headline: "", problem: "" }));
    redraw(this.cards, this.start, () =>
      fill(
        this.cards,
        parts.map((part) => this.card(part)),
      ),
    );
    this.askLineage(road);
  }

  buttons(road) {
    const button = (label, action) => el("button", { class: "rs-button", type: "button", onclick: action }, label);
    if (road.going) return [button("Stop", () => this.act("road_stop", road))];
    const ended = road.parts.every(({ state }) => state === "done");
    return ended ? [] : [button("Go on", () => this.act("road_go", road))];
  }

  card(part) {
    const stage = part.key.split("-")[0];
    const state = part.state ? STATES[part.state] : "";
    const progress = part.state === "running" && part.total_steps ? `Step ${part.step} of ${part.total_steps}` : "";
    const took = part.state === "done" && part.seconds ? `${minutes(part.seconds)}` : "";
    const open = el(
      "button",
      { class: "rs-button rs-small", type: "button", onclick: () => this.trigger("open_road_run", { run: part.run }) },
      "Open run",
    );
    return el(
      "li",
      { class: "rs-road-card", data: { state: part.state || "none" } },
      el("h3", {}, part.title),
      state && el("p", { class: "rs-road-state" }, [state, took].filter(Boolean).join(", ")),
      progress && el("p", { class: "rs-road-progress" }, progress),
      part.headline && el("p", { class: "rs-road-headline" }, part.headline),
      part.problem && el("p", { class: "rs-problem" }, part.problem),
      el("p", { class: "rs-help" }, NEEDS[stage] || ""),
      part.run && open,
    );
  }

  async askLineage(road) {
    const done = road ? road.parts.filter(({ run }) => run).length : 0;
    const asked = `${road?.id} ${done} ${road?.going}`;
    if (!done) fill(this.lineage);
    if (!done || asked === this.asked) return;
    this.asked = asked;
    const reply = await this.server.road_lineage({ road: road.id, view: onlyWatches() }).catch(() => null);
    if (reply && asked === this.asked) this.drawLineage(reply.rows);
  }

  drawLineage(rows) {
    const source = (one) =>
      el(
        "li",
        { data: { standing: one.standing } },
        el("span", { class: "rs-road-source" }, `${one.name}${one.step === null ? "" : `, step ${one.step}`}`),
        one.sha256 && el("code", {}, one.sha256.slice(0, 12)),
        el("span", { class: "rs-road-standing" }, one.sentence || (one.standing === "as it was" ? "as it was" : "")),
      );
    fill(
      this.lineage,
      el("h3", {}, "Where each result comes from"),
      el(
        "p",
        { class: "rs-help" },
        "Every model and file has a hash of what it held when the run began; a later change shows here.",
      ),
      rows.map((row) =>
        el("div", { class: "rs-road-row" }, el("h4", {}, row.title), el("ul", {}, row.sources.map(source))),
      ),
    );
  }

  async begin() {
    const wish = { rounds: Number(this.rounds.value) || 1 };
    this.start.disabled = true;
    const reply = await this.once
      .ask(wish, (sent) => this.server.road_start(sent))
      .catch(() => ({ problem: NO_ANSWER }));
    this.start.disabled = false;
    this.say(reply.problem);
    if (reply.road) {
      this.choose(reply.road);
      this.poller.wake();
    }
  }

  async act(name, road) {
    const reply = await this.server[name]({ road: road.id }).catch(() => ({ problem: NO_ANSWER }));
    this.say(reply.problem);
    this.poller.wake();
  }
}

/** Draw the page into `host`; called once when the component appears. */
export function mount(options) {
  const page = new RoadPage(options);
  address.watch("road", (params) => page.route(params));
}
