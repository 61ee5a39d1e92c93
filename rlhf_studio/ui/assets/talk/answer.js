// One policy's answer: tokens that arrive one by one, in the inspector's colours, its figures, and the card of a token.
import { each, el, fill, pushButton, setText, show } from "../shared/dom.js";
import { counted, NONE, chance, number, readable } from "../shared/format.js";
import { TokenView, extent, scaleOf, tokenContent } from "../shared/tokens.js";
import { clauses, colon, t } from "../shared/language.js";

const ARRAYS = ["logprobs", "ref_logprobs", "kl", "entropy", "values", "rewards", "chances", "ref_chances"];
const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The token view of the inspector, for a response that grows. */
class GrowingTokens extends TokenView {
  constructor(onpick, name) {
    super(onpick, (index) => this.hover(index));
    this.list.setAttribute("aria-label", t("Tokens of {name}", { name }));
    const arrays = Object.fromEntries(ARRAYS.map((array) => [array, []]));
    this.tokens = { prompt_pieces: [], response_ids: [], response_pieces: [], arrays };
    this.set({ prompt: "", stopped: false, tokens: this.tokens });
    this.list.addEventListener("keydown", (event) => this.onkey(event));
  }

  add(token) {
    const { arrays } = this.tokens;
    this.tokens.response_ids.push(token.id);
    this.tokens.response_pieces.push(token.piece);
    for (const name of ARRAYS) arrays[name].push(token[name] ?? token[name.replace(/s$/, "")] ?? null);
    this.list.append(...this.tokenNodes(this.tokens.response_ids.length - 1));
    if (this.nodes.length === 1) this.nodes[0].tabIndex = 0;
  }

  /** The response is complete: its last token may be the stop token, and carries the score. */
  finish(stopped) {
    const focused = this.nodes.indexOf(document.activeElement);
    const kept = this.pinned;
    this.sample.stopped = stopped;
    this.set(this.sample);
    if (this.nodes.length) this.nodes[0].tabIndex = 0;
    if (kept !== null) this.pin(kept, false, focused >= 0);
    else if (focused >= 0) this.nodes[focused].focus();
  }

  ending() {
    const { stopped, complete } = this.sample;
    const tip = t("The response reached the response length before its stop token.");
    return complete && !stopped ? [el("span", { class: "rs-chip", "data-tip": tip }, t("cut at the limit"))] : [];
  }

  /** Colour by a quantity, on a scale that both answers share. */
  colourOn(quantity, values, limit) {
    this.quantity = quantity;
    this.values = values;
    this.scale = scaleOf(values, quantity, { centre: 0, limit });
    this.list.dataset.scale = quantity.scale;
    this.paint(0, this.nodes.length);
  }

  onkey(event) {
    const last = this.nodes.length - 1;
    const at = this.nodes.indexOf(event.target.closest("[data-index]"));
    const ends = { Home: 0, End: last, Enter: at, " ": at };
    const next = KEYS[event.key] ? Math.min(last, Math.max(0, at + KEYS[event.key])) : ends[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    this.onpick(next, true);
  }
}

export class Answer {
  /**
   * @param name    of the policy, for people
   * @param words   the glossary's entries, by name
   * @param onpick  called when a token was chosen
   */
  constructor(name, words, onpick) {
    this.name = name;
    this.words = words;
    this.onpick = onpick;
    this.index = null;
    this.tops = [];
    this.end = null;
    this.view = new GrowingTokens((index, focus) => this.pick(index, focus), name);
    this.status = el("p", { class: "rs-answer-status" }, t("Waiting"));
    this.problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    this.notes = el("div", { class: "rs-answer-notes" });
    this.figures = el("dl", { class: "rs-answer-figures rs-wrap", hidden: true });
    this.card = el("div", { class: "rs-card rs-column", hidden: true });
    show(this.view.node, false);
    this.node = el(
      "section",
      { class: "rs-answer", "aria-label": t("Answer of {name}", { name }) },
      el("h3", {}, name),
      this.status,
      this.view.node,
      this.figures,
      this.problem,
      this.notes,
      this.card,
    );
  }

  get tokens() {
    return this.view.tokens;
  }

  receive(event) {
    if (event.event === "begin") this.begin(event);
    if (event.event === "token") this.add(event);
    if (event.event === "end") this.finish(event);
    if (event.event === "failed") this.fail(event.error);
  }

  begin(event) {
    this.estimator = event.kl_estimator;
    this.say(t("Writing"));
    each(this.notes, event.notes, (note) => el("p", {}, note));
  }

  add(event) {
    this.tops.push({ policy: event.top, reference: event.ref_top });
    this.view.add(event);
    show(this.view.node, true);
  }

  finish(event) {
    this.end = event;
    const { rewards } = this.tokens.arrays;
    if (rewards.length) rewards[rewards.length - 1] = event.last_reward;
    this.view.sample.complete = true;
    this.view.finish(event.stopped);
    this.say("");
    this.showFigures(event);
    for (const note of [event.no_score, event.cut]) if (note) this.notes.append(el("p", {}, readable(note)));
    if (this.index !== null) this.pick(this.index);
  }

  fail(text) {
    setText(this.problem, readable(text));
    show(this.problem, true);
    this.say("");
  }

  stop() {
    if (this.end || !this.problem.hidden) return;
    this.say(this.tokens.response_ids.length ? t("Stopped here") : t("Stopped"));
  }

  say(text) {
    setText(this.status, text);
    show(this.status, Boolean(text));
  }

  showFigures({ score, gold, kl, length, parts }) {
    const names = Object.entries(parts);
    const made = names.length > 1 ? clauses(names.map(([name, value]) => `${name} ${number(value)}`)) : "";
    const rows = [
      [t("Score"), score === null ? NONE : number(score), made || this.words.score?.meaning],
      gold === null ? null : [t("Gold"), number(gold), this.words.gold?.meaning],
      ["KL", `${number(kl)} ${t("nats")}`, t("Log-probability less the reference's, added up over the response.")],
      [t("Length"), counted(length, "token"), ""],
    ].filter(Boolean);
    each(this.figures, rows, ([name, value, tip]) =>
      el("div", {}, el("dt", { "data-tip": tip || null }, name), el("dd", { "data-figure": name }, value)),
    );
    show(this.figures, true);
  }

  /** The chosen quantity's numbers. */
  values(name) {
    return this.tokens.arrays[name] || [];
  }

  pick(index, focus = false) {
    this.index = index;
    this.view.pin(index, false, focus);
    fill(this.card, ...this.cardOf(index));
    show(this.card, true);
    this.onpick();
  }

  cardOf(index) {
    const { response_ids: ids, response_pieces: pieces, arrays } = this.tokens;
    const at = (name) => arrays[name][index];
    const rows = [
      ["logprobs", chance(at("chances"))],
      ["ref_logprobs", chance(at("ref_chances"))],
      ["kl", this.estimator],
      ["rewards", ""],
      ["entropy", ""],
      at("values") === null ? null : ["values", ""],
    ].filter(Boolean);
    const cells = rows.flatMap(([name, note]) => [
      el("dt", { "data-tip": this.words[name]?.meaning }, this.words[name]?.title || name),
      el("dd", {}, number(at(name), 4)),
      el("dd", { class: "rs-note" }, note),
    ]);
    return [
      el(
        "div",
        { class: "rs-card-head rs-wrap" },
        el(
          "span",
          { class: "rs-card-title" },
          t("{unit} {index} of {length}", { unit: t("Token"), index: index + 1, length: ids.length }),
        ),
        el("span", { class: "rs-card-token" }, tokenContent(pieces[index])),
        el("span", { class: "rs-muted" }, `id ${ids[index]}`),
        pushButton("rs-quiet rs-card-close", t("Close"), () => this.unpick()),
      ),
      el("section", { class: "rs-card-block rs-numbers" }, el("dl", {}, cells)),
      el(
        "section",
        { class: "rs-card-block" },
        el("h4", {}, t("The five likeliest")),
        el(
          "div",
          { class: "rs-alternatives-pair" },
          likeliest("Policy", this.tops[index].policy, ids[index], pieces[index], at("chances")),
          likeliest("Reference", this.tops[index].reference, ids[index], pieces[index], at("ref_chances")),
        ),
      ),
    ];
  }

  unpick() {
    show(this.card, false);
    this.view.nodes[this.index]?.setAttribute("aria-selected", "false");
    this.view.nodes[this.index]?.focus();
    this.index = null;
  }

  /** The answer as plain text. */
  text() {
    const figures = [...this.figures.querySelectorAll("div")].map((row) =>
      [...row.children].map((cell) => cell.textContent).join(" "),
    );
    const words = this.end ? this.end.response : this.tokens.response_pieces.join("");
    return [colon(this.name, "").trim(), words, clauses(figures), this.problem.textContent].filter(Boolean).join("\n");
  }
}

/** The largest size of a quantity in all of these answers. */
export const sharedLimit = (answers, quantity) =>
  extent(
    answers.flatMap((answer) => answer.values(quantity.name)),
    quantity.noise,
  );

function likeliest(title, top, own, piece, share) {
  const rows = top.map(([id, text, likely]) => ({ id, text: id === own ? piece : text, likely: likely ?? 0 }));
  if (!rows.some((row) => row.id === own) && Number.isFinite(share))
    rows.push({ id: own, text: piece, likely: share, beyond: true });
  const row = ({ id, text, likely, beyond }) => {
    const classes = [id === own && "rs-chosen", beyond && "rs-beyond"].filter(Boolean).join(" ");
    return el(
      "li",
      { class: classes || null, "data-tip": id === own ? t("The token that was written.") : null },
      el("i", { style: { "--w": `${(100 * likely).toFixed(1)}%` } }),
      el("span", { class: "rs-alternative-text rs-cut" }, tokenContent(text)),
      el("span", { class: "rs-alternative-share" }, chance(likely)),
    );
  };
  return el("div", { class: "rs-alternatives" }, el("h5", {}, title), el("ol", {}, rows.map(row)));
}
