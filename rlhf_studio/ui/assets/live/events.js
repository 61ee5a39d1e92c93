// What happened, line by line, and the engine's log.
import { el, fill, setText, show } from "../shared/dom.js";
import { clock } from "../shared/format.js";
import { Segments } from "../shared/segments.js";
import { colon, t } from "../shared/language.js";

const MOST_ROWS = 300;
const LOG_EVERY = 3000;
const WORDS = { info: "", warning: "warning", error: "error" };

export class EventPanel {
  constructor(fetch) {
    this.fetch = fetch;
    this.tab = "events";
    this.rows = [];
    this.logAt = 0;
    this.choice = new Segments(
      { "aria-label": t("Events or log") },
      [
        { value: "events", label: t("Events") },
        { value: "log", label: t("Log") },
      ],
      "events",
      (tab) => this.open(tab),
    );
    this.find = el("input", {
      class: "rs-input",
      type: "search",
      placeholder: t("Find in events"),
      "aria-label": t("Find in events"),
      oninput: () => this.filter(),
    });
    this.list = el("ol", { class: "rs-events", tabindex: "0", "aria-label": t("Events, the newest first") });
    this.log = el("pre", { class: "rs-log", tabindex: "0", "aria-label": t("The end of the engine's log") });
    this.node = el(
      "section",
      { class: "rs-panel rs-box", "aria-label": t("Events and log") },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, t("Events and log")), this.choice.node, this.find),
      this.list,
      this.log,
    );
    show(this.log, false);
  }

  reset() {
    this.rows = [];
    this.logAt = 0;
    fill(this.list);
    setText(this.log, "");
    this.open("events");
  }

  open(tab) {
    this.tab = tab;
    this.choice.show(tab);
    show(this.list, tab === "events");
    show(this.find, tab === "events");
    show(this.log, tab === "log");
    this.logAt = 0;
    if (tab === "log") this.refreshLog();
  }

  /** New events, oldest first; `all` when they replace what is there. */
  update(events, all) {
    if (all) {
      this.rows = [];
      fill(this.list);
    }
    for (const event of events) this.add(event);
    if (!this.rows.length && !this.list.firstChild)
      this.list.append(el("li", { class: "rs-hint" }, t("No events were recorded so far.")));
    if (this.tab === "log") this.refreshLog();
  }

  add(event) {
    const last = this.rows[this.rows.length - 1];
    if (last && event.id <= last.event.id) return;
    if (!last) fill(this.list);
    const node = el(
      "li",
      { class: `rs-level-${event.level}` },
      el("time", {}, clock(event.time)),
      el("span", { class: "rs-event-step" }, event.step ? t("step {step}", { step: event.step }) : t("start")),
      el(
        "span",
        { class: "rs-event-text" },
        WORDS[event.level] ? el("b", {}, colon(WORDS[event.level], "")) : null,
        event.text,
      ),
    );
    this.rows.push({ event, node });
    show(node, this.fits(node));
    this.list.prepend(node);
    if (this.rows.length > MOST_ROWS) this.rows.shift().node.remove();
  }

  fits(node) {
    return node.textContent.toLowerCase().includes(this.find.value.trim().toLowerCase());
  }

  filter() {
    for (const { node } of this.rows) show(node, this.fits(node));
  }

  async refreshLog() {
    if (Date.now() - this.logAt < LOG_EVERY) return;
    this.logAt = Date.now();
    const reply = await this.fetch({ kind: "log" });
    if (!reply) return;
    const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 20;
    setText(this.log, reply.problem || reply.text || t("The log is empty."));
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }
}
