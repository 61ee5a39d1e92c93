// What belongs to a whole lesson: slides, printing, the question from two lessons before, and the way to a scene.
import { el, pushButton } from "../../shared/dom.js";
import { Opening } from "../teaching/quiz.js";
import { Slides } from "./slides.js";
import { t } from "../../shared/language.js";

export class LessonTools {
  /**
   * @param lesson  (page, name, scenes)
   */
  constructor(lesson) {
    this.lesson = lesson;
    this.slides = new Slides(lesson);
    this.opening = new Opening(lesson.page);
    const button = (name, onclick) => pushButton("rs-button rs-small", name, onclick);
    this.node = el(
      "div",
      { class: "rs-learn-tools" },
      button(t("Slides"), () => this.slides.start()),
      button(t("Print"), () => print()),
    );
    mountPrinting(lesson);
  }

  /** What the address is to say of the slides. */
  showing() {
    return this.slides.open ? "slides" : "";
  }

  /** The lesson's text is there: go where the address leads. */
  go({ scene, show }) {
    const { name } = this.lesson;
    if (this.opening.lesson !== name) this.opening.begin(name);
    if (show === "slides") this.slides.start(scene);
    else this.slides.stop();
    if (!this.slides.open) this.lead(scene);
  }

  /** Its numbers are there too: pictures may have moved what was led to. */
  there({ scene }) {
    this.opening.there();
    if (this.slides.open) return;
    const node = this.nodeOf(scene);
    if (node && Math.abs(node.getBoundingClientRect().top) < innerHeight) this.lead(scene);
  }

  nodeOf(scene) {
    return this.lesson.scenes.find(({ name }) => name === scene)?.node;
  }

  lead(scene) {
    const heading = this.nodeOf(scene)?.querySelector("h3");
    if (!heading) return;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    heading.scrollIntoView({ block: "start" });
  }

  leave() {
    this.slides.stop();
    this.opening.lesson = "";
  }
}

/** On paper a page is black on white, and each question of the lesson has its answer. */
function mountPrinting(lesson) {
  const { host } = lesson.page;
  let dark = false;
  addEventListener("beforeprint", () => {
    if (!host.offsetParent) return; // another tab is shown
    dark = document.body.classList.contains("dark");
    document.body.classList.remove("dark");
    for (const scene of lesson.scenes || []) scene.print(true);
  });
  addEventListener("afterprint", () => {
    if (dark) document.body.classList.add("dark");
    dark = false;
    for (const scene of lesson.scenes || []) scene.print(false);
  });
}
