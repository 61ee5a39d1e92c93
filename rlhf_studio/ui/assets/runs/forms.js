// What follows from a run: suggestions, a fork or variation with other settings, a sweep. The server checks each.
import { el, labelled, setText, show } from "../shared/dom.js";
import { integer, readable } from "../shared/format.js";
import { nextStages } from "../shared/next_stage.js";
import { scrolling, table } from "../shared/table.js";
import { Once, onlyWatches } from "../shared/visit.js";
import { form, input } from "../shared/dialogs.js";
import { Axis, Changes, plainText, settingNames } from "./fields.js";
import { t, tn } from "../shared/language.js";

const MOST_NAME = 120;
const SOME_KNOWN = t("What was recorded of its settings. The others are not known.");
const NONE_KNOWN = t("None of its settings was recorded.");

/** Opens the dialogs. `started` is called after something was queued, with {runs, names} and what they follow from. */
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
    if (reply.runs) this.started(reply, data.run);
    return reply;
  }

  /** Suggestions after a run, each started with one click. */
  async ideas(row) {
    const reply = await this.ask("experiment_ideas", { run: row.id });
    if (!reply) return;
    const none =
      reply.state === "finished"
        ? t("There is nothing to suggest for this run. Vary its settings, or fork it from a checkpoint.")
        : t("Suggestions come when the run has finished.");
    const said = el("p", { class: "rs-help", role: "status" });
    const list = reply.ideas.map((idea) => this.idea(row, idea, said));
    const toTrain = () => {
      this.host.querySelector("dialog[open]")?.close();
      this.train();
    };
    const stages = nextStages(reply.next, toTrain);
    const body = [stages, list.length ? el("ul", { class: "rs-ideas" }, list) : !stages && el("p", {}, none), said];
    await form(this.host, { title: t("Suggested next for {name}", { name: row.name }), body });
  }

  idea(row, idea, said) {
    const button = el("button", { type: "button", class: "rs-button rs-small rs-primary" }, t("Start"));
    button.setAttribute("aria-label", `Start: ${idea.title}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      const how = { how: idea.how, changes: idea.changes, axes: idea.sweep };
      const reply = await this.send({ run: row.id, ...how }).catch(() => null);
      const problem = reply ? reply.problem : t("The app does not answer. Look at the table before you try again.");
      setText(
        said,
        problem || t("Queued: {names}", { names: reply.names.map((name) => readable(name, 120)).join("; ") }),
      );
      said.classList.toggle("rs-problem", Boolean(problem));
      setText(button, problem ? t("Start") : t("Queued"));
      button.disabled = !problem;
    });
    const time = idea.takes ? t(" It takes {takes}.", { takes: idea.takes }) : "";
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
      el("option", { value: "" }, t("The beginning (a variation)")),
      reply.steps.map((step) => el("option", { value: step }, t("The checkpoint of step {step}", { step }))),
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
    const name = input({ maxlength: MOST_NAME, placeholder: t("This run's name, and what is different") });
    await form(this.host, {
      title: t("New run from {name}", { name: row.name }),
      wide: true,
      confirm: t("Start run"),
      body: [
        labelled(t("Begin at"), where, t("From a checkpoint, model, data and seed stay as they are.")),
        changes.node,
        labelled(t("Name (optional)"), name),
      ],
      submit: () => {
        const how = at() === null ? "variation" : "fork";
        return this.send({ run: row.id, how, step: at(), changes: changes.values, name: name.value });
      },
    });
  }

  /**
   * The same run with the next seed that it and its `twins`, which differ in the seed alone, do not have, from the
   * beginning: how far such runs lie apart is luck.
   */
  async seed(row, twins) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const seed = Math.max(reply.values["engine.seed"], ...twins.map((twin) => twin.seed)) + 1;
    const changes = { "engine.seed": seed };
    await form(this.host, {
      title: t("{name} with another seed", { name: row.name }),
      confirm: t("Start run"),
      body: [
        el(
          "p",
          {},
          t("The same settings with seed {seed}, from the beginning. Compare says how far luck goes.", {
            seed: integer(seed),
          }),
        ),
      ],
      submit: () => this.send({ run: row.id, how: "variation", step: null, changes, name: "" }),
    });
  }

  /** A run for each combination of values of one or two settings. */
  async vary(row) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const axes = [
      new Axis(reply, t("Setting"), reply.common[0].name),
      new Axis(reply, t("Second setting (optional)"), ""),
    ];
    const count = el("p", { class: "rs-help", role: "status" });
    const said = () => {
      const filled = axes.filter((axis) => axis.name);
      const runs = filled.reduce((product, axis) => product * axis.values.length, filled.length ? 1 : 0);
      const queued = tn("{count} run would be queued.", "{count} runs would be queued.", runs, {
        count: integer(runs),
      });
      setText(count, t("{queued} A sweep has 2 to {most_runs}.", { queued, most_runs: reply.most_runs }));
    };
    for (const axis of axes) axis.node.addEventListener("input", said);
    said();
    const name = input({ maxlength: MOST_NAME, placeholder: row.name });
    await form(this.host, {
      title: t("Vary settings of {name}", { name: row.name }),
      wide: true,
      confirm: t("Queue runs"),
      body: [
        el("p", { class: "rs-help" }, t("Each run begins at the beginning, with this run's settings but for these.")),
        ...axes.map((axis) => axis.node),
        count,
        labelled(t("Name (optional)"), name),
        settingNames(reply.titles),
      ],
      submit: async () => {
        const filled = axes.filter((axis) => axis.name);
        if (new Set(filled.map((axis) => axis.name)).size < filled.length)
          return { problem: t("Choose two different settings.") };
        const given = Object.fromEntries(filled.map((axis) => [axis.name, axis.values]));
        return this.send({ run: row.id, how: "sweep", axes: given, name: name.value });
      },
    });
  }

  /** All settings of a run, to look at. */
  async settings(row) {
    const reply = await this.ask("experiment_form", { run: row.id });
    if (!reply) return;
    const find = input({ type: "search", placeholder: t("Find a setting"), "aria-label": t("Find a setting") });
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
      t("Settings"),
      table(
        [],
        rows.map(({ node }) => node),
        { class: "rs-settings-table" },
      ),
    );
    const body = [about, ...(rows.length ? [find, box] : [])];
    await form(this.host, { title: t("Settings of {name}", { name: row.name }), wide: true, body });
  }
}

/** Tags and note of a run; resolves to {tags, note} or null. */
export async function askMarks(host, row) {
  const tags = input({ value: row.tags.join(", "), maxlength: 900 });
  const note = el("textarea", { class: "rs-input rs-note", maxlength: 4000, rows: 5 });
  note.value = row.remark;
  return form(host, {
    title: t("Tags and note of {name}", { name: row.name }),
    confirm: t("Save"),
    body: [labelled(t("Tags, with commas between them"), tags), labelled(t("Note"), note)],
    submit: async () => {
      const given = tags.value
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean);
      if (given.length > 20) return { problem: t("A run has at most 20 tags.") };
      if (given.some((tag) => tag.length > 40)) return { problem: t("A tag has at most 40 characters.") };
      return { tags: given, note: note.value };
    },
  });
}
