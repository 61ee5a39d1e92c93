// The Learn page: a list of its places, and the one that is open. Numbers come from the app; none is computed here.
import { address } from "../shared/address.js";
import { each, el, fill, setText, show } from "../shared/dom.js";
import { pagePoll } from "../shared/lost.js";
import { setGlossary } from "../shared/tips.js";
import { Breaking } from "./breaking.js";
import { Chapters } from "./chapters.js";
import { Lesson } from "./lesson/lesson.js";
import { Search } from "./search.js";
import { Teaching } from "./teaching/teaching.js";
import { Tour } from "./tour.js";
import { language, t } from "../shared/language.js";

/** What stands beside the lessons: the place that the address names, its title in the list, and what shows it. */
const PLACES = [
  { place: "tour", title: t("Tour of the code"), make: (page) => new Tour(page) },
  { place: "break", title: t("Break it on purpose"), make: (page) => new Breaking(page) },
  {
    place: "gallery",
    title: t("Gallery"),
    make: (page) =>
      new Later(async () => {
        const { Gallery } = await import("../gallery/gallery.js");
        return new Gallery(page);
      }),
  },
  { place: "teach", title: t("For teachers"), make: (page) => new Teaching(page) },
  {
    place: "help",
    title: t("Help"),
    make: (page) =>
      new Later(async () => {
        const { Help } = await import("../help/help.js");
        return new Help(page);
      }),
  },
];

/** A place that is loaded when it is opened. */
class Later {
  constructor(load) {
    this.load = load;
    this.place = null;
  }

  async go(params) {
    const place = await this.load();
    this.place ??= place;
    await this.place.go(params);
  }

  leave() {
    this.place?.leave();
  }
}

/** Scroll the box that an entry stands in, and not the page, so that the entry is seen. */
function intoSight(entry) {
  const boxes = [entry.closest(".rs-learn-list"), entry.closest(".rs-learn-nav")];
  const box = boxes.find((one) => one && one.scrollHeight > one.clientHeight + 1);
  if (!box) return;
  const [inner, outer] = [entry.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inner.bottom > outer.bottom || inner.top < outer.top)
    box.scrollTop += inner.top - outer.top - box.clientHeight / 3;
}

class LearnPage {
  constructor({ host, server }) {
    this.host = host;
    this.server = server;
    this.lessons = [];
    this.stations = [];
    this.heading = el("h2", {}, t("Lessons"));
    this.list = el("ol", { class: "rs-learn-list" });
    this.further = el("ul", { class: "rs-learn-places rs-wrap" });
    this.article = el("article", { class: "rs-learn-lesson", tabindex: "-1" });
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    this.poll = pagePoll(host);
    this.search = new Search(this);
    this.places = { "": new Lesson(this) };
    for (const { place, make } of PLACES) this.places[place] = make(this);
    fill(
      host,
      el(
        "div",
        { class: "rs-learn-columns" },
        el(
          "nav",
          { class: "rs-learn-nav", "aria-label": t("Lessons and documents") },
          this.heading,
          this.search.node,
          this.further,
          this.list,
        ),
        el("div", {}, this.poll.notice, this.problem, this.search.results, this.article),
      ),
    );
    address.watch("learn", (params) => {
      this.search.close();
      this.go(params);
    });
  }

  async start() {
    const { lessons, stations, glossary } = await this.need("learn_shelf");
    this.lessons = lessons;
    this.stations = stations;
    setGlossary(glossary);
    this.chapters = new Chapters(lessons, (...about) => this.entry(...about));
    each(this.further, PLACES, ({ place, title }) => this.entry({ place }, title, ""));
    await this.go(address.params("learn"));
  }

  entry(params, title, number) {
    const name = params.lesson || params.show || params.place;
    const attributes = { type: "button", class: "rs-learn-entry", "data-entry": name };
    const shown = [el("span", { class: "rs-learn-number", "aria-hidden": "true" }, number), el("span", {}, title)];
    return el("li", {}, el("button", { ...attributes, onclick: () => this.choose(params) }, shown));
  }

  language() {
    return language();
  }

  /** A reader chose a lesson or another place. */
  async choose(params) {
    address.put("learn", params, true);
    this.search.close();
    await this.go(params);
    if (params.scene) return; // the lesson has led there
    this.article.focus({ preventScroll: true });
    this.article.scrollIntoView({ block: "start" });
  }

  /** Show what the address names. */
  async go(params) {
    const wanted = this.places[params.place] ? params.place : "";
    if (this.open !== wanted) this.places[this.open]?.leave();
    if (this.open !== wanted) this.contents(t("Lessons"), this.chapters.nodes);
    this.open = wanted;
    if (wanted) this.mark(wanted);
    await this.places[wanted].go(params);
  }

  /** What the list beside the text leads to. */
  contents(title, entries) {
    setText(this.heading, title);
    fill(this.list, entries);
  }

  /** Say in the list which entries are open. */
  mark(...names) {
    for (const name of names) this.chapters.open(name);
    for (const button of this.host.querySelectorAll(".rs-learn-entry")) {
      const open = names.includes(button.dataset.entry);
      button.setAttribute("aria-current", open ? "page" : "false");
      if (open) intoSight(button);
    }
  }

  /** What a place cannot open without, asked for until it comes; null when it is not `wanted` any more. */
  need(name, question = {}, wanted = () => true) {
    return this.poll.first(() => this.server[name]({ ...question, language: this.language() }), wanted);
  }

  /** What the app answers; null, and a sentence on the page, when there is no answer. */
  ask(question) {
    return this.answer(this.server.learn_ask, question);
  }

  /** The same of what teachers and quizzes ask. A problem that the lesson has stays on the page. */
  teach(question) {
    return this.answer(this.server.learn_teach, question, false);
  }

  async answer(ask, question, clears = true) {
    const reply = await ask({ ...question, language: this.language() }).catch((error) => {
      console.error(error);
      return { error: t("The app did not answer. Is it still running?") };
    });
    return this.taken(reply, clears);
  }

  taken(reply, clears = true) {
    if (reply.error || clears) this.tell(reply.error || "");
    return reply.error ? null : reply.answer;
  }

  /** What a lesson begins with, asked for until it comes; null when it is not `wanted` any more, or cannot be given. */
  async describe(question, wanted) {
    const reply = await this.need("learn_ask", { op: "describe", ...question }, wanted);
    return reply && this.taken(reply);
  }

  tell(problem) {
    setText(this.problem, problem);
    show(this.problem, Boolean(problem));
  }
}

export async function mount({ host, server }) {
  await new LearnPage({ host, server }).start();
}
