// The verdict in one sentence, and behind "why?" what the doctor found, each with its evidence and one way out.
import { el, elEach, fill, pushButton, redraw, setText, show } from "../shared/dom.js";
import { asOf, counted, readable } from "../shared/format.js";
import { Detail } from "./detail.js";
import { bracketed, clauses, t, tn } from "../shared/language.js";

const LEVELS = { alarm: t("alarm"), warning: t("warning"), note: t("note") };
const COUNTED = {
  alarm: (count) => counted(count, "alarm"),
  warning: (count) => counted(count, "warning"),
  note: (count) => counted(count, "note"),
};
const NOT_CHECKED = "not-checked";

export class Verdict {
  /**
   * @param fetch  asks the server
   * @param go     called with a piece of evidence that a person wants to see
   * @param fork   called with {run, step, changes} when a way out is chosen
   * @param title  title of a setting, by its dotted name
   * @param mend   called with the changes when a broken run shall be stopped, and begun again with them
   * @param saved  gives the steps that have a checkpoint, in ascending order
   */
  constructor({ fetch, go, fork, mend, title, saved }) {
    this.fetch = fetch;
    this.go = go;
    this.fork = fork;
    this.title = title;
    this.saved = saved;
    this.findings = new Detail(fetch, "diagnosis", (reply) => this.take(reply));
    this.words = el("span");
    this.note = el("span", { class: "rs-verdict-note" });
    this.asOf = el("span", { class: "rs-as-of rs-muted" });
    this.sentence = el("p", { class: "rs-verdict-sentence" }, this.words, this.note, this.asOf);
    this.counts = el("span", { class: "rs-verdict-counts rs-wrap" });
    this.why = el(
      "button",
      {
        type: "button",
        class: "rs-button rs-small",
        "aria-expanded": "false",
        "aria-controls": "rs-why",
        onclick: () => this.toggle(),
      },
      t("why?"),
    );
    this.mend = pushButton("rs-button rs-small rs-primary", "", () => mend(this.verdict.changes));
    this.body = el("div", { class: "rs-why", id: "rs-why", hidden: true });
    this.node = el(
      "section",
      { class: "rs-verdict rs-flow", "aria-label": t("Verdict") },
      el("i", { "aria-hidden": "true" }),
      this.sentence,
      this.counts,
      this.mend,
      this.why,
      this.body,
    );
    this.reset();
  }

  /** Say nothing yet, of another run. */
  reset(run = "") {
    this.run = run;
    this.verdict = null;
    this.version = "";
    this.diagnosis = null;
    this.drawnAs = "";
    this.findings.forget();
    fill(this.body);
    show(this.body, false);
    this.why.setAttribute("aria-expanded", "false");
    this.update(null);
    this.date(0);
  }

  /** @param failed  whether the run has failed: its cause stands above, and what might have come of it says nothing */
  update(verdict, failed = false) {
    this.verdict = verdict;
    this.failed = failed;
    this.node.dataset.doubted = String(Boolean(verdict?.doubted && this.besides)); // the colour of what is said
    this.node.dataset.kind = (verdict?.kind || "").replaceAll(" ", "-");
    // The page shows this only of a run with steps, so that a verdict is on its way; "too early" is one too.
    // Of a run that is over, the outcome in a person's words, and the verdict's name beside it; the doctor's own
    // sentence is behind "why?" then.
    setText(this.words, verdict ? readable(verdict.in_counts || verdict.sentence, 400) : t("Reading the run\u2026"));
    setText(this.note, this.besides ? ` ${readable(this.besides, 300)}` : "");
    this.sentence.classList.toggle("rs-muted", !verdict);
    const kind = verdict?.in_counts ? el("strong", { class: "rs-verdict-name" }, t(verdict.kind)) : null;
    const found = ["alarm", "warning", "note"].filter((level) => verdict?.[`${level}s`]);
    const levels = found.map((level) =>
      el("span", { class: `rs-level rs-is-${level}` }, COUNTED[level](verdict[`${level}s`])),
    );
    const parts = [kind, ...levels].filter(Boolean);
    const shown = parts.map((part) => part.textContent).join();
    if (this.counts.dataset.shown !== shown) {
      this.counts.dataset.shown = shown;
      fill(this.counts, parts);
    }
    show(this.why, Boolean(verdict));
  }

  /** @param newest  the newest step that is shown: a verdict that was made before says of which step it is */
  date(newest) {
    const old = asOf(this.verdict?.step, newest);
    setText(this.asOf, old && bracketed(old));
  }

  /** What stands beside the sentence: the doctor's first note. */
  get besides() {
    return this.failed || this.verdict?.in_counts ? "" : this.verdict?.note;
  }

  /** Whether the run has collapsed. */
  get broken() {
    return this.verdict?.kind === "collapsed";
  }

  /** Offer to stop a run that has collapsed, and to begin again with what its alarms would change. */
  offer(steers) {
    const names = Object.keys(this.verdict?.changes || {});
    show(this.mend, steers && this.broken && names.length > 0);
    setText(this.mend, t("Stop and repair: {list}", { list: this.listed(this.verdict?.changes || {}) }));
  }

  /** Settings with their values, in words. */
  listed(changes) {
    return clauses(Object.keys(changes).map((name) => `${this.title(name)} ${said(changes[name])}`));
  }

  /** @param version  changes with every new verdict */
  follow(version) {
    this.version = version;
    if (!this.body.hidden) this.findings.follow(version);
  }

  toggle() {
    const open = this.body.hidden;
    show(this.body, open);
    this.why.setAttribute("aria-expanded", String(open));
    if (!open) return;
    if (!this.body.firstChild) this.say(t("Looking"));
    this.findings.load(this.version);
  }

  /** Whether forks may be offered. */
  allow(operator) {
    if (this.operator === operator) return;
    this.operator = operator;
    if (this.drawnAs) this.draw(this.diagnosis);
  }

  take(diagnosis) {
    if (diagnosis.problem) this.say(diagnosis.problem);
    else this.draw(diagnosis);
  }

  /** One sentence in the place of the findings. */
  say(text) {
    if (this.body.textContent === text) return;
    this.drawnAs = "";
    redraw(this.body, this.why, () => fill(this.body, el("p", { class: "rs-hint" }, text)));
  }

  /** The first setting that a finding would change; empty for none. */
  async suspect() {
    const reply = this.diagnosis || (await this.fetch({ kind: "diagnosis" }));
    const found = (reply?.findings || []).find((finding) => Object.keys(finding.changes).length);
    return found ? Object.keys(found.changes)[0] : "";
  }

  draw(diagnosis) {
    this.diagnosis = diagnosis;
    const content = JSON.stringify([diagnosis, this.besides, this.operator, this.saved()]);
    if (this.drawnAs === content) return;
    this.drawnAs = content;
    redraw(this.body, this.why, () => this.fill(diagnosis));
  }

  fill({ verdict, findings }) {
    const open = new Set([...this.body.querySelectorAll("details[open]")].map((node) => node.dataset.check));
    const first = !this.body.querySelector(".rs-level");
    fill(
      this.body,
      this.verdict?.in_counts ? el("p", {}, readable(verdict.sentence, 600)) : null,
      verdict.reason === this.besides ? null : el("p", {}, readable(verdict.reason, 600)),
      verdict.notes
        .filter((note) => note !== this.besides)
        .map((note) => el("p", { class: "rs-muted" }, readable(note, 1500))),
      findings.map((finding, index) => this.finding(finding, open.has(finding.check) || (first && index === 0))),
      findings.length ? null : el("p", { class: "rs-muted" }, t("No check found anything to say.")),
      notChecked(verdict.not_checked, open.has(NOT_CHECKED)),
    );
  }

  finding(finding, open) {
    const level = LEVELS[finding.level] ? finding.level : "note";
    const fact = (label, text) => [el("dt", {}, label), el("dd", {}, readable(text, 800))];
    return el(
      "details",
      { class: `rs-finding rs-is-${level}`, open, data: { check: finding.check } },
      el(
        "summary",
        {},
        el("span", { class: `rs-level rs-is-${level}` }, LEVELS[level]),
        el("strong", {}, readable(finding.title, 300)),
        el("span", { class: "rs-muted" }, whenOf(finding)),
      ),
      el(
        "dl",
        {},
        fact(t("Rule"), finding.threshold),
        fact(t("Cause"), finding.cause),
        fact(t("What to do"), finding.advice),
        finding.evidence.length
          ? [el("dt", {}, t("See for yourself")), elEach("dd", {}, finding.evidence, (item) => this.evidence(item))]
          : null,
      ),
      this.wayOut(finding),
    );
  }

  evidence(item) {
    const place = [
      item.step === null ? null : t("step {step}", { step: item.step }),
      item.sample === null ? null : t("response {number}", { number: item.sample + 1 }),
      item.token === null ? null : t("token {number}", { number: item.token + 1 }),
    ].filter(Boolean);
    const quoted = item.token === null && item.sample !== null ? /“(.+?)”/.exec(item.text) : null;
    const phrase = quoted ? { text: quoted[1], place: "ending" } : null; // shown at its tokens
    const led = item.metric || item.step !== null;
    const text = readable(item.text, 300);
    if (!led) return el("span", { class: "rs-evidence" }, text);
    return pushButton("rs-evidence rs-link", [text, place.length ? bracketed(clauses(place)) : ""], () =>
      this.go({ ...item, phrase }),
    );
  }

  /** One button that starts a run with what would help; for operators, and where a setting helps. */
  wayOut({ changes, fork_step: latest }) {
    const { run } = this;
    const names = Object.keys(changes);
    if (!names.length || !this.operator) return null;
    const list = this.listed(changes);
    const before = latest === null ? [] : this.saved().filter((known) => known <= latest);
    const step = before.at(-1) ?? null; // a fork goes on from a checkpoint
    const words =
      step === null ? t("Start again with {list}", { list }) : t("Fork from step {step} with {list}", { step, list });
    const press = async (event) => {
      const button = event.currentTarget;
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      await this.fork({ run, step, changes });
      button.setAttribute("aria-disabled", "false");
    };
    const chip = el("b", { class: "rs-chip rs-purpose" }, t("Repair"));
    return el("p", { class: "rs-flow" }, chip, pushButton("rs-button rs-small", words, press));
  }
}

const whenOf = ({ since, until }) => {
  if (until === null) return t("since step {since}", { since });
  return until === since ? t("at step {since}", { since }) : t("from step {since} to {until}", { since, until });
};

const said = (value) =>
  typeof value === "number"
    ? String(Number(value.toPrecision(4))).replace("-", "−")
    : typeof value === "boolean"
      ? value
        ? t("on")
        : t("off")
      : readable(typeof value === "string" ? value : JSON.stringify(value), 60);

/** What could not be looked at, by its cause, folded: it says nothing of the run. */
function notChecked(groups, open) {
  const count = groups.reduce((sum, { titles }) => sum + titles.length, 0);
  if (!count) return null;
  return el(
    "details",
    { class: "rs-finding", open, data: { check: NOT_CHECKED } },
    el("summary", {}, tn("{count} check could not be made", "{count} checks could not be made", count)),
    el(
      "dl",
      {},
      groups.flatMap(({ cause, titles }) => [
        el("dt", {}, cause),
        el(
          "dd",
          {},
          el(
            "ul",
            {},
            titles.map((title) => el("li", {}, title)),
          ),
        ),
      ]),
    ),
  );
}
