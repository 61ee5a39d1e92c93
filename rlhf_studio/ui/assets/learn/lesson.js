// An open lesson: its text at once, its numbers as soon as they are there.
import { address } from "../shared/address.js";
import { el, fill } from "../shared/dom.js";
import { Scene } from "./scene.js";
import { blocks } from "./text.js";

/** What a link names: a lesson, or a lesson and its scene, as in `clip#ratio`. */
const named = (to) => {
  const [lesson, scene = ""] = to.split("#");
  return { lesson, scene };
};

export class Lesson {
  /**
   * @param page  {lessons, article, server, language(), ask(question), tell(problem), choose(params)}
   */
  constructor(page) {
    Object.assign(this, { page, name: "" });
  }

  /** Show the lesson that the address names; the first one where it names none. */
  async go(params) {
    const { lessons, server, language } = this.page;
    const name = lessons.some((lesson) => lesson.name === params.lesson) ? params.lesson : lessons[0]?.name;
    if (!name || (name === this.name && !params.set)) return;
    this.name = name;
    this.page.mark(name);
    const text = await server.learn_text({ lesson: name, language: language() });
    if (this.name !== name) return;
    if (text.error) {
      this.page.tell(text.error);
      return;
    }
    this.draw(name, text);
    const described = await this.page.ask({ op: "describe", lesson: name });
    if (this.name !== name || !described) return;
    for (const scene of this.scenes)
      scene.begin(described.scenes[scene.name], scene.name === params.scene ? params : {});
  }

  /** Another place of the page is shown. */
  leave() {
    this.name = "";
  }

  draw(name, text) {
    const { lessons, article } = this.page;
    const lead = {
      lesson: (other) => this.page.choose(named(other)),
      tour: (show) => this.page.choose({ place: "tour", show }),
      words: text.words,
    };
    this.scenes = text.scenes.map(
      (scene) =>
        new Scene(scene, {
          ...lead,
          ask: (question) => this.page.ask({ ...question, lesson: name }),
          moved: (set, seed) => address.put("learn", { lesson: name, scene: scene.name, set, seed }),
        }),
    );
    const place = lessons.findIndex((lesson) => lesson.name === name);
    fill(
      article,
      el("h2", { class: "rs-learn-title" }, text.title),
      el("div", { class: "rs-learn-text" }, blocks(text.introduction, lead)),
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
