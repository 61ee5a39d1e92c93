// The Learn page: a list of lessons, and the lesson that is open. Numbers come from the app; nothing is computed here.
import { address } from "../shared/address.js";
import { el, fill, setText, show } from "../shared/dom.js";
import { mountTips, setGlossary } from "../shared/tips.js";
import { Scene } from "./scene.js";
import { blocks } from "./text.js";

const language = () => document.documentElement.lang.split("-")[0] || "en";

class LearnPage {
  constructor({ host, server }) {
    Object.assign(this, { host, server, lessons: [], open: "" });
    this.list = el("ol", { class: "rs-learn-list" });
    this.article = el("article", { class: "rs-learn-lesson", tabindex: "-1" });
    this.problem = el("p", { class: "rs-message rs-problem", role: "alert", hidden: true });
    fill(
      host,
      el(
        "div",
        { class: "rs-learn-columns" },
        el("nav", { class: "rs-learn-nav", "aria-label": "Lessons" }, el("h2", {}, "Lessons"), this.list),
        el("div", {}, this.problem, this.article),
      ),
    );
    mountTips(host);
    address.watch("learn", (params) => this.go(params.lesson, params));
  }

  async start() {
    const { lessons, glossary } = await this.server.learn_shelf({ language: language() });
    this.lessons = lessons;
    setGlossary(glossary);
    fill(
      this.list,
      lessons.map(({ name, number, title }) =>
        el(
          "li",
          {},
          el(
            "button",
            { type: "button", class: "rs-learn-entry", "data-lesson": name, onclick: () => this.choose(name) },
            el("span", { class: "rs-learn-number", "aria-hidden": "true" }, String(number)),
            el("span", {}, title),
          ),
        ),
      ),
    );
    const params = address.params("learn");
    await this.go(params.lesson, params);
  }

  /** A reader chose a lesson. */
  async choose(name) {
    address.put("learn", { lesson: name }, true);
    await this.go(name, {});
    this.article.focus({ preventScroll: true });
    this.article.scrollIntoView({ block: "start" });
  }

  /** Show a lesson: its text at once, its numbers as soon as they are there. */
  async go(wanted, params) {
    const name = this.lessons.some((lesson) => lesson.name === wanted) ? wanted : this.lessons[0]?.name;
    if (!name || (name === this.open && !params.set)) return;
    this.open = name;
    for (const button of this.list.querySelectorAll("button")) {
      button.setAttribute("aria-current", button.dataset.lesson === name ? "page" : "false");
    }
    const text = await this.server.learn_text({ lesson: name, language: language() });
    if (this.open !== name) return;
    if (text.error) return this.tell(text.error);
    this.draw(name, text);
    const described = await this.ask({ op: "describe", lesson: name });
    if (this.open !== name || !described) return;
    for (const scene of this.scenes)
      scene.begin(described.scenes[scene.name], scene.name === params.scene ? params : {});
  }

  draw(name, text) {
    const lead = { lesson: (other) => this.choose(other), words: text.words };
    this.scenes = text.scenes.map(
      (scene) =>
        new Scene(scene, {
          ...lead,
          ask: (question) => this.ask({ ...question, lesson: name }),
          moved: (set, seed) => address.put("learn", { lesson: name, scene: scene.name, set, seed }),
        }),
    );
    const place = this.lessons.findIndex((lesson) => lesson.name === name);
    fill(
      this.article,
      el("h2", { class: "rs-learn-title" }, text.title),
      el("div", { class: "rs-learn-text" }, blocks(text.introduction, lead)),
      this.scenes.map((scene) => scene.node),
      el("div", { class: "rs-learn-turn" }, this.turn(place - 1, "Previous"), this.turn(place + 1, "Next")),
    );
    this.tell("");
  }

  turn(place, word) {
    const lesson = this.lessons[place];
    if (!lesson) return el("span", {});
    return el(
      "button",
      { type: "button", class: "rs-button rs-small", onclick: () => this.choose(lesson.name) },
      `${word}: ${lesson.title}`,
    );
  }

  /** What the app answers; null, and a sentence on the page, when there is no answer. */
  async ask(question) {
    const reply = await this.server.learn_ask({ ...question, language: language() }).catch((error) => {
      console.error(error);
      return { error: "The app did not answer. Is it still running?" };
    });
    this.tell(reply.error || "");
    return reply.error ? null : reply.answer;
  }

  tell(problem) {
    setText(this.problem, problem);
    show(this.problem, Boolean(problem));
  }
}

export async function mount({ host, server }) {
  await new LearnPage({ host, server }).start();
}
