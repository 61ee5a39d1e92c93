// What did it learn? Phrases, habits, the widest gap between two judges, and the tokens that rose and fell.
import { el, fill, pushButton, redraw, setText } from "../shared/dom.js";
import { asOf, integer, number, percent, readable, spoken } from "../shared/format.js";
import { Detail } from "./detail.js";
import { t, tp } from "../shared/language.js";

const BELOW = 6; // pixels below the last line that has room
const PLACES = { opening: t("begins"), ending: t("ends"), anywhere: tp("phrase", "in") };
const MOST_PHRASES = { up: 3, down: 2 };
const MOST_TOKENS = 3;
// What became at least twice, or half, as frequent: "the" in 3 of 4 instead of in 2 says little.
const CLEAR = Math.log(2);
const LETTERS = /[\p{L}\p{N}]/u; // punctuation alone is no phrase to a reader
const CONTEXT = 28;
const NOTHING = t("It is told after the first steps.");
const TOO_FEW = t("Too few steps to tell which phrases changed.");
const NOT_SURE = t("No phrase has clearly become more or less common.");

export class LearnedPanel {
  /** @param go  called with {step, sample, phrase} of a response that a person wants to see where it has the phrase */
  constructor(fetch, go) {
    this.go = go;
    this.detail = new Detail(fetch, "learned", (reply) => this.take(reply));
    this.span = el("span", { class: "rs-muted" });
    this.asOf = el("span", { class: "rs-as-of rs-muted" });
    this.body = el("div", {
      class: "rs-learned-body rs-column",
      tabindex: "0",
      role: "region",
      "aria-label": t("What it learned, in detail"),
    });
    this.node = el(
      "section",
      { class: "rs-panel rs-learned rs-box", "aria-label": t("What did it learn?") },
      el("div", { class: "rs-panel-head rs-wrap" }, el("h3", {}, t("What did it learn?")), this.span, this.asOf),
      this.body,
    );
    this.newest = 0;
    new ResizeObserver(() => this.fit()).observe(this.node);
    this.reset();
  }

  /** Say nothing yet, of another run. */
  reset() {
    this.detail.forget();
    this.say(t("Reading the run\u2026"));
  }

  /** @param newest  the newest step that is shown: what was told before says of which step it is */
  date(newest) {
    this.newest = newest;
    setText(this.asOf, asOf(this.upto, newest));
  }

  /** One sentence in the place of all that can be said. */
  say(text, upto = 0) {
    this.drawnAs = "";
    this.upto = upto;
    this.date(this.newest);
    setText(this.span, "");
    if (this.body.textContent === text) return;
    redraw(this.body, this.body, () => fill(this.body, el("p", { class: "rs-hint" }, text)));
  }

  /** @param version  changes when there may be more to say */
  follow(version) {
    this.detail.follow(version);
  }

  take(learned) {
    if (learned.problem) this.say(learned.problem);
    else if (learned.before_steps) this.draw(learned); // of another stage than PPO nothing is told
  }

  draw(learned) {
    const [before, after] = [learned.before_steps, learned.after_steps];
    if (after[0] <= before[1]) {
      this.say(NOTHING, after[1]); // the same steps on both sides
      return;
    }
    this.upto = after[1];
    this.date(this.newest);
    setText(this.span, t("{before} compared with {after}", { before: steps(before), after: steps(after) }));
    const content = JSON.stringify([
      learned.phrases,
      learned.traits,
      learned.gaps,
      learned.rose,
      learned.fell,
      learned.enough,
      learned.same,
      learned.judged,
    ]);
    if (this.drawnAs === content) return;
    this.drawnAs = content;
    redraw(this.body, this.body, () => this.fill(learned));
  }

  fill(learned) {
    const phrases = strongest(learned.phrases).map((phrase) => this.phrase(phrase));
    const traits = learned.traits.filter((item) => item.changed);
    const gap = learned.gaps[0];
    fill(
      this.body,
      learned.same ? el("p", { class: "rs-learned-same" }, el("b", {}, alike(learned.same))) : null,
      phrases.length
        ? el("ul", { class: "rs-phrases rs-column", "aria-label": t("Phrases whose frequency changed most") }, phrases)
        : learned.same
          ? null
          : el("p", { class: "rs-muted" }, learned.enough ? NOT_SURE : TOO_FEW),
      gap ? this.gap(gap, learned.judged) : null,
      shifts(t("More likely now"), learned.rose),
      shifts(t("Less likely now"), learned.fell),
      traits.length ? el("dl", { class: "rs-traits" }, traits.flatMap(trait)) : null,
    );
    this.fit();
  }

  /** Where not all has room, the box ends below a whole line; a shadow there says that more can be scrolled to. */
  fit() {
    const { body } = this;
    body.style.maxHeight = "";
    const room = body.clientHeight;
    const more = body.scrollHeight > room + 1;
    body.classList.toggle("rs-learned-more", more);
    if (!more) return;
    const range = document.createRange();
    range.selectNodeContents(body);
    const top = body.getBoundingClientRect().top - body.scrollTop;
    const ends = [...range.getClientRects()].map(({ bottom }) => bottom - top).filter((end) => end <= room - BELOW);
    if (ends.length) body.style.maxHeight = `${Math.ceil(Math.max(...ends)) + BELOW}px`;
  }

  phrase(item) {
    const [step, sample] = item.examples[0] || [];
    const there = { step, sample, phrase: { text: item.text, place: item.place } };
    const text = `“${spoken(item.text.trim() || item.text)}”`;
    const label = el("span", { class: "rs-phrase-text" }, text);
    const tip = t("Log-odds {log_odds}, {z} standard errors from no change.", {
      log_odds: number(item.log_odds),
      z: number(Math.abs(item.z), 1),
    });
    return el(
      "li",
      { class: item.log_odds > 0 ? "rs-up" : "rs-down" },
      step === undefined ? label : pushButton("rs-link", label, () => this.go(there)),
      el("span", { class: "rs-muted" }, PLACES[item.place]),
      el(
        "span",
        { class: "rs-phrase-count", "data-tip": tip, tabindex: "0" },
        item.before_of === item.after_of
          ? t("{before} → {after} of {after_of}", { before: item.before, after: item.after, after_of: item.after_of })
          : t("{before} of {before_of} → {after} of {after_of}", {
              before: item.before,
              before_of: item.before_of,
              after: item.after,
              after_of: item.after_of,
            }),
      ),
      el(
        "span",
        { class: "rs-phrase-bar rs-column", "aria-hidden": "true" },
        el("i", { style: { "--w": share(item.before, item.before_of) } }),
        el("i", { style: { "--w": share(item.after, item.after_of) } }),
      ),
    );
  }

  gap({ step, sample, first, second, first_value: one, second_value: other, response }, count) {
    return el(
      "p",
      { class: "rs-gap" },
      el(
        "span",
        {},
        t("Of {count} recorded answers, score and gold disagree most about one:", { count: integer(count) }),
        " ",
      ),
      el("b", {}, `${t(readable(first, 40))} ${number(one)}, ${t(readable(second, 40))} ${number(other)}`),
      " ",
      pushButton("rs-link", t("open it (step {step})", { step }), () => this.go({ step, sample })),
      el("span", { class: "rs-gap-text rs-muted" }, readable(response, 160)),
    );
  }
}

/** That every answer, or nearly every one, begins alike. */
function alike({ text, count, of }) {
  const words = readable(text, 80);
  return count === of
    ? t("Every answer begins with \u201c{words}\u201d now.", { words })
    : t("{count} of {of} answers begin with \u201c{words}\u201d now.", {
        count: integer(count),
        of: integer(of),
        words,
      });
}

const steps = ([first, last]) =>
  first === last ? t("step {step}", { step: first }) : t("steps {first} to {last}", { first, last });
const share = (part, all) => `${((100 * part) / Math.max(1, all)).toFixed(0)}%`;

/** How many times as frequent, as a logarithm; one response more on each side, so that none is not infinitely rare. */
const change = (one) => Math.log((one.after + 1) / (one.after_of + 1) / ((one.before + 1) / (one.before_of + 1)));

/** The few phrases that tell a reader most, the strongest first, of those that came and of those that went. */
function strongest(phrases) {
  const telling = phrases.filter((one) => LETTERS.test(one.text) && Math.abs(change(one)) >= CLEAR);
  const came = telling.filter((one) => one.log_odds > 0).slice(0, MOST_PHRASES.up);
  const went = telling.filter((one) => one.log_odds <= 0).slice(0, MOST_PHRASES.down);
  return [...came, ...went].sort((one, other) => Math.abs(other.z) - Math.abs(one.z));
}

/** Tokens whose probability clearly changed, each once, at the place where it changed most. */
function clearest(list) {
  const clear = list.filter(
    (one) => LETTERS.test(one.token) && Math.abs(Math.log((one.after + 0.01) / (one.before + 0.01))) >= CLEAR,
  );
  return clear.filter((one, index) => clear.findIndex((other) => other.token === one.token) === index);
}

/** The end of a text, from the beginning of a word. */
function ending(text) {
  if (text.length <= CONTEXT) return text;
  const end = text.slice(-CONTEXT);
  return end.includes(" ") ? end.slice(end.indexOf(" ") + 1) : end;
}

const chance = (value) => (value > 0 && value < 0.005 ? t("under 1\u202f%") : percent(value, 0));

function shifts(title, all) {
  const list = clearest(all);
  if (!list.length) return null;
  const items = list
    .slice(0, MOST_TOKENS)
    .map((item) =>
      el(
        "li",
        {},
        el("span", { class: "rs-muted" }, `… ${spoken(ending(item.context))} `),
        el("b", {}, spoken(item.token.trim() || item.token)),
        ` ${chance(item.before)} → ${chance(item.after)}`,
      ),
    );
  return el("div", { class: "rs-shifts" }, el("h4", {}, title), el("ul", {}, items));
}

function trait({ title, unit, before, after }) {
  const part = unit.startsWith("share");
  const write = (value) => (part ? percent(value, 0) : number(value, Math.abs(value) < 10 ? 2 : 1));
  return [el("dt", { "data-tip": unit || null }, title), el("dd", {}, `${write(before)} → ${write(after)}`)];
}
