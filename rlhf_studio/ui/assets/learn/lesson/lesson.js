// An open lesson: its text at once, its numbers as soon as they are there.
import { address } from "../../shared/address.js";
import { el, fill, pushButton, setText, show } from "../../shared/dom.js";
import { addedTo } from "../added.js";
import { LessonTools } from "./lesson_tools.js";
import { RunPicker } from "./runs.js";
import { Scene } from "./scene.js";
import { blocks, leadOf } from "./text.js";
import { colon, t } from "../../shared/language.js";

const PATIENT = 700; // milliseconds before a reader is told that numbers are on their way
const LOADING = t("The numbers are on their way. The first time this takes some seconds.");
const PREPARED = t("These numbers came with the lesson. The app is computing its own: then you can move the controls.");

export class Lesson {
  /**
   * @param page  (lessons, article, server, need(name), describe(question), ask(…), tell(problem), choose(params))
   */
  constructor(page) {
    this.page = page;
    this.name = "";
    this.run = "";
    this.tools = new LessonTools(this);
    this.loading = el("p", { class: "rs-muted", role: "status", hidden: true }, LOADING);
  }

  /** Show the lesson that the address names; the first one that has not been read where it names none. */
  async go(params) {
    const { lessons, server, chapters } = this.page;
    const named = (wanted) => lessons.find(({ name }) => name === wanted);
    const lesson = named(params.lesson) || named(chapters.next);
    if (!lesson) return;
    const { name } = lesson;
    const run = lesson.any_run ? params.run || "" : "";
    if (name === this.name && run === this.run && !params.set) {
      this.tools.go(params);
      return;
    }
    this.name = name;
    this.run = run;
    const gone = () => this.name !== name || this.run !== run;
    this.page.mark(name);
    const text = await this.page.need("learn_text", { lesson: name }, () => !gone());
    if (gone()) return;
    if (text.error) {
      this.page.tell(text.error);
      return;
    }
    const picker = lesson.any_run
      ? new RunPicker(run, server, (other) => this.page.choose({ lesson: name, run: other }))
      : null;
    this.draw(name, text, run, picker);
    this.tools.go(params);
    const atStart = text.prepared && !run && !params.set && !params.seed;
    if (atStart) for (const scene of this.scenes) scene.prepare(text.prepared.scenes[scene.name]);
    setText(this.loading, atStart ? PREPARED : LOADING);
    const waits = setTimeout(() => show(this.loading, this.name === name), PATIENT);
    const described = await this.page.describe(
      { lesson: name, run, values: numbersOf(params.set || "") },
      () => !gone(),
    );
    if (gone()) return;
    const problem = described?.problem || (run && !described ? t("The run cannot be shown.") : "");
    picker?.tell(described?.problem || "");
    if (problem) {
      for (const scene of this.scenes) scene.node.remove();
      this.tools.opening.node.remove();
    }
    if (!described || problem) {
      clearTimeout(waits);
      show(this.loading, false);
      return;
    }
    const begun = this.scenes.map((scene) =>
      scene.begin(described.scenes[scene.name], scene.name === params.scene ? params : { everywhere: params.set }),
    );
    await Promise.all(begun);
    clearTimeout(waits);
    if (gone()) return;
    show(this.loading, false);
    this.tools.there(params);
  }

  /** Another place of the page is shown. */
  leave() {
    this.watching?.disconnect();
    this.tools.leave();
    this.name = "";
  }

  /** Who sees what stands below a lesson has read it. */
  untilRead(end, name) {
    this.watching?.disconnect();
    this.watching = new IntersectionObserver((seen) => {
      if (!seen.some(({ isIntersecting }) => isIntersecting)) return;
      this.watching.disconnect();
      this.page.chapters.finish(name);
    });
    this.watching.observe(end);
  }

  draw(name, text, run, picker) {
    const { lessons, article, server } = this.page;
    const lead = { ...leadOf(this.page), words: text.words };
    this.scenes = text.scenes.map(
      (scene) =>
        new Scene(scene, {
          ...lead,
          ask: (question) => this.page.ask({ ...question, lesson: name, run }),
          moved: (set, seed) =>
            address.put("learn", { lesson: name, run, scene: scene.name, set, seed, show: this.tools.showing() }),
          share: (from, values) => {
            for (const one of this.scenes) if (one !== from) one.adopt(values);
          },
        }),
    );
    const place = lessons.findIndex((lesson) => lesson.name === name);
    const end = el(
      "div",
      { class: "rs-learn-turn rs-wrap" },
      this.turn(place - 1, t("Previous")),
      this.turn(place + 1, t("Next")),
    );
    fill(
      article,
      el("div", { class: "rs-learn-head" }, el("h2", { class: "rs-learn-title" }, text.title), this.tools.node),
      this.loading,
      el("div", { class: "rs-learn-text" }, blocks(text.introduction, lead)),
      picker?.node,
      this.tools.opening.node,
      this.scenes.map((scene) => scene.node),
      addedTo(name, server),
      end,
    );
    this.untilRead(end, name);
    this.page.tell("");
  }

  turn(place, word) {
    const lesson = this.page.lessons[place];
    if (!lesson) return el("span", {});
    return pushButton("rs-button rs-small", colon(word, lesson.title), () =>
      this.page.choose({ lesson: lesson.name, run: lesson.any_run ? this.run : "" }),
    );
  }
}

/** The numbers that an address names: {name: number}. */
function numbersOf(set) {
  const named = set.split(",").map((part) => part.split(":"));
  return Object.fromEntries(
    named.filter(([, value]) => /^\d{1,9}$/.test(value)).map(([name, value]) => [name, Number(value)]),
  );
}
