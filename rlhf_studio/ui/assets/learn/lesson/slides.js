// A lesson as slides: the same blocks, as many at a time as fit, in large type. Nothing is copied: what does not
// belong to a slide is hidden. Questions, controls and pictures go on working; when they end, the lesson is as before.
import { address } from "../../shared/address.js";
import { el, elEach, setText, show } from "../../shared/dom.js";
import { slidesOf } from "./packing.js";
import { t } from "../../shared/language.js";

const OFF = "rs-learn-off";
const FORWARD = ["ArrowRight", "ArrowDown", "PageDown", " "];
const BACK = ["ArrowLeft", "ArrowUp", "PageUp"];
const OF_CLICKERS = ["PageDown", "PageUp"]; // what is held in the hand sends these: they lead on whatever has the focus
const WITH_KEYS = "input, select, textarea, [role=radio]";
const WITH_SPACE = "button, summary, a";

export class Slides {
  /**
   * @param lesson  (page, name, scenes)
   */
  constructor(lesson) {
    this.lesson = lesson;
    this.open = false;
    this.at = 0;
    this.moved = [];
    const button = (name, label, onclick, more = "") =>
      el("button", { type: "button", class: `rs-button ${more}`, "aria-label": label, onclick }, name);
    this.place = el("span", { class: "rs-learn-place", role: "status" });
    this.bar = el(
      "div",
      { class: "rs-learn-bar rs-flow", role: "group", "aria-label": t("Slides"), hidden: true },
      button("\u2190", t("Previous slide"), () => this.back()),
      this.place,
      button("\u2192", t("Next slide"), () => this.forward()),
      button(t("Full screen"), t("Full screen"), () => this.fill(), "rs-learn-fill"),
      button(t("Leave"), t("Leave the slides"), () => this.leave()),
    );
    this.keys = (event) => this.key(event);
    document.addEventListener("fullscreenchange", () => !document.fullscreenElement && this.filled && this.leave());
  }

  /** Begin, at a scene's first slide where one is named. */
  start(scene = "") {
    const { page, scenes } = this.lesson;
    this.article = page.article;
    if (!this.open) {
      this.open = true;
      page.host.append(this.bar);
      this.article.classList.add("rs-learn-slides");
      document.addEventListener("keydown", this.keys, true);
      this.others = othersOf(this.article, this.bar);
      for (const node of this.others) node.inert = true;
    }
    show(this.bar, true);
    this.contents?.remove();
    this.contents = contentsOf(scenes);
    this.article.querySelector(":scope > .rs-learn-text")?.after(this.contents);
    this.putBack();
    this.slides = slidesOf(this.article, scenes);
    for (const scene of scenes) this.moveResults(scene);
    const at = this.slides.findIndex((slide) => slide.scene?.name === scene);
    this.go(Math.max(at, 0));
  }

  /** On slides the pictures of results stand beside the text, under the controls. */
  moveResults({ after, figure }) {
    for (const node of after.querySelectorAll(":scope > .rs-learn-picture")) {
      const mark = document.createComment("");
      node.before(mark);
      figure.append(node);
      node.classList.add("rs-learn-result");
      this.moved.push({ node, mark });
    }
  }

  putBack() {
    for (const { node, mark } of this.moved) {
      mark.replaceWith(node);
      node.classList.remove("rs-learn-result");
    }
    this.moved = [];
  }

  /** A reader leaves: the lesson is shown at the same place. */
  leave() {
    const slide = this.slides[this.at];
    this.stop();
    address.put("learn", { lesson: this.lesson.name, run: this.lesson.run, scene: slide.scene?.name });
    const node = slide.questions[0]?.node || slide.nodes.at(-1);
    node.scrollIntoView({ block: "center" });
    this.article.focus({ preventScroll: true });
  }

  /** The slides end. */
  stop() {
    if (!this.open) return;
    this.open = false;
    this.contents.remove();
    this.putBack();
    if (document.fullscreenElement) document.exitFullscreen();
    this.filled = false;
    show(this.bar, false);
    this.article.classList.remove("rs-learn-slides");
    for (const node of this.article.querySelectorAll(`.${OFF}`)) node.classList.remove(OFF);
    for (const { node } of this.lesson.scenes) node.classList.remove("rs-learn-whole", "rs-learn-crowded");
    document.removeEventListener("keydown", this.keys, true);
    for (const node of this.others) node.inert = false;
  }

  async fill() {
    try {
      await document.documentElement.requestFullscreen();
      this.filled = true;
    } catch {
      setText(this.place, t("This browser does not let a page fill the screen. Its own key may: F11.")); // slides go on
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key, target } = event;
    const held = target instanceof Element ? target : document.body;
    const taken = held.closest(WITH_KEYS) || (key === " " && held.closest(WITH_SPACE));
    const act = {
      Escape: () => this.leave(),
      Home: () => !taken && this.go(0),
      ...Object.fromEntries(FORWARD.map((name) => [name, () => this.forward()])),
      ...Object.fromEntries(BACK.map((name) => [name, () => this.back()])),
    }[key];
    if (!act || (taken && key !== "Escape" && !OF_CLICKERS.includes(key))) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** The answers of open questions come first, then the next slide. */
  forward() {
    const open = this.slides[this.at].questions.find((one) => !one.explained && one.known && !one.node.hidden);
    if (open) open.answer("");
    else this.go(this.next(1));
  }

  back() {
    this.go(this.next(-1));
  }

  /** The next slide that has something to show: results of a question that nobody can answer yet have nothing. */
  next(step) {
    let at = this.at + step;
    while (
      this.slides[at] &&
      this.slides[at].nodes.slice(1).every((node) => node.hidden) &&
      this.slides[at].nodes.length > 1
    )
      at += step;
    return this.slides[at] ? at : this.at;
  }

  go(at) {
    this.at = at;
    const { scene, nodes, drawn, wide, crowded } = this.slides[at];
    const off = (node, away) => node.classList.toggle(OFF, away);
    for (const node of this.article.children) off(node, !nodes.includes(node) && node !== scene?.node);
    if (scene) {
      for (const node of [...scene.before.children, ...scene.after.children]) off(node, !nodes.includes(node));
      for (const { node } of this.moved) off(node, !drawn.includes(node));
      for (const node of scene.node.children) if (![scene.before, scene.after].includes(node)) off(node, Boolean(wide));
      scene.node.classList.toggle("rs-learn-whole", Boolean(wide));
      scene.node.classList.toggle("rs-learn-crowded", Boolean(crowded));
    }
    setText(this.place, t("{at} of {length}", { at: at + 1, length: this.slides.length }));
    this.article.scrollTop = 0;
    const held = /** @type {HTMLElement} */ (document.activeElement);
    if (!this.bar.contains(held) && !(this.article.contains(held) && held.offsetParent)) this.article.focus();
    address.put("learn", { lesson: this.lesson.name, run: this.lesson.run, scene: scene?.name, show: "slides" });
  }
}

/** What the lesson holds, for its first slide: the headings of its scenes. */
function contentsOf(scenes) {
  const headings = scenes.map((scene) => scene.before.querySelector("h3")?.textContent).filter(Boolean);
  return elEach("ol", { class: "rs-learn-contents" }, headings, (heading) => el("li", {}, heading));
}

/** What is neither the slides nor their bar, and must not be reached while they cover it. */
function othersOf(article, bar) {
  const found = [];
  for (let node = article; node !== document.body; node = node.parentElement) {
    found.push(...[...node.parentElement.children].filter((one) => one !== node && one !== bar && !one.inert));
  }
  return found.filter((node) => !node.matches("script, style, link"));
}
