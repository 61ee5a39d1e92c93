// What follows from a run: suggestions, a fork or variation with other settings, a sweep. The server checks each.
import { el, labelled, setText, show } from "../shared/dom.js";
import { counted, integer, readable } from "../shared/format.js";
import { nextStages } from "../shared/next_stage.js";
import { scrolling, table } from "../shared/table.js";
import { Once, onlyWatches } from "../shared/visit.js";
import { form, input } from "../shared/dialogs.js";
import { Axis, Changes, plainText, settingNames } from "./fields.js";

const MOST_NAME = 120;
const SOME_KNOWN = "What was recorded of its settings. The others are not known.";
const NONE_KNOWN = "None of its settings was recorded.";

/** Opens the dialogs. `started` is called with {runs, names} after something was queued. */
export class Forms {
  constructor({ host, server, started, wanted, train }) {
    this.host = host;
    this.server = server;
    this.started = started;
    this.wanted = wanted;
    this.train = train;
    this.once = new Once();
  }

  ask(name, data) {
    return this.wanted(this.server[name]({ ...data, view: onlyWatches() }));
  }

  async send(data) {
    const send = (named) => this.server.experiment_start({ ...named, view: onlyWatches() });
    const reply = await this.once.ask(data, send);
    if (reply.runs) this.started(reply);
    return reply;
  }

  /** Suggestions after a run, each started with one click. */
  async ideas(row) {
    const reply = await this.ask("experiment_ideas", { run: row.id });
    if (!reply) return;
    const none =
      reply.state === "finished"
        ? "There is nothing to suggest for this run. Vary its settings, or fork it from a checkpoint."
        : "Suggestions come when the run has finished.";
    const said = el("p", { class: "rs-help", role: "status" });
    const list = reply.ideas.map((idea) => this.idea(row, idea, said));
    const toTrain = () => {
      this.host.querySelector("dialog[open]")?.close();
      this.train();
    };
    const stages = nextStages(reply.next, toTrain);
    const body = [stages, list.length ? el("ul", { class: "rs-ideas" }, list) : !stages && el("p", {}, none), said];
    await form(this.host, { title: `Suggested next for ${row.name}`, body });
  }

  idea(row, idea, said) {
    const button = el("button", { type: "button", class: "rs-button rs-small rs-primary" }, "Start");
    button.setAttribute("aria-label", `Start: ${idea.title}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      const how = { how: idea.how, changes: idea.changes, axes: idea.sweep };
      const reply = await this.send({ run: row.id, ...how }).catch(() => null);
      const problem = reply ? reply.problem : "The app does not answer. Look at the table before you try again.";
      setText(said, problem || `Queued: ${reply.names.map((name) => readable(name, 120)).join("; ")}`);
      said.classList.toggle("rs-problem", Boolean(problem));
      setText(button, problem ? "Start" : "Queued");
      button.disabled = !problem;
    });
    const time = idea.takes ? ` It takes ${idea.takes}.` : "";
    return el(
      "li",
      {},
      el("div", {}, el("strong", {}, idea.title), el("p", { class: "rs-help" }, idea.why, time)),
      button,
    );
  }

  /** A new run from a checkpoint, or from the beginning, with other settings. */
  async fork(row) {
    let reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const changes = new Changes(reply);
    const where = el(
      "select",
      { class: "rs-input" },
      el("option", { value: "" }, "The beginning (a variation)"),
      reply.steps.map((step) => el("option", { value: step }, `The checkpoint of step ${step}`)),
    );
    if (reply.steps.length) where.value = String(reply.steps.at(-1));
    const at = () => (where.value === "" ? null : Number(where.value));
    where.addEventListener("change", async () => {
      reply = (await this.ask("experiment_form", { run: row.id, step: at() })) || reply;
      changes.base(reply);
    });
    if (at() !== null) {
      reply = (await this.ask("experiment_form", { run: row.id, step: at() })) || reply;
      changes.base(reply);
    }
    const name = input({ maxlength: MOST_NAME, placeholder: "This run's name, and what is different" });
    await form(this.host, {
      title: `New run from ${row.name}`,
      wide: true,
      confirm: "Start run",
      body: [
        labelled("Begin at", where, "From a checkpoint, model, data and seed stay as they are."),
        changes.node,
        labelled("Name (optional)", name),
      ],
      submit: () => {
        const how = at() === null ? "variation" : "fork";
        return this.send({ run: row.id, how, step: at(), changes: changes.values, name: name.value });
      },
    });
  }

  /** The same run with the next seed, from the beginning: how far two such runs lie apart is luck. */
  async seed(row) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const seed = reply.values["engine.seed"] + 1;
    const changes = { "engine.seed": seed };
    await form(this.host, {
      title: `${row.name} with another seed`,
      confirm: "Start run",
      body: [
        el(
          "p",
          {},
          `The same settings with seed ${integer(seed)}, from the beginning. Compare says how far luck goes.`,
        ),
      ],
      submit: () => this.send({ run: row.id, how: "variation", step: null, changes, name: "" }),
    });
  }

  /** A run for each combination of values of one or two settings. */
  async vary(row) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const axes = [new Axis(reply, "Setting", reply.common[0].name), new Axis(reply, "Second setting (optional)", "")];
    const count = el("p", { class: "rs-help", role: "status" });
    const said = () => {
      const filled = axes.filter((axis) => axis.name);
      const runs = filled.reduce((product, axis) => product * axis.values.length, filled.length ? 1 : 0);
      const queued = runs === 1 ? "1 run would be queued." : `${counted(runs, "run")} would be queued.`;
      setText(count, `${queued} A sweep has 2 to ${reply.most_runs}.`);
    };
    for (const axis of axes) axis.node.addEventListener("input", said);
    said();
    const name = input({ maxlength: MOST_NAME, placeholder: row.name });
    await form(this.host, {
      title: `Vary settings of ${row.name}`,
      wide: true,
      confirm: "Queue runs",
      body: [
        el("p", { class: "rs-help" }, "Each run begins at the beginning, with this run's settings but for these."),
        ...axes.map((axis) => axis.node),
        count,
        labelled("Name (optional)", name),
        settingNames(reply.titles),
      ],
      submit: async () => {
        const filled = axes.filter((axis) => axis.name);
        if (new Set(filled.map((axis) => axis.name)).size < filled.length)
          return { problem: "Choose two different settings." };
        const given = Object.fromEntries(filled.map((axis) => [axis.name, axis.values]));
        return this.send({ run: row.id, how: "sweep", axes: given, name: name.value });
      },
    });
  }

  /** All settings of a run, to look at. */
  async settings(row) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const find = input({ type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
    const some = reply.known && Object.keys(reply.known).length > 0;
    const about = reply.known && el("p", {}, some ? SOME_KNOWN : NONE_KNOWN);
    const rows = Object.entries(reply.known || reply.values).map(([key, value]) => {
      const title = reply.titles[key] || key;
      const plain = typeof value === "object" && value !== null ? JSON.stringify(value, null, 1) : plainText(value);
      const node = el("tr", {}, el("td", {}, title, el("code", {}, key)), el("td", {}, readable(plain, 2000)));
      return { node, text: `${title} ${key}`.toLowerCase() };
    });
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      for (const { node, text } of rows) show(node, text.includes(wanted));
    });
    const box = scrolling(
      "rs-scroll",
      "Settings",
      table(
        [],
        rows.map(({ node }) => node),
        { class: "rs-settings-table" },
      ),
    );
    const body = [about, ...(rows.length ? [find, box] : [])];
    await form(this.host, { title: `Settings of ${row.name}`, wide: true, body });
  }
}

/** Tags and note of a run; resolves to {tags, note} or null. */
export async function askMarks(host, row) {
  const tags = input({ value: row.tags.join(", "), maxlength: 900 });
  const note = el("textarea", { class: "rs-input rs-note", maxlength: 4000, rows: 5 });
  note.value = row.remark;
  return form(host, {
    title: `Tags and note of ${row.name}`,
    confirm: "Save",
    body: [labelled("Tags, with commas between them", tags), labelled("Note", note)],
    submit: async () => {
      const given = tags.value
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean);
      if (given.length > 20) return { problem: "A run has at most 20 tags." };
      if (given.some((tag) => tag.length > 40)) return { problem: "A tag has at most 40 characters." };
      return { tags: given, note: note.value };
    },
  });
}
