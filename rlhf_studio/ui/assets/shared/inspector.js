// The token inspector: which quantity, the coloured response, the bars, and the card of one token.
import { pointing } from "../classroom/pointing.js";
import { ColourChoice } from "./answers.js";
import { el, fill, memory, pushButton, setText, show } from "./dom.js";
import { integer, lower, number, spoken } from "./format.js";
import { TokenCard } from "./card.js";
import { Strip } from "../charts/strip.js";
import { term } from "./tips.js";
import { Legend, TokenView, inWords, isKnown, valuesOf } from "./tokens.js";
import { listing, t, tp } from "./language.js";

/** @type {[string[], string][]} */
const KEYS = [
  [["↑", "↓"], tp("key", "response")],
  [["[", "]"], tp("key", "step")],
];

/** Whether a token of a response has more than nothing. */
const isRewarded = (values) => values.some((value) => value > 0);

/** What makes a token worth a look: being high, or where none is above 0, being low. */
const sizeIn = (values, value) => (isRewarded(values) ? value : -value);
const largestOf = (values) => Math.max(...values.filter(Number.isFinite).map((value) => sizeIn(values, value)));

const HOLD = t("On: a colour means the same number at every step of the run. Off: each step has its own scale.");

export class Inspector {
  /**
   * @param forms      the sums of a token card, see TokenCard
   * @param onpin      called with (index of a token, whether to focus it)
   * @param runScales  asks for the scales of the whole run: {scales, used, of, step}, null without an answer
   * @param {(sample: any, name: string) => Node | null} further  what else there is of a response, as a link
   */
  constructor(quantities, forms, onpin, runScales, further = () => null) {
    this.forms = forms;
    this.runScales = runScales;
    this.further = further;
    this.offered = quantities;
    this.onpin = onpin;
    this.sample = null;
    this.ppo = true;
    this.unit = "tokens"; // what lengths count
    this.index = null;
    this.onshown = () => {}; // called whenever another response or token is shown, or none
    const onchoice = () => {
      this.recolour();
      this.hover(null);
    };
    this.choice = new ColourChoice({
      key: "quantity",
      first: "advantages",
      label: t("Colour tokens by"),
      onchoice,
      keyed: true,
    });
    this.choice.offer(quantities);
    pointing.onchange(() => this.sample && this.view.point(pointing.tokenOf(this.sample)));
    this.build();
  }

  get quantity() {
    return this.choice.quantity;
  }

  get quantities() {
    return this.choice.quantities;
  }

  /** The quantities that a run's stage has. Of a stage other than PPO only those that a response has are shown. */
  offer(quantities, ppo) {
    this.offered = quantities;
    this.ppo = ppo;
    this.choice.offer(ppo ? quantities : []);
  }

  build() {
    this.facts = el("div", { class: "rs-facts rs-wrap" });
    this.more = el("span", {});
    this.legend = new Legend();
    this.readout = el("div", { class: "rs-readout", "aria-hidden": "true" });
    this.view = new TokenView(
      (index) => this.onpin(index),
      (index) => this.hover(index),
    );
    this.strip = new Strip(
      (index) => this.onpin(index),
      (index) => this.hover(index),
    );
    this.card = new TokenCard(this.forms);
    this.numbers = el("input", { type: "checkbox", onchange: () => this.setNumbers(this.numbers.checked) });
    this.numbers.checked = memory.get("numbers", false);
    const switchNumbers = el("label", { class: "rs-check" }, this.numbers, t("Show numbers"));
    this.held = null;
    this.hold = el("input", { type: "checkbox", onchange: () => this.setHold(this.hold.checked) });
    this.compared = "";
    this.switchScale = el(
      "label",
      {
        class: "rs-check",
        "data-tip": HOLD,
      },
      this.hold,
      t("One scale for the run"),
    );
    this.scaleRow = el(
      "div",
      { class: "rs-scale-row rs-flow" },
      this.legend.node,
      el("span", { class: "rs-checks" }, this.switchScale, switchNumbers),
    );
    this.unknown = el("p", { class: "rs-help" });
    this.unitKey = el("span", {});
    this.quantityKeys = el("kbd", {});
    this.quantityKey = el("span", {}, this.quantityKeys, " ", t("quantity"));
    this.body = el(
      "div",
      { class: "rs-inspector-body rs-column" },
      this.scaleRow,
      this.view.node,
      this.strip.node,
      this.readout,
      this.card.node,
      this.unknown,
      el(
        "p",
        { class: "rs-keys" },
        [el("kbd", {}, "←"), el("kbd", {}, "→"), " ", this.unitKey, "  "],
        KEYS.flatMap(([keys, text]) => [...keys.map((key) => el("kbd", {}, key)), ` ${text}  `]),
        this.quantityKey,
      ),
    );
    this.note = el("p", { class: "rs-hint", hidden: true });
    this.title = el("h3", {}, t("Token inspector"));
    this.node = el(
      "section",
      { class: "rs-panel rs-inspector rs-box", "aria-label": t("Token inspector") },
      el("div", { class: "rs-panel-head rs-wrap" }, this.title, this.facts),
      this.choice.node,
      this.note,
      this.body,
    );
    this.view.showNumbers(this.numbers.checked);
  }

  setNumbers(on) {
    memory.set("numbers", on);
    this.view.showNumbers(on);
  }

  choose(name) {
    this.choice.choose(name);
  }

  say(text) {
    this.sample = null;
    setText(this.note, text);
    show(this.note, true);
    show(this.body, false);
    fill(this.facts);
    this.onshown();
  }

  /** Of this response no token's numbers were recorded one by one; a lesson may compute them. */
  sayWithout(sample) {
    const link = sample.kept ? this.further(sample, t("Open it under the microscope")) : null;
    this.say(t("Token numbers were not recorded for this response."));
    const text = el("span", { class: "rs-muted" }, sample.prompt);
    this.note.prepend(el("span", { class: "rs-plain-text" }, text, sample.response));
    show(this.choice.node, false);
    if (link) this.note.append(" ", t("A lesson computes them from what was recorded."), " ", link);
  }

  /**
   * Show a response; keeps the colours' quantity. `index` null lets the page point at the most decisive token.
   *
   * @param scales   for each quantity the scale of the response's step; without it each response is its own scale
   * @param waiting  whether its step waits between two phases: what is not known yet may still come
   */
  set(sample, index, settings, scales = null, waiting = false) {
    this.settings = settings;
    this.scales = scales;
    this.waiting = waiting;
    if (!sample.tokens) return this.sayWithout(sample);
    this.sample = sample;
    this.offerRecorded();
    show(this.note, false);
    show(this.body, true);
    this.setFacts(sample);
    this.view.set(sample, this.one);
    this.recolour();
    this.pin(index, false);
    this.view.point(pointing.tokenOf(sample));
    return undefined;
  }

  /** Let a person choose among the quantities that are on record, and say once which are not. */
  offerRecorded() {
    const { tokens } = this.sample;
    const has = ({ name }) => valuesOf(tokens, name).some(Number.isFinite) || Boolean(this.scales?.[name]);
    const possible = this.offered.filter(({ name }) => !this.ppo || isKnown(name, this.settings));
    const there = this.waiting ? possible : possible.filter(has);
    const missing = this.ppo ? possible.filter((one) => !there.includes(one)) : [];
    this.choice.offer(there);
    for (const part of [this.choice.node, this.scaleRow, this.strip.node, this.readout, this.quantityKey])
      show(part, there.length > 0);
    setText(this.unitKey, t(this.one));
    setText(this.quantityKeys, there.length > 1 ? `1–${there.length}` : "1");
    const names = listing(missing.map(({ label }) => lower(label)));
    const single = t("The run records no numbers of single {tokens}.", { tokens: t(this.pieces) });
    setText(this.unknown, there.length ? t("The run does not record: {names}.", { names }) : single);
    show(this.unknown, missing.length > 0);
  }

  setFacts(sample) {
    const said = (name, text) =>
      el("span", { "data-term": name }, el("em", {}, lower(term(name).title)), " ", el("b", {}, text));
    // what is not on record is not told; of a step that waits it may still come
    const fact = (name, value, digits) => (this.waiting || value !== null) && said(name, number(value, digits));
    const parts = sample.parts.length > 1 ? sample.parts.map(([name, value]) => fact(`reward/${name}`, value)) : [];
    fill(
      this.facts,
      el("span", {}, t("Step {step}, response {sample}", { step: sample.step, sample: sample.sample + 1 })),
      fact("score", sample.score),
      parts,
      sample.gold === null ? null : fact("gold", sample.gold),
      fact("sample_kl", sample.kl, 1),
      said("length", integer(sample.length)),
      sample.stopped === null
        ? null
        : el("span", { "data-term": "stopped" }, sample.stopped ? t("ended by itself") : t("cut at the limit")),
      sample.cut
        ? el(
            "span",
            { "data-term": "tokens/reward_cut" },
            t("the reward read only the last {read} of {count} tokens", {
              read: integer(sample.cut[0]),
              count: integer(sample.cut[1]),
            }),
          )
        : null,
      this.more,
    );
  }

  recolour() {
    if (!this.sample) return;
    const given = this.held?.[this.quantity.name] || this.scales?.[this.quantity.name] || null;
    show(this.hold.parentNode, Boolean(this.scales));
    this.view.colour(this.quantity, given);
    this.legend.update(this.quantity, this.view.values, unitOf(this.quantity, this.one), this.view.scale);
    this.strip.update(this.sample, this.quantity, given, this.one);
    this.strip.pin(this.index);
  }

  setHold(on) {
    memory.set("one.scale", on);
    this.holdScales(on);
  }

  /** Steps can be compared while `key` stays the same: then all have one scale, unless a person chose otherwise. */
  compare(key) {
    if (key === this.compared) return;
    this.compared = key;
    this.holdScales(Boolean(key) && memory.get("one.scale", true));
  }

  /** Colour all steps by one scale, so that the colours of different steps can be compared. */
  async holdScales(on) {
    const asked = (this.asked = Symbol("scales"));
    this.hold.checked = on;
    const found = on ? await this.runScales() : null;
    if (asked !== this.asked) return;
    this.held = found?.scales || null;
    this.hold.checked = Boolean(this.held);
    this.switchScale.dataset.tip = this.held
      ? heldBy(found)
      : on
        ? `${t("The app gave no such scale.")} ${HOLD}`
        : HOLD;
    this.recolour();
  }

  /** What one part of the response is called. */
  get one() {
    return this.pieces.slice(0, -1);
  }

  /** What the response is cut into: words where the log gives its number of tokens, and a text without them. */
  get pieces() {
    const { sample, unit } = this;
    return !sample || sample.length === sample.tokens.response_ids.length ? unit : "words";
  }

  /** What decides which token a newcomer should look at first. */
  get telling() {
    const known = valuesOf(this.sample.tokens, "advantages").some(Number.isFinite);
    return this.ppo && known ? "advantages" : this.quantity.name;
  }

  /** The token a newcomer should look at first: the most rewarded one; where none is, that with the largest number. */
  decisive() {
    const values = valuesOf(this.sample.tokens, this.telling);
    if (!values.length) return null;
    const largest = largestOf(values);
    return Math.max(
      0,
      values.findIndex((value) => Number.isFinite(value) && sizeIn(values, value) === largest),
    );
  }

  /** Why the page points at a token by itself; where others have the same value, how many. */
  whyThis() {
    const click = t("click any {token}", { token: t(this.one) });
    const values = valuesOf(this.sample.tokens, this.telling).filter(Number.isFinite);
    if (!values.length) return click;
    const name = lower(term(this.telling).title);
    const largest = largestOf(values);
    const same = values.filter((value) => sizeIn(values, value) === largest).length;
    if (same === values.length && same > 1) return t("all have the same {name}; {click}", { name, click });
    if (same > 1) return t("one of {same} with the largest {name}; {click}", { same, name, click });
    if (!isRewarded(values)) return t("no {name} is above 0, this one is the lowest; {click}", { name, click });
    return t("largest {name}; {click}", { name, click });
  }

  pin(index, focus) {
    if (!this.sample) return;
    const count = this.sample.tokens.response_ids.length;
    const chosen = index !== null && index < count;
    this.index = chosen ? index : this.decisive();
    fill(this.more, this.further(this.sample, t("Under the microscope")));
    this.view.pin(this.index, !chosen, focus);
    this.strip.pin(this.index);
    if (this.index === null) this.card.empty(t("This response has no tokens."));
    else {
      const { settings, ppo, waiting, pieces: unit } = this;
      this.card.update(this.sample, this.index, { settings, auto: chosen ? "" : this.whyThis(), ppo, waiting, unit });
    }
    this.hover(null);
    this.onshown();
  }

  /** Highlight in text and bars alike, with the number written out. */
  hover(index) {
    this.view.hover(index);
    this.strip.hover(index);
    const shown = index ?? this.index;
    if (!this.sample || shown === null || shown >= this.sample.tokens.response_pieces.length)
      return setText(this.readout, "");
    const value = valuesOf(this.sample.tokens, this.quantity.name)[shown];
    const text = inWords(this.quantity, value, 4);
    return setText(this.readout, `${shown + 1}  “${spoken(this.sample.tokens.response_pieces[shown])}”  ${text}`);
  }

  move(by) {
    if (!this.sample || this.index === null) return;
    const count = this.sample.tokens.response_ids.length;
    this.onpin(Math.max(0, Math.min(count - 1, this.index + by)), true);
  }

  edge(last) {
    if (this.sample && this.index !== null) this.onpin(last ? this.sample.tokens.response_ids.length - 1 : 0, true);
  }
}

const ROOM = "(min-width: 1280px)"; // for the samples and the inspector beside each other

/** Keeps the inspector beside the samples; where there is no room, in a sheet that opens when it is wanted. */
export class InspectorPlace {
  /**
   * @param inspector  what it keeps
   * @param onclose    called when a person closes the sheet
   */
  constructor(inspector, onclose) {
    this.inspector = inspector.node;
    this.wide = window.matchMedia(ROOM);
    const close = pushButton("rs-button rs-small", t("Close"), () => this.sheet.close());
    this.sheet = el(
      "dialog",
      { class: "rs-sheet", "aria-label": t("Token inspector") },
      el("div", { class: "rs-sheet-bar" }, close),
    );
    this.node = el("div", { class: "rs-inspector-place" });
    this.sheet.addEventListener("close", () => this.wide.matches || onclose());
    this.sheet.addEventListener("click", ({ target }) => {
      const aside = target === this.sheet || target.closest("a");
      if (aside) this.close();
    });
    // a page that is put away takes its sheet along, which would else keep all others from being used
    new ResizeObserver(() => this.sheet.getClientRects().length || this.close()).observe(this.sheet);
    this.wide.addEventListener("change", () => this.settle());
    this.settle();
  }

  settle() {
    const { matches } = this.wide;
    if (matches) this.close();
    else this.sheet.append(this.inspector);
    fill(this.node, matches ? this.inspector : this.sheet);
  }

  open() {
    const { parentElement } = this.node;
    if (
      this.wide.matches ||
      this.sheet.open ||
      this.node.closest(".rs-gone") ||
      !parentElement?.getClientRects().length
    )
      return;
    this.sheet.showModal();
    this.sheet.scrollTop = 0;
  }

  close() {
    if (this.sheet.open) this.sheet.close();
  }
}

function heldBy({ used, of, step }) {
  const whence = used < of ? t("{used} of the {of} steps with samples", { used, of }) : t("all steps with samples");
  return t("The scale is that of {whence} up to step {step}. A larger value gets the strongest colour.", {
    whence,
    step,
  });
}

function unitOf(quantity, one) {
  const { unit } = term(quantity.name);
  return unit ? t("{unit} per {token}", { unit: t(unit), token: t(one) }) : "";
}
