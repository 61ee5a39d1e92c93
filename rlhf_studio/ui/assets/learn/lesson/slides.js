// A lesson as slides: the same blocks, a few at a time and in large type. Nothing is copied: what does not belong to a
// slide is hidden. Questions, controls and pictures go on working, and the lesson is as it was when the slides end.
import { address } from "../../shared/address.js";
import { el, setText, show } from "../../shared/dom.js";

const OFF = "rs-learn-off";
const MOST_WORDS = 60; // after a question, before a further slide begins
const FORWARD = ["ArrowRight", "ArrowDown", "PageDown", " "];
const BACK = ["ArrowLeft", "ArrowUp", "PageUp"];
const OF_CLICKERS = ["PageDown", "PageUp"]; // what is held in the hand sends these: they lead on whatever has the focus
const WITH_KEYS = "input, select, textarea, [role=radio]";
const WITH_SPACE = "button, summary, a";

const words = (node) => node.textContent.split(/\s+/).length;

/** The slides of a lesson: each with its scene, the blocks that it shows, and its question. */
function slidesOf(article, scenes) {
  const front = [...article.children].filter((node) => node.matches(".rs-learn-title, .rs-learn-text"));
  return [{ nodes: front }, ...scenes.flatMap(slidesOfScene)];
}

function slidesOfScene(scene) {
  const begin = [...scene.before.children];
  const heading = begin.slice(0, 1);
  const questions = [scene.prediction, ...(scene.more || [])].filter(Boolean);
  const slides = [];
  let nodes = begin;
  const cut = () => {
    if (nodes.length > heading.length) slides.push({ scene, nodes });
    nodes = heading;
  };
  for (const node of scene.after.children) {
    const question = questions.find((one) => one.node === node);
    const code = node.matches(".rs-learn-code");
    if (question || code) {
      cut();
      slides.push({ scene, nodes: [...heading, node], question, wide: code });
      continue;
    }
    nodes = [...nodes, node];
    if (node.matches(".rs-learn-picture") || nodes.reduce((sum, one) => sum + words(one), 0) > MOST_WORDS) cut();
  }
  cut();
  return slides.length ? slides : [{ scene, nodes: begin }];
}

export class Slides {
  /**
   * @param lesson  {page, name, scenes}
   */
  constructor(lesson) {
    Object.assign(this, { lesson, open: false, at: 0 });
    const button = (name, label, onclick, more = "") =>
      el("button", { type: "button", class: `rs-button ${more}`, "aria-label": label, onclick }, name);
    this.place = el("span", { class: "rs-learn-place", role: "status" });
    this.bar = el(
      "div",
      { class: "rs-learn-bar", role: "group", "aria-label": "Slides", hidden: true },
      button("\u2190", "Previous slide", () => this.back()),
      this.place,
      button("\u2192", "Next slide", () => this.forward()),
      button("Full screen", "Full screen", () => this.fill(), "rs-learn-fill"),
      button("Leave", "Leave the slides", () => this.leave()),
    );
    this.keys = (event) => this.key(event);
    document.addEventListener("fullscreenchange", () => !document.fullscreenElement && this.filled && this.leave());
  }

  /** Begin, at a scene's first slide where one is named. */
  start(scene = "") {
    const { page, scenes } = this.lesson;
    this.article = page.article;
    this.slides = slidesOf(this.article, scenes);
    const at = this.slides.findIndex((slide) => slide.scene?.name === scene);
    if (!this.open) {
      this.open = true;
      page.host.append(this.bar);
      this.article.classList.add("rs-learn-slides");
      document.addEventListener("keydown", this.keys, true);
      this.others = othersOf(this.article, this.bar);
      for (const node of this.others) node.inert = true;
    }
    show(this.bar, true);
    this.go(Math.max(at, 0));
  }

  /** A reader leaves: the lesson is shown at the same place. */
  leave() {
    const slide = this.slides[this.at];
    this.stop();
    address.put("learn", { lesson: this.lesson.name, run: this.lesson.run, scene: slide.scene?.name });
    const node = slide.question?.node || slide.nodes.at(-1);
    node.scrollIntoView({ block: "center" });
    this.article.focus({ preventScroll: true });
  }

  /** The slides end. */
  stop() {
    if (!this.open) return;
    this.open = false;
    if (document.fullscreenElement) document.exitFullscreen();
    this.filled = false;
    show(this.bar, false);
    this.article.classList.remove("rs-learn-slides");
    for (const node of this.article.querySelectorAll(`.${OFF}`)) node.classList.remove(OFF);
    for (const node of this.article.querySelectorAll(".rs-learn-whole")) node.classList.remove("rs-learn-whole");
    document.removeEventListener("keydown", this.keys, true);
    for (const node of this.others) node.inert = false;
  }

  async fill() {
    try {
      await document.documentElement.requestFullscreen();
      this.filled = true;
    } catch {
      setText(this.place, "This browser does not let a page fill the screen. Its own key may: F11."); // slides go on
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

  /** The answer of an open question comes first, then the next slide. */
  forward() {
    const { question } = this.slides[this.at];
    if (question && !question.explained && question.known) {
      question.answer("");
      return;
    }
    this.go(this.next(1));
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
    const { scene, nodes, wide } = this.slides[at];
    const off = (node, away) => node.classList.toggle(OFF, away);
    for (const node of this.article.children) off(node, !nodes.includes(node) && node !== scene?.node);
    if (scene) {
      for (const node of [...scene.before.children, ...scene.after.children]) off(node, !nodes.includes(node));
      for (const node of scene.node.children) if (![scene.before, scene.after].includes(node)) off(node, Boolean(wide));
      scene.node.classList.toggle("rs-learn-whole", Boolean(wide));
    }
    setText(this.place, `${at + 1} of ${this.slides.length}`);
    this.article.scrollTop = 0;
    const held = document.activeElement;
    if (!this.bar.contains(held) && !(this.article.contains(held) && held.offsetParent)) this.article.focus();
    address.put("learn", { lesson: this.lesson.name, run: this.lesson.run, scene: scene?.name, show: "slides" });
  }
}

/** What is neither the slides nor their bar, and must not be reached while they cover it. */
function othersOf(article, bar) {
  const found = [];
  for (let node = article; node !== document.body; node = node.parentElement) {
    found.push(...[...node.parentElement.children].filter((one) => one !== node && one !== bar && !one.inert));
  }
  return found.filter((node) => !node.matches("script, style, link"));
}
