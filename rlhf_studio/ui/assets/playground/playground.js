// The reward playground: one reward model reads one text. It shows the score at each token, and what changes when a
// word is left out or swapped. Put `new RewardPlayground(server).node` on a page whose server has its functions.
import { each, el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { integer, number, readable, signed, spoken } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { Legend, TokenView } from "../shared/tokens.js";
import { NO_ANSWER, onlyWatches, whenShown } from "../shared/visit.js";
import { followJob } from "../talk/exchange.js";
import { loadedPanel } from "./loaded.js";
import { measuredPanel } from "./measured.js";
import { WordChanges } from "./words.js";
import { bracketed, t } from "../shared/language.js";

const SCALE_WORDS = {
  change: t("points of score"),
  prefix: t("score, around its mean in this response"),
};

const GROUPS = { trained: t("Trained here"), bundled: t("Bundled"), used: t("Used by runs") };

/** The models as options, those that runs have trained first; runs of one name are told apart by their ids. */
function optionsOf(models) {
  const titleOf = ({ kind, name, from, run }) => {
    if (kind !== "trained") return `${readable(name, 120)}${bracketed(readable(from, 80))}`;
    const twin = models.some((other) => other.run !== run && other.from === from);
    return `${readable(from, 120)}${twin ? ` \u00b7 ${run}` : ""}`;
  };
  const groups = Object.entries(GROUPS).map(([kind, label]) => {
    const own = models.filter((model) => model.kind === kind);
    const options = own.map((model) => el("option", { value: model.name }, titleOf(model)));
    return own.length ? el("optgroup", { label }, options) : null;
  });
  return [...groups.filter(Boolean), el("option", { value: "" }, t("Another one: type its folder or its name"))];
}

export class RewardPlayground {
  /** @param server  the page's functions, with those of ui/scoring/playground.py; `poll` is the page's */
  constructor(server, poll) {
    this.server = server;
    this.poll = poll;
    this.key = null;
    this.known = false;
    this.awaited = "";
    this.missing = "";
    this.models = [];
    this.build();
    whenShown(this.node, () => this.boot());
  }

  build() {
    this.choice = el("select", { id: "rs-playground-choice", class: "rs-input", onchange: () => this.chosen() });
    this.model = el("input", {
      id: "rs-playground-model",
      class: "rs-input",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: t("A folder, a Hugging Face hub id, or bundled/world-reward"),
      onchange: () => this.describe(),
    });
    this.prompt = this.text("prompt", t("Prompt"), 2);
    this.response = this.text("response", t("Response"), 3);
    this.swap = el("input", {
      id: "rs-playground-swap",
      class: "rs-input",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: t("such as superb, dull"),
    });
    this.button = el(
      "button",
      { type: "submit", class: "rs-button rs-primary", title: "Ctrl + Enter", "aria-keyshortcuts": "Control+Enter" },
      t("Score it"),
    );
    this.cancel = el(
      "button",
      { type: "button", class: "rs-button", hidden: true, onclick: () => this.stop() },
      t("Stop"),
    );
    this.another = pushButton("rs-quiet", t("Take an example"), () => this.example());
    this.status = el("p", { class: "rs-help", role: "status" });
    this.problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    this.loaded = el("div", { class: "rs-playground-loaded" });
    this.result = el("div", { class: "rs-playground-result", hidden: true });
    const field = (id, label, control, ...more) =>
      el("div", { class: "rs-field" }, el("label", { class: "rs-label", for: id }, label), control, ...more);
    this.form = el(
      "form",
      {
        class: "rs-playground-form",
        novalidate: true,
        onsubmit: (event) => {
          event.preventDefault();
          this.ask();
        },
      },
      field("rs-playground-choice", t("Reward model"), this.choice),
      (this.typed = field("rs-playground-model", t("Its folder or its name"), this.model)),
      this.loaded,
      this.prompt.node,
      this.response.node,
      field("rs-playground-swap", t("Words to put in the place of each word (may stay empty)"), this.swap),
      this.problem,
      el("div", { class: "rs-playground-buttons rs-flow" }, this.button, this.cancel, this.another, this.status),
    );
    this.buildResult();
    this.node = el(
      "section",
      { class: "rs-playground rs-column", "aria-label": t("Reward playground") },
      el(
        "p",
        { class: "rs-help" },
        t(
          "Type a prompt and a response: see what a reward model makes of it, token by token, and which words it " +
            "likes. Prompt and response are joined as they are: a space between them belongs to one of the two.",
        ),
      ),
      this.form,
      this.result,
    );
  }

  buildResult() {
    this.score = el("p", { class: "rs-playground-score" });
    this.notes = el("div", { class: "rs-playground-notes" });
    this.colours = el("div", { class: "rs-playground-colours rs-flow" });
    this.legend = new Legend();
    this.view = new TokenView(
      (index) => this.pick(index, true),
      (index) => this.view.hover(index),
    );
    this.view.list.addEventListener("keydown", (event) => this.move(event));
    this.card = el("p", { class: "rs-playground-card", role: "status" });
    this.explain = el(
      "p",
      { class: "rs-help" },
      t(
        "The score so far is the score of the text as if it ended at that token. Training has only seen whole texts, " +
          "so the beginnings of a text show a direction, not a judgement.",
      ),
    );
    this.tokens = el(
      "div",
      { class: "rs-playground-tokens rs-column" },
      this.colours,
      this.view.node,
      this.card,
      this.explain,
    );
    this.words = new WordChanges((text) => {
      this.response.control.value = text;
      this.ask();
    });
    fill(this.result, this.score, this.notes, this.tokens, this.words.node);
  }

  text(name, title, rows) {
    const id = `rs-playground-${name}`;
    const control = el("textarea", {
      id,
      class: "rs-input rs-playground-text",
      rows,
      spellcheck: "false",
      onkeydown: (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        this.ask();
      },
    });
    control.value = memory.get(`playground-${name}`, "");
    return {
      control,
      node: el("div", { class: "rs-field" }, el("label", { class: "rs-label", for: id }, title), control),
    };
  }

  async boot() {
    const reply = await this.server.playground_boot({ view: onlyWatches(), run: this.awaited }).catch(() => null);
    if (!reply) return this.fail(NO_ANSWER);
    this.models = reply.models;
    fill(this.choice, optionsOf(reply.models));
    this.locked = reply.why_not;
    for (const control of this.form.querySelectorAll("button, textarea, input, select"))
      control.disabled = Boolean(reply.why_not) || (control === this.button && Boolean(this.key));
    setText(this.status, reply.why_not || this.status.textContent);
    const changed = this.takeModel();
    if (this.known) return changed && !this.locked ? this.describe() : undefined;
    this.known = true;
    this.quantities = reply.quantities;
    this.examples = reply.examples;
    const options = reply.quantities.map(({ name, label }) => ({ value: name, label }));
    const segments = new Segments({ "aria-label": t("Colour tokens by") }, options, options[0].value, (name) =>
      this.colour(this.quantities.find((one) => one.name === name)),
    );
    this.quantity = reply.quantities[0];
    fill(this.colours, el("span", { class: "rs-help" }, t("Colour tokens by")), segments.node, this.legend.node);
    if (!this.response.control.value) this.example();
    return this.locked ? undefined : this.describe();
  }

  /** Show the model of the run that was asked for, else the one of before. Tells whether it is another one now. */
  takeModel() {
    const before = this.model.value;
    const asked = this.awaited && this.models.find(({ run }) => run === this.awaited);
    if (this.awaited) this.missing = asked ? "" : t("The run that you come from has kept no reward model.");
    this.fail(this.missing);
    if (asked) memory.set("playground-model", asked.name);
    this.awaited = "";
    this.showModel(asked?.name || before || memory.get("playground-model", this.models[0]?.name || ""));
    return this.model.value !== before;
  }

  /** Another page leads to the reward model that a run has trained. */
  choose(run) {
    this.awaited = run;
    return this.boot();
  }

  /** A name that is not in the list stands in a field of its own. */
  showModel(name) {
    const listed = this.models.some((model) => model.name === name);
    this.choice.value = listed ? name : "";
    this.model.value = name;
    show(this.typed, !listed);
  }

  chosen() {
    this.missing = "";
    this.showModel(this.choice.value);
    if (this.choice.value) this.describe();
    else {
      fill(this.loaded);
      this.model.focus();
    }
  }

  /** Another reward model was named: what do its files say? */
  async describe() {
    const asked = this.model.value;
    const reply = await this.server
      .playground_model({ model: asked, view: onlyWatches() })
      .catch(() => ({ error: NO_ANSWER }));
    if (asked !== this.model.value) return;
    this.fail(this.missing || reply.error || "");
    fill(this.loaded, reply.model ? loadedPanel(reply.model) : null, reply.report ? measuredPanel(reply.report) : null);
  }

  example() {
    const texts = this.examples || [];
    if (!texts.length) return;
    const now = texts.findIndex((one) => one.response === this.response.control.value);
    const next = texts[(now + 1) % texts.length];
    this.prompt.control.value = next.prompt;
    this.response.control.value = next.response;
  }

  async ask() {
    if (this.key || this.locked) return;
    const asked = { model: this.model.value, prompt: this.prompt.control.value, response: this.response.control.value };
    const candidates = this.swap.value.split(",").map((word) => word.trim());
    for (const [name, value] of Object.entries(asked)) memory.set(`playground-${name}`, value);
    this.fail("");
    this.key = "asked";
    this.busy(true);
    const reply = await this.server
      .playground_ask({ ...asked, candidates: candidates.filter(Boolean), words: true, view: onlyWatches() })
      .catch(() => ({ error: NO_ANSWER }));
    this.key = reply.key || null;
    if (reply.error) this.fail(reply.error);
    if (reply.key) {
      const take = (answer) => this.receive(answer, asked, candidates);
      const complete = await followJob(this.poll, this.server.playground_news, reply.key, take);
      if (!complete) this.fail(NO_ANSWER);
    }
    this.key = null;
    this.busy(false);
  }

  receive({ events, state, place }, asked, candidates) {
    if (state === "waiting" && place) this.say(t("Others come first: {place}.", { place }));
    for (const event of events) {
      if (event.event === "progress") this.say(event.text);
      if (event.event === "model") this.say(t("Scoring"));
      if (event.event === "scored") this.draw(event, asked);
      if (event.event === "trying")
        this.say(t("Changing words: {done} of {of} texts", { done: integer(event.done), of: integer(event.of) }));
      if (event.event === "words") this.words.draw(event, asked.response, candidates.filter(Boolean));
      if (event.event === "failed") this.fail(event.error);
      if (event.event === "stopped") this.say(t("Stopped"));
    }
  }

  draw(event, asked) {
    const { score, ids, pieces, first, prefixes, scored, notes, cut } = event;
    this.scored = { ids, pieces, first };
    const after = (prefixes || []).slice(first);
    const before = [first ? prefixes?.[first - 1] : null, ...after];
    const change = after.map((value, index) => (Number.isFinite(before[index]) ? value - before[index] : null));
    const place =
      scored === null
        ? ""
        : t("the state of token {index} of {count}, “{text}”, is scored", {
            index: integer(scored + 1),
            count: integer(ids.length),
            text: spoken(pieces[scored]),
          });
    const where = place ? `  ${place}` : "";
    fill(this.score, t("Score"), " ", el("b", {}, number(score, 3)), el("span", { class: "rs-muted" }, where));
    each(this.notes, notes, (note) => el("p", { class: "rs-help" }, note));
    const tokens = {
      prompt_pieces: [...(cut ? ["… "] : []), ...pieces.slice(0, first)], // what was cut off was never read
      response_pieces: pieces.slice(first),
      arrays: { prefix: after, change },
    };
    show(this.tokens, prefixes !== null);
    show(this.result, true);
    this.words.wait();
    if (prefixes === null) return;
    this.view.set({ tokens, prompt: asked.prompt, score, stopped: undefined });
    this.colour(this.quantity);
    this.pick(tokens.response_pieces.length - 1, false);
  }

  colour(quantity) {
    this.quantity = quantity;
    if (!this.view.sample) return;
    this.view.colour(quantity);
    this.legend.update(quantity, this.view.values, SCALE_WORDS[quantity.name], this.view.scale);
  }

  pick(index, focus) {
    const { arrays, response_pieces: pieces } = this.view.sample.tokens;
    this.view.pin(index, !focus, focus);
    const about = { index: index + 1, text: spoken(pieces[index]), score: number(arrays.prefix[index], 3) };
    const said =
      index === pieces.length - 1
        ? t("Token {index} of the response, “{text}”: score of the whole text {score}", about)
        : t("Token {index} of the response, “{text}”: score if the text ended here {score}", about);
    const change = signed(arrays.change[index], 3);
    setText(this.card, arrays.change[index] === null ? said : said + t(", change by this token {change}", { change }));
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = (this.view.pinned ?? -1) + step;
    if (!step || !this.view.nodes[next]) return;
    event.preventDefault();
    this.pick(next, true);
  }

  stop() {
    if (this.key) this.server.playground_halt({ key: this.key, view: onlyWatches() }).catch(() => null);
  }

  busy(on) {
    show(this.cancel, on);
    this.button.disabled = on;
    this.node.setAttribute("aria-busy", String(on));
    this.say(on ? t("Starting") : "");
  }

  say(text) {
    setText(this.status, text);
  }

  fail(text) {
    setText(this.problem, text);
    show(this.problem, Boolean(text));
  }
}
