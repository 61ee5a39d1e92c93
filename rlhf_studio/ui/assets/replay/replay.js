// The replay of a run: curves that grow, an answer whose words change, and a pause with a sentence where it matters.
// It draws by itself and asks nobody, so that it also runs in a page of its own, without an app.
import { el, elEach, pushButton, setText, show, svg } from "../shared/dom.js";
import { duration, readable } from "../shared/format.js";
import { textSize } from "../shared/lasting.js";
import { ReplayAnswer } from "./answer.js";
import { ReplayClock, placeOf } from "./clock.js";
import { ReplayCurves } from "./curves.js";
import { reachedAt } from "./sums.js";
import { colon, t } from "../shared/language.js";

const OTHER = t("It shows an answer that this update learned from; the answer on this page may be another one.");
const AT_ENDS = ["start", "end"]; // where everybody looks for a sentence without a mark
const isMarked = ({ kind }) => !AT_ENDS.includes(kind);
const NEXT = "n"; // the key
const SPEEDS = [1, 2, 4];
const LONGEST_FRAME = 0.1; // seconds: a page that was hidden goes on where it was
const NARROW = 640; // pixels at the usual size of text
const PLAY = "M3 2l10 6-10 6z";
const PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";
const AGAIN = "M8 3V0L4 4l4 4V5a4 4 0 1 1-4 4H2a6 6 0 1 0 6-6z";
const BACK = "M11 2L5 8l6 6z";
const ON = "M5 2l6 6-6 6z";

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const icon = (d) => svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d }));

/** Refuses what cannot be replayed. */
function check({ steps, series, moments, answers }) {
  const wrong = (what) => {
    throw new Error(`This replay cannot be shown: ${what}`);
  };
  if (!Array.isArray(steps) || steps.length < 2) wrong("it has fewer than two steps.");
  for (const [name, values] of Object.entries(series || {}))
    if (values && values.length !== steps.length)
      wrong(`${name} has ${values.length} numbers for ${steps.length} steps.`);
  if (!Array.isArray(moments) || !Array.isArray(answers)) wrong("its moments or answers are missing.");
  const uneven = ({ frames }) => frames.some(({ tokens, values }) => tokens.length !== values.length);
  if (answers.some(uneven)) wrong("an answer has other than one value for each token.");
}

class ReplayPlayer {
  constructor(host, payload, options) {
    check(payload);
    this.host = host;
    this.payload = payload;
    this.options = options;
    this.playing = false;
    this.speed = 1;
    this.time = 0; // seconds
    this.shown = this.second = -1; // what is drawn: the place of the step, and the second of the clock
    const places = payload.moments.map(({ step }) => placeOf(payload.steps, step));
    this.places = places;
    this.clock = new ReplayClock(payload.steps.length, payload.seconds, places, payload.breath);
    this.turn = (now) => this.frame(now);
    this.build();
    this.seek(options.at === undefined ? 0 : placeOf(payload.steps, options.at));
    if (options.autoplay) this.follow();
  }

  build() {
    const { payload, options } = this;
    this.curves = new ReplayCurves(
      payload,
      this.places.filter((place, at) => isMarked(payload.moments[at])),
      options,
    );
    this.answer = payload.answers.length ? new ReplayAnswer(payload, { ...options, calm: calm() }) : null;
    this.moments = elEach("ol", { class: "rs-replay-moments" }, payload.moments, (one, index) =>
      this.momentOf(one, index),
    );
    this.said = el("p", { class: "rs-hidden", "aria-live": "polite" });
    this.node = el(
      "section",
      {
        class: "rs-replay",
        "aria-label": t("Replay of {title}", { title: readable(payload.title, 200) }),
        "data-compact": options.compact ? "true" : null,
        "data-hero": options.hero ? "true" : null,
        onkeydown: (event) => this.key(event),
      },
      this.controls(),
      this.bar(),
      el("div", { class: "rs-replay-body" }, this.curves.node, this.moments, this.answer?.node || null),
      this.said,
    );
    this.explain();
    this.host.append(this.node);
    this.sizes = new ResizeObserver(() => this.fit());
    this.sizes.observe(this.node);
    this.seen = new IntersectionObserver((entries) => this.look(entries.at(-1).isIntersecting));
    this.seen.observe(this.node);
    this.fit();
  }

  /** Words with tips: Tab leads to one of them, and from there the arrow keys to the others. */
  explain() {
    const words = /** @type {HTMLElement[]} */ ([...this.node.querySelectorAll(".rs-word")]);
    words.forEach((word, index) => {
      word.tabIndex = index ? -1 : 0;
      word.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (!by) return;
        event.preventDefault();
        event.stopPropagation();
        words.at((index + by) % words.length).focus();
      });
    });
  }

  controls() {
    const { payload } = this;
    const quiet = this.options.compact;
    const button = (d, label, action) =>
      el("button", { type: "button", class: "rs-replay-button", "aria-label": label, title: label, onclick: action }, [
        icon(d),
      ]);
    this.toggle = button(PLAY, t("Play"), () => this.press());
    this.icon = this.toggle.querySelector("path");
    this.times = el("span", { class: "rs-replay-time" });
    this.step = el("span", { class: "rs-replay-step" });
    this.speeds = SPEEDS.map((speed) =>
      el(
        "button",
        { type: "button", "aria-pressed": String(speed === 1), onclick: () => this.setSpeed(speed) },
        `\u00d7${speed}`,
      ),
    );
    const speed = el("div", { class: "rs-replay-speeds", role: "group", "aria-label": t("Speed") }, this.speeds);
    this.through = this.options.microscope
      ? el("a", { class: "rs-replay-through", "data-tip": OTHER }, t("Step through this update"))
      : null;
    return el(
      "div",
      { class: "rs-replay-controls" },
      this.toggle,
      quiet ? null : button(BACK, t("Previous step"), () => this.by(-1)),
      quiet ? null : button(ON, t("Next step"), () => this.by(1)),
      payload.moments.some(isMarked)
        ? el(
            "button",
            { type: "button", class: "rs-replay-jump", "aria-keyshortcuts": NEXT, onclick: () => this.next() },
            t("Next moment"),
            el("kbd", { "aria-hidden": "true" }, NEXT.toUpperCase()),
          )
        : null,
      this.options.hero ? null : this.times,
      calm() || quiet ? null : speed,
      this.step,
      el("span", { class: "rs-replay-more" }, this.through, this.options.actions || []),
    );
  }

  bar() {
    const { clock, payload, options } = this;
    this.range = el("input", {
      type: "range",
      class: "rs-replay-range",
      min: 0,
      max: clock.last,
      step: calm() ? 1 : "any",
      value: 0,
      "aria-label": t("Place in the replay"),
      oninput: () => this.jump(Number(this.range.value)),
    });
    const left = (place) => ({ style: { left: `${((100 * place) / clock.last).toFixed(2)}%` } });
    this.names = {};
    this.diamonds = this.places.map((place, index) => {
      const { step, sentence, name } = payload.moments[index];
      const words = t("Step {step}: {sentence}", { step, sentence: readable(sentence, 300) });
      const hidden = !isMarked(payload.moments[index]);
      const look = { class: "rs-replay-diamond", tabindex: "-1", "aria-hidden": "true", hidden };
      if (name) this.names[index] = this.nameAt(name, place);
      if (options.compact) return el("i", { ...look, title: words, ...left(place) });
      return el("button", { type: "button", ...look, title: words, onclick: () => this.visit(place), ...left(place) });
    });
    return el("div", { class: "rs-replay-bar" }, this.range, el("div", {}, this.diamonds, Object.values(this.names)));
  }

  /** The name of a moment below its mark, on the side of the bar that has more room; it leads to the moment. */
  nameAt(name, place) {
    const share = (100 * place) / this.clock.last;
    const [side, at] = share < 60 ? ["left", share] : ["right", 100 - share];
    const go = () => {
      this.visit(place);
      if (this.options.compact) this.toggle.focus(); // there the name goes away once its moment is reached
    };
    const words = readable(name, 100);
    const look = { class: "rs-replay-name", onclick: go }; // no control of its own on a first screen: N leads there too
    const button = this.options.hero ? el("b", look, words) : pushButton("rs-replay-name", words, go);
    button.style[side] = `${at.toFixed(2)}%`;
    return button;
  }

  /** A moment in the list: its step, its name where it has one, and what it says once it is reached. */
  momentOf({ step, sentence, name }, index) {
    const words = [
      el("b", {}, t("Step {step}", { step })),
      name ? el("em", {}, readable(name, 100)) : null,
      el("span", {}, readable(sentence, 600)),
    ];
    if (this.options.compact) return el("li", { class: "rs-replay-moment" }, words);
    return el(
      "li",
      {},
      pushButton("rs-replay-moment", words, () => this.visit(this.places[index])),
    );
  }

  /** The widths have changed, or the size of text. */
  fit() {
    const narrow = this.node.clientWidth < NARROW * textSize();
    const width = this.node.clientWidth;
    if (width === this.width || !width) return;
    this.width = width;
    this.node.classList.toggle("rs-narrow", narrow);
    this.curves.draw();
    this.answer?.reserve();
    this.shown = -1;
    this.moment = NaN;
    this.draw();
  }

  /** Out of sight nothing moves. */
  look(visible) {
    this.visible = visible;
    if (visible && this.playing) this.run();
  }

  press() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.over) this.time = 0;
    this.playing = true;
    this.sayButton();
    this.run();
    this.tell();
  }

  /** Play because somebody else does, where motion is welcome. */
  follow() {
    if (!calm()) this.play();
  }

  pause() {
    this.playing = false;
    this.sayButton();
    this.tell();
  }

  run() {
    this.before = null;
    cancelAnimationFrame(this.asked);
    this.asked = requestAnimationFrame(this.turn);
  }

  frame(now) {
    if (!this.playing || this.visible === false || !this.node.isConnected) return;
    const passed = this.before === null ? 0 : Math.min(LONGEST_FRAME, (now - this.before) / 1000);
    this.before = now;
    this.time = Math.min(this.clock.total, this.time + passed * this.speed);
    this.draw();
    if (this.time < this.clock.total) this.asked = requestAnimationFrame(this.turn);
    else this.pause();
  }

  setSpeed(speed) {
    this.speed = speed;
    this.speeds.forEach((button, index) => button.setAttribute("aria-pressed", String(SPEEDS[index] === speed)));
  }

  /** Go to a place without a change of whether it plays. */
  seek(place) {
    this.time = this.clock.timeOf(place);
    this.draw();
  }

  /** A person has chosen a place. */
  jump(place) {
    this.seek(place);
    this.tell();
  }

  /** A person has chosen a place to look at: stay there. */
  visit(place) {
    if (this.playing) this.pause();
    this.jump(place);
  }

  /** One step on or back, and stay there. */
  by(steps) {
    this.visit(Math.min(this.clock.last, Math.max(0, reachedAt(this.place) + steps)));
  }

  /** To the next moment that has a mark, and stay there; behind the last one to the first. */
  next() {
    const marked = this.places.filter((place, at) => isMarked(this.payload.moments[at]));
    if (!marked.length) return;
    this.visit(marked.find((place) => place > this.place + 1e-6) ?? marked[0]);
  }

  /** Show a step of the run. */
  go(step) {
    this.seek(placeOf(this.payload.steps, step));
  }

  key(event) {
    const { key, target } = event;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 }[key];
    const scrolls = (key === "ArrowDown" || key === "ArrowUp") && target !== this.range;
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || scrolls) return;
    if (steps) this.by(steps);
    else if (key === " " && !target.closest("button, a")) this.press();
    else if (key.toLowerCase() === NEXT) this.next();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page's own keys do other things
  }

  get place() {
    const place = this.clock.placeAt(this.time);
    return calm() ? reachedAt(place) : place;
  }

  /** Whether its last step is shown; the sentence there stands for a while. */
  get over() {
    return this.place >= this.clock.last;
  }

  /** Everything as it is at this time. */
  draw() {
    if (!this.width) return; // it has no place on the page yet
    const { place, clock } = this;
    this.curves.show(place);
    this.range.value = String(place);
    this.range.style.setProperty("--done", `${((100 * place) / clock.last).toFixed(2)}%`);
    const second = Math.floor(this.time);
    if (second !== this.second) {
      this.second = second;
      setText(this.times, `${duration(second)} / ${duration(Math.floor(clock.total))}`);
    }
    const reached = reachedAt(place);
    if (reached !== this.shown) this.drawStep(reached);
  }

  /** What changes only from step to step. */
  drawStep(reached) {
    const { steps, moments, of } = this.payload;
    this.shown = reached;
    const step = steps[reached];
    setText(this.step, t("step {step} of {of}", { step, of: of || steps.at(-1) }));
    this.range.setAttribute("aria-valuetext", colon(t("Step {step}", { step }), this.curves.words(reached)));
    this.curves.reach(reached);
    this.answer?.show(step);
    const now = this.places.findLastIndex((place) => place <= reached);
    if (now !== this.moment) this.reach(now);
    setText(
      this.said,
      this.places[now] === reached
        ? t("Step {step}: {sentence}", { step, sentence: readable(moments[now].sentence, 600) })
        : "",
    );
    if (this.through) this.link(step);
  }

  /** A moment is reached, or left again; it is scrolled into view in its list. */
  reach(now) {
    this.moment = now;
    const items = /** @type {HTMLElement[]} */ ([...this.moments.children]);
    items.forEach((node, index) => {
      node.classList.toggle("rs-reached", index <= now);
      node.classList.toggle("rs-now", index === now);
      for (const mark of [this.diamonds[index], this.names[index]]) mark?.classList.toggle("rs-reached", index <= now);
    });
    const shown = items[Math.max(0, now)];
    if (shown) this.moments.scrollTop = shown.offsetTop - (this.moments.clientHeight - shown.offsetHeight) / 2;
  }

  /** The link to what explains this step's update; none where the run kept nothing for it. */
  link(step) {
    const href = this.options.microscope(step);
    show(this.through, Boolean(href));
    if (href) this.through.href = href;
  }

  sayButton() {
    const over = !this.playing && this.over;
    const label = this.playing ? t("Pause") : over ? t("Play again") : t("Play");
    this.icon.setAttribute("d", this.playing ? PAUSE : over ? AGAIN : PLAY);
    for (const name of ["aria-label", "title"]) this.toggle.setAttribute(name, label);
  }

  /** The step of the run that is shown. */
  get now() {
    return this.payload.steps[reachedAt(this.place)];
  }

  tell() {
    this.options.onplace?.({ step: this.now, playing: this.playing });
  }

  /** Take it away. */
  end() {
    this.playing = false;
    cancelAnimationFrame(this.asked);
    this.sizes.disconnect();
    this.seen.disconnect();
    this.node.remove();
  }
}

/**
 * Show a replay inside an element.
 *
 * @param element  where it is appended
 * @param payload  what analysis/replay/payload.py gives
 * @param options  autoplay: whether it begins by itself (never where people asked for less motion); compact: small;
 *                 hero: large, with words that the page's tips explain, where compact;
 *                 at: the step to begin at; microscope(step): an address that explains the update of a step, or null;
 *                 onplace({step, playing}): called when a person plays, pauses or goes elsewhere; actions: more buttons
 * @returns the player: play(), pause(), go(step), end()
 */
export const startReplay = (element, payload, options = {}) => new ReplayPlayer(element, payload, options);
