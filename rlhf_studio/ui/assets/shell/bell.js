// The bell: what has happened to the runs of this workspace, and whether this browser tells of it.
import { each, el, pushButton, setText, show, svg } from "../shared/dom.js";
import { clock, readable } from "../shared/format.js";
import { lasting } from "../shared/lasting.js";
import { pageLink } from "../shared/links.js";
import { notices } from "../shared/notices.js";
import { Poll, REST } from "../shared/poll.js";
import { Drop } from "./drop.js";
import { colon, t } from "../shared/language.js";

const LOOK = 15000; // milliseconds between two looks, where somebody wants to be told
const DAY = 86400; // seconds
const BELL = "M8 2a4 4 0 0 0-4 4v3l-1.5 2.5h11L12 9V6a4 4 0 0 0-4-4zM6.5 13.5a1.5 1.5 0 0 0 3 0";
const WHY = {
  impossible: t("This browser sends notifications only to pages on this machine (localhost) or with https."),
  refused: t("Your browser does not let this page send notifications. Its settings for this page can change that."),
};
const WAIT = t("None yet: no run has ended here.");

export class Bell {
  /** @param server  whose `news` are told */
  constructor(server) {
    this.switch = pushButton("rs-button rs-small", "", () => this.want());
    this.note = el("p", { class: "rs-help", role: "status" });
    this.list = el("ul", { class: "rs-news" });
    this.drop = new Drop({
      id: "rs-bell",
      name: t("Notifications"),
      sign: svg("svg", { viewBox: "0 0 16 16", class: "rs-bell", "aria-hidden": "true" }, svg("path", { d: BELL })),
      content: [
        el("h2", {}, t("What happened last")),
        this.list,
        el("div", { class: "rs-news-switch rs-column" }, this.switch, this.note),
      ],
      onopen: () => this.open(),
    });
    const follows = () => notices.wanted;
    this.poll = new Poll({ awake: () => document.visibilityState === "visible", follows });
    this.news = this.poll.add({
      ask: () => server.news({}),
      receive: (reply) => this.receive(reply),
      asleep: !notices.wanted,
    });
    this.list.addEventListener("click", ({ target }) => target instanceof HTMLAnchorElement && this.drop.close());
    this.draw();
    if (notices.wanted) this.news.wake();
  }

  async want() {
    await notices.want(!notices.wanted);
    this.draw();
    if (notices.wanted) this.news.wake();
  }

  draw() {
    const on = notices.wanted;
    const why = !notices.possible ? WHY.impossible : notices.refused ? WHY.refused : "";
    setText(this.switch, on ? t("Stop notifying me") : t("Notify me when a run ends"));
    show(this.switch, !why);
    const said = on
      ? t("You are told of ends and alarms while RLHF Studio is open in some tab of this browser.")
      : t("Of alarms too, also while another tab is in front. The browser asks you once whether it may.");
    setText(this.note, why || said);
    this.drop.button.classList.toggle("rs-on", on);
    this.drop.say(on ? t("on") : t("off"));
  }

  open() {
    if (!this.list.childElementCount) each(this.list, [WAIT], (words) => el("li", { class: "rs-help" }, words));
    this.opened = true;
    this.draw(); // the browser's own settings may have changed
    this.news.wake();
  }

  receive({ events, now, problem }) {
    for (const event of [...events].reverse()) this.tell(event, now);
    lasting.set("news", events[0]?.at ?? lasting.get("news", 0));
    const rows = events.length ? events.map((event) => row(event, now)) : [el("li", {}, problem || WAIT)];
    if (this.opened) each(this.list, rows, (node) => node);
    return notices.wanted ? LOOK : REST;
  }

  /** What is new since this browser last looked; a look long ago tells nothing of what is over. */
  tell({ run, name, what, text, at, kind }, now) {
    const seen = lasting.get("news", null);
    if (seen === null || at <= seen || now - at > DAY) return;
    notices.tell({ key: `${run}:${kind || what}`, title: colon(name, what), text: readable(text, 300) });
  }
}

function row({ run, name, what, text, at, parent }, now) {
  const when = now - at < DAY ? clock(at) : new Date(1000 * at).toLocaleDateString();
  return el(
    "li",
    {},
    el("div", { class: "rs-news-head" }, pageLink(name, "live", { run }), el("span", { class: "rs-help" }, when)),
    el("div", {}, el("span", { class: "rs-news-what", "data-state": what }, what), colon("", readable(text, 200))),
    parent && pageLink(t("Compare it with the run that it follows from"), "runs", { compare: `${parent},${run}` }),
  );
}
