// Runs side by side: one sentence, the curves, what differs, the figures, the same prompts answered, and sweeps.
import { onPlainClick } from "../shared/links.js";
import { each, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { called, integer, number, readable, stateWord } from "../shared/format.js";
import { setGlossary } from "../shared/tips.js";
import { NO_ANSWER, onlyWatches, whyNot } from "../shared/visit.js";
import { Curves } from "./curves.js";
import { Prompts } from "./prompts.js";
import { SweepView } from "./sweep_view.js";
import {
  compared,
  countOf,
  figures,
  givePlaces,
  lineShown,
  partners,
  runHead,
  severalRuns,
  showLines,
  swatch,
  written,
} from "./values.js";
import { t, tn } from "../shared/language.js";

const DIFFER = t("Settings that differ");
const GIVEN = t("Known of some runs only");
export const MOST_COMPARED = 20;
const MOST_OFFERED = 100;
const FEW = 3; // from so many runs on the list alone offers more
const FRESH = 10_000; // milliseconds for which an answer that was asked for early is used

const went = ({ name, score_first, score_last, gold_first, gold_last }) => ({
  name: readable(name, 80),
  score: `${number(score_first)} \u2192 ${number(score_last)}`,
  gold: `${number(gold_first)} \u2192 ${number(gold_last)}`,
});

/** What is said of a run with a verdict that decides more than any number, the gravest first. */
const WORST = {
  "exploiting the reward": (row) =>
    Number.isFinite(row.gold_last)
      ? t("The judge was fooled in \u201c{name}\u201d: its score went {score}, its gold score {gold}.", went(row))
      : t("The judge may have been fooled in \u201c{name}\u201d: its score went {score}.", went(row)),
  // A policy that has gone to pieces may have any score: what the doctor saw says it.
  collapsed: ({ name, verdict }) =>
    t("\u201c{name}\u201d: {sentence}", { name: readable(name, 80), sentence: readable(verdict.sentence, 400) }),
};

/** The few of them that are offered by name: the newest run of one's own, and the recordings. */
function likeliest(found) {
  const own = found.filter((row) => !row.recording).slice(0, 1);
  return [...own, ...found.filter((row) => row.recording).slice(0, 2)];
}

/** A button for each of the likeliest of the runs that were `found`; `add` is called with the id of the chosen one. */
export const offers = (found, add) =>
  likeliest(found).map((row) =>
    pushButton("rs-button rs-small rs-cut rs-compare-offer", `+ ${readable(called(row), 80)}`, () => add(row.id)),
  );

export class CompareView {
  /**
   * @param poll    the page's
   * @param back    called to go back to the table
   * @param go      called with (ids, metrics) when the address should say so
   * @param open    called with (event, {id}) to show a run
   * @param rows    gives all runs, by their ids
   */
  constructor({ host, server, plotly, poll, back, go, open, rows }) {
    this.host = host;
    this.server = server;
    this.poll = poll;
    this.back = back;
    this.go = go;
    this.open = open;
    this.rows = rows;
    this.ids = [];
    this.said = { notes: [], luck: "" };
    this.title = el("h2", { tabindex: "-1" });
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.worst = el("ul", { class: "rs-compare-worst", hidden: true });
    this.verdict = el("p", { class: "rs-compare-verdict" });
    this.notes = el("ul", { class: "rs-compare-notes" });
    this.legend = el("ul", { class: "rs-compare-runs rs-wrap", "aria-label": t("Runs") });
    this.curves = new Curves({
      host,
      plotly,
      ask: (metrics) => this.ask("curves", { metrics }),
      chosen: (metrics) => this.chose(metrics),
      drew: ({ runs, groups, places }) => showLines(this.content, runs, groups, places),
    });
    this.settings = el("section", { class: "rs-panel rs-box" });
    this.summary = el("section", { class: "rs-panel rs-box" });
    this.prompts = new Prompts((prompt) => this.ask("answers", { prompt }));
    this.sweep = new SweepView((metric) => this.ask("sweep", { metric }));
    this.content = el(
      "div",
      { class: "rs-compare-content", hidden: true },
      el("div", { class: "rs-compare-head" }, this.worst, this.verdict, this.notes),
      this.legend,
      this.curves.node,
      this.sweep.node,
      el("div", { class: "rs-compare-tables" }, this.summary, this.settings),
      this.prompts.node,
    );
    this.another = el("select", {
      class: "rs-input",
      "aria-label": t("Compare with another run"),
      onchange: () => this.add(this.another.value),
    });
    this.likely = el("div", { class: "rs-compare-offers rs-wrap", role: "group", "aria-label": t("Compare with") });
    const button = pushButton("rs-button rs-small", t("\u2190 All runs"), () => this.back());
    this.node = el(
      "div",
      { class: "rs-compare", hidden: true },
      el("div", { class: "rs-compare-top rs-flow" }, button, this.title, this.likely, this.another),
      this.problem,
      this.content,
    );
  }

  ask(name, data = {}) {
    return this.server[name]({ runs: this.ids, view: onlyWatches(), ...data }).catch(() => ({ problem: NO_ANSWER }));
  }

  chose(metrics) {
    this.metrics = metrics;
    this.go(this.ids, metrics);
  }

  /** Ask already, while the person still ticks, one question at a time: the answer is there at the click. */
  async prepare(ids) {
    this.next = ids.slice(0, MOST_COMPARED);
    if (this.preparing) return;
    this.preparing = true;
    while (this.next) {
      const runs = this.next;
      this.next = null;
      this.early = { key: runs.join(), at: Date.now(), reply: this.ask("compare", { runs }) };
      const { reply } = this.early;
      await reply;
    }
    this.preparing = false;
  }

  /** What the app says of these runs; null when others are asked for meanwhile. */
  async answer(metrics, wanted) {
    const { early, ids } = this;
    const fits = early && !metrics.length && early.key === ids.join() && Date.now() - early.at < FRESH;
    this.early = this.next = null;
    const reply = fits ? await early.reply : null;
    if (reply && reply.problem !== NO_ANSWER) return reply;
    const ask = () => this.server.compare({ runs: ids, view: onlyWatches(), metrics });
    return this.poll.first(ask, wanted).catch((error) => ({ problem: whyNot(error) }));
  }

  /** Runs began or ended: what is said of them is asked for anew. */
  refresh(changed) {
    if (!this.node.hidden && changed.some((id) => this.ids.includes(id))) this.show(this.ids, this.metrics, false);
  }

  /** Show these runs; `metrics` are the curves to draw, empty for the usual ones. */
  async show(ids, metrics, focus) {
    this.ids = ids.slice(0, MOST_COMPARED);
    this.metrics = metrics;
    setText(this.title, tn("Compare {count} run", "Compare {count} runs", this.ids.length));
    if (focus) this.title.focus();
    this.offerAnother();
    const ticket = (this.ticket = Symbol("compare"));
    const wanted = () => ticket === this.ticket;
    const reply = await this.answer(metrics, wanted);
    if (!reply || !wanted()) return;
    setText(this.problem, reply.problem || "");
    show(this.problem, Boolean(reply.problem));
    show(this.content, !reply.problem);
    if (!reply.problem) this.draw(reply);
  }

  add(id) {
    this.go([...this.ids, id], this.metrics, true);
  }

  /** What else can be laid beside these runs. */
  offerAnother() {
    const runs = this.ids.length < MOST_COMPARED ? partners(this.rows(), this.ids).slice(0, MOST_OFFERED) : [];
    const option = (row) => el("option", { value: row.id }, readable(called(row), 120));
    const offered = JSON.stringify(runs.map((row) => [row.id, called(row)]));
    if (offered === this.offered) return;
    this.offered = offered;
    fill(this.likely, this.ids.length < FEW ? offers(runs, (id) => this.add(id)) : []);
    fill(this.another, el("option", { value: "" }, t("Compare with another run\u2026")), runs.map(option));
    show(this.another, runs.length > 0);
  }

  /** What went wrong with some of these runs comes before which of them is ahead: a fooled judge praises its run. */
  drawWorst() {
    const rows = this.ids.map((id) => this.rows().get(id)).filter((row) => row?.verdict);
    const told = Object.entries(WORST).flatMap(([kind, say]) =>
      rows.filter(({ verdict }) => verdict.kind === kind).map(say),
    );
    each(this.worst, told, (sentence) => el("li", {}, readable(sentence, 500)));
    show(this.worst, told.length > 0);
    this.drawNotes();
  }

  /** What to bear in mind; no luck turns a policy that has collapsed into the better one. */
  drawNotes() {
    const { notes, luck } = this.said;
    const collapsed = this.ids.some((id) => this.rows().get(id)?.verdict?.kind === "collapsed");
    const told = collapsed ? notes.filter((note) => note !== luck) : notes;
    each(this.notes, told, (note) => el("li", {}, readable(note, 600)));
  }

  draw(reply) {
    setGlossary({ ...reply.glossary });
    this.said = reply;
    this.drawWorst();
    setText(this.verdict, readable(reply.verdict, 1500));
    givePlaces(reply.runs, reply.groups);
    this.drawLegend(reply);
    this.curves.draw(reply);
    this.drawSettings(reply);
    this.drawSummary(reply);
    this.prompts.draw(reply);
    this.sweep.draw(reply);
  }

  drawLegend({ runs, groups }) {
    const seeds = (run) =>
      severalRuns(groups).includes(groups[run.group])
        ? ` \u00b7 ${t("seed {seed}", { seed: run.seed ?? "\u2013" })}`
        : "";
    const settings = (run) => (run.settings_known ? "" : ` \u00b7 ${t("not all settings known")}`);
    fill(
      this.legend,
      runs.map((run) =>
        el(
          "li",
          {},
          swatch(run.place),
          el(
            "span",
            {},
            el(
              "a",
              { href: `?tab=live&run=${run.run_id}`, onclick: onPlainClick(() => this.open({ id: run.run_id })) },
              readable(run.label, 200),
            ),
            el(
              "span",
              { class: "rs-muted" },
              `${stateWord(run.state)}, ${t("step {step}", { step: integer(run.step) })}${seeds(run)}${settings(run)}`,
            ),
          ),
          runs.length > 1
            ? el(
                "button",
                {
                  type: "button",
                  class: "rs-icon",
                  "aria-label": t("Take {label} out", { label: run.label }),
                  onclick: () =>
                    this.go(
                      this.ids.filter((id) => id !== run.run_id),
                      this.metrics,
                      true,
                    ),
                },
                "\u00d7",
              )
            : null,
        ),
      ),
      severalRuns(groups).map((group) =>
        el(
          "li",
          { style: { visibility: lineShown(group.place) } },
          swatch(group.place),
          el(
            "span",
            { class: "rs-muted" },
            t("{mean}; the band is from the lowest to the highest", { mean: group.mean }),
          ),
        ),
      ),
    );
  }

  drawSettings({ runs, settings }) {
    const known = runs.every((run) => run.settings_known);
    const same = known ? t("All settings are the same.") : t("No setting that is known of all of them differs.");
    const rowsOf = (rows, label) =>
      compared(
        [t("Setting"), ...runs.map((run) => runHead(run))],
        rows.map((row) => [
          el("th", { scope: "row" }, row.title, el("code", {}, row.setting)),
          ...row.values.map((value, run) => el("td", {}, row.known[run] ? written(value) : "\u2013")),
        ]),
        label,
      );
    const differ = settings.filter((row) => row.differs);
    const given = settings.filter((row) => !row.differs);
    const none = el("p", { class: "rs-hint" }, runs.length > 1 ? same : t("One run alone has nothing to differ from."));
    fill(
      this.settings,
      el("h3", {}, DIFFER),
      differ.length ? rowsOf(differ, DIFFER) : none,
      given.length ? [el("h3", {}, GIVEN), rowsOf(given, GIVEN)] : null,
    );
  }

  drawSummary({ runs, titles }) {
    const names = Object.keys(runs[0].last).filter((name) => runs.some((run) => run.last[name] !== null));
    const ppo = runs.every((run) => run.stage === "ppo");
    const cells = (name) => {
      const figure = figures(name, runs);
      return runs.map((run) => {
        const [first, last] = [run.first[name], run.last[name]];
        const told = last === null ? "\u2013" : `${figure(first)} \u2192 ${figure(last)}${countOf(name, run)}`;
        return el("td", { class: "rs-figure" }, told);
      });
    };
    const body = names.length
      ? compared(
          [
            ppo ? t("First step, and the mean of the last tenth") : t("At the beginning, and now"),
            ...runs.map((run) => runHead(run)),
          ],
          names.map((name) => [el("th", { scope: "row" }, titles[name] || name), ...cells(name)]),
          t("Figures"),
        )
      : el("p", { class: "rs-hint" }, t("None of these runs has recorded a step yet."));
    fill(this.summary, el("h3", {}, t("Figures")), body);
  }
}
