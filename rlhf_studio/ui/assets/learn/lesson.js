// An open lesson: its text at once, its numbers as soon as they are there.
import { address } from "../shared/address.js";
import { el, fill } from "../shared/dom.js";
import { LessonTools } from "./lesson_tools.js";
import { Scene } from "./scene.js";
import { blocks, leadOf } from "./text.js";

export class Lesson {
  /**
   * @param page  {lessons, article, server, language(), ask(question), tell(problem), choose(params)}
   */
  constructor(page) {
    Object.assign(this, { page, name: "" });
    this.tools = new LessonTools(this);
  }

  /** Show the lesson that the address names; the first one where it names none. */
  async go(params) {
    const { lessons, server, language } = this.page;
    const name = lessons.some((lesson) => lesson.name === params.lesson) ? params.lesson : lessons[0]?.name;
    if (!name) return;
    if (name === this.name && !params.set) {
      this.tools.go(params);
      return;
    }
    this.name = name;
    this.page.mark(name);
    const text = await server.learn_text({ lesson: name, language: language() });
    if (this.name !== name) return;
    if (text.error) {
      this.page.tell(text.error);
      return;
    }
    this.draw(name, text);
    this.tools.go(params);
    const described = await this.page.ask({ op: "describe", lesson: name });
    if (this.name !== name || !described) return;
    const begun = this.scenes.map((scene) =>
      scene.begin(described.scenes[scene.name], scene.name === params.scene ? params : {}),
    );
    await Promise.all(begun);
    if (this.name === name) this.tools.there(params);
  }

  /** Another place of the page is shown. */
  leave() {
    this.tools.leave();
    this.name = "";
  }

  draw(name, text) {
    const { lessons, article } = this.page;
    const lead = { ...leadOf(this.page), words: text.words };
    this.scenes = text.scenes.map(
      (scene) =>
        new Scene(scene, {
          ...lead,
          ask: (question) => this.page.ask({ ...question, lesson: name }),
          moved: (set, seed) =>
            address.put("learn", { lesson: name, scene: scene.name, set, seed, show: this.tools.showing() }),
        }),
    );
    const place = lessons.findIndex((lesson) => lesson.name === name);
    fill(
      article,
      el("h2", { class: "rs-learn-title" }, text.title),
      this.tools.node,
      el("div", { class: "rs-learn-text" }, blocks(text.introduction, lead)),
      this.tools.opening.node,
      this.scenes.map((scene) => scene.node),
      el("div", { class: "rs-learn-turn" }, this.turn(place - 1, "Previous"), this.turn(place + 1, "Next")),
    );
    this.page.tell("");
  }

  turn(place, word) {
    const lesson = this.page.lessons[place];
    if (!lesson) return el("span", {});
    return el(
      "button",
      {
        type: "button",
        class: "rs-button rs-small",
        onclick: () => this.page.choose({ lesson: lesson.name }),
      },
      `${word}: ${lesson.title}`,
    );
  }
}
