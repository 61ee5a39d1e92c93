// A guided look for who wants one: three stops, from a token to why it was good, and what the update made of it. It
// goes to a token whose probability clearly moved, wherever in the run that is, unless a person has chosen one.
import { el, fill, pushButton, setText, show } from "../shared/dom.js";
import { number, percent, spoken } from "../shared/format.js";
import { lasting } from "../shared/lasting.js";
import { isKnown } from "../shared/tokens.js";
import { t } from "../shared/language.js";

const GAP = 10;
const DONE = "done";
const CHOSEN = t("It is the one you chose.");

export class Guide {
  /**
   * @param work   the samples and the inspector that are looked at
   * @param fetch  asks the server
   * @param go     shows a place {step, sample, token}
   */
  constructor({ work, fetch, go }) {
    const { inspector } = work;
    this.work = work;
    this.fetch = fetch;
    this.show = go;
    this.inspector = inspector;
    this.start = pushButton("rs-button rs-small rs-guide-start", t("Show me around"), () => this.open());
    this.title = el("strong", { id: "rs-guide-title" });
    this.text = el("p", { id: "rs-guide-text" });
    this.next = el("button", {
      type: "button",
      class: "rs-button rs-small rs-primary",
      onclick: () => this.go(this.at + 1),
    });
    this.node = el(
      "div",
      {
        class: "rs-guide",
        role: "dialog",
        tabindex: "-1",
        "aria-labelledby": "rs-guide-title",
        "aria-describedby": "rs-guide-text",
        hidden: true,
        onkeydown: (event) => {
          if (event.key === "Escape") this.close();
          event.stopPropagation(); // the arrows are the inspector's
        },
      },
      this.title,
      this.text,
      el(
        "div",
        { class: "rs-dialog-buttons" },
        pushButton("rs-button rs-small", t("Close"), () => this.close()),
        this.next,
      ),
    );
    inspector.node.append(this.node);
    inspector.title.after(this.start);
    inspector.onshown = () => this.shown();
    this.start.classList.toggle("rs-new", !lasting.get("guided", false));
    this.offered = el(
      "p",
      { class: "rs-message rs-flow rs-offered", hidden: true },
      t("Look at one token of this run: why it was good, and what the update made of it."),
      pushButton("rs-button rs-small rs-primary", t("Show me around"), () => this.open()),
      pushButton("rs-button rs-small", t("Not now"), () => this.settle()),
    );
  }

  /** Whether a token of this run has all that is told. */
  allow(whole) {
    show(this.start, whole);
  }

  /**
   * Offer to show around, in the first run that this person follows from its beginning, and only in this one: until it
   * is over, or the person has gone on to a step or a token alone.
   */
  offer(run, begun) {
    const before = lasting.get("around", null);
    const { step, sample, token } = this.work.choice;
    const alone = [step, sample, token].some((chosen) => chosen !== null);
    if (before === null && begun) lasting.set("around", alone ? DONE : run);
    else if (before === run && alone) this.settle();
    show(this.offered, begun && lasting.get("around", null) === run);
  }

  /** The offer was taken or declined: it does not come back. */
  settle() {
    lasting.set("around", DONE);
    show(this.offered, false);
  }

  async open() {
    if (!this.inspector.sample || this.asked) return;
    this.asked = true;
    this.whence = this.work.choice.token === null ? await this.find() : CHOSEN;
    this.asked = false;
    if (!this.inspector.sample) return;
    this.inspector.choose("advantages");
    this.go(0);
    this.settle();
  }

  /** Go to a token that moved clearly; gives why the one that is shown then was taken. */
  async find() {
    const reply = await this.fetch({ kind: "moved" });
    const searched = reply && !reply.problem;
    if (reply?.token) {
      const { step } = reply.token;
      await this.show(reply.token);
      if (await this.arrived(reply.token))
        return t("Of the tokens of this run, the update of step {step} moved this one most clearly.", { step });
      if (this.work.choice.token !== null) return CHOSEN; // the person has gone on to another one
    }
    const decisive = t("It has the largest advantage of this response.");
    return searched && !reply.token
      ? t("{decisive} No rewarded token of this run clearly moved within one step.", { decisive })
      : decisive;
  }

  /** Wait until the inspector shows this token; false once it is clear that something else is shown. */
  arrived(place) {
    return new Promise((resolve) => {
      this.look = () => {
        const { choice, shown } = this.work;
        const { sample, index } = this.inspector;
        const wanted = choice.step === place.step && choice.sample === place.sample && choice.token === place.token;
        const there = sample && sample.step === shown.step && sample.sample === shown.sample; // all has arrived
        if (wanted && !(there && sample.step === place.step)) return;
        this.look = null;
        resolve(wanted && sample.sample === place.sample && index === place.token);
      };
      this.look();
    });
  }

  /** The inspector shows something: perhaps what is waited for; what is told of another token is told no more. */
  shown() {
    this.look?.();
    if (this.node.hidden) return;
    if (this.told === this.shownNow()) this.mark(this.stops()[this.at].node);
    else this.hide();
  }

  shownNow() {
    const { sample, index } = this.inspector;
    return sample && `${sample.step} ${sample.sample} ${index}`;
  }

  hide() {
    show(this.node, false);
    this.mark(null);
  }

  close() {
    this.hide();
    lasting.set("guided", true);
    this.start.classList.remove("rs-new");
    this.start.focus();
  }

  stops() {
    const { sample, index, view, card } = this.inspector;
    const { arrays, chances, card: told, response_pieces: pieces } = sample.tokens;
    const at = (name) => arrays[name]?.[index] ?? null;
    const token = `“${spoken(pieces[index]).trim() || spoken(pieces[index])}”`;
    const advantage = at("advantages");
    const better = advantage >= 0;
    const [was, now] = [chances.logprobs?.[index] ?? null, chances.new_logprobs?.[index] ?? null];
    return [
      {
        node: view.nodes[index],
        title: t("1 of 3: one token"),
        text: t(
          "The policy wrote {token} here. Its colour is its advantage: orange turned out better than expected, " +
            "blue worse. {whence}",
          { token, whence: this.whence },
        ),
      },
      {
        node: card.node.querySelector(".rs-formulas"),
        title: t("2 of 3: why its advantage"),
        text:
          advantage === null
            ? t("Its advantage is not known yet.")
            : t("Its advantage is {advantage}: {meaning} The sums below show where it comes from.", {
                advantage: number(advantage),
                meaning: this.expected(better),
              }),
      },
      {
        node: card.node.querySelector(".rs-numbers"),
        title: t("3 of 3: what the update did to its probability"),
        text:
          was === null || now === null
            ? t("The update is still to come; it will change this token's probability.")
            : t(
                "{token} had a probability of {was} when it was written, and {now} in the last pass of this step's " +
                  "update. {judgement}",
                {
                  token,
                  was: percent(was),
                  now: percent(now),
                  judgement: judged(told.moves[index], told.signs[index]),
                },
              ),
      },
    ];
  }

  /** What an advantage says: without a critic it is the whole response that is compared. */
  expected(better) {
    return isKnown("values", this.inspector.settings)
      ? better
        ? t("from here on the response earned more than the value head expected.")
        : t("from here on the response earned less than the value head expected.")
      : better
        ? t("the whole response did better than the others to its prompt.")
        : t("the whole response did worse than the others to its prompt.");
  }

  go(at) {
    const stops = this.stops();
    if (at >= stops.length) return this.close();
    this.at = at;
    this.told = this.shownNow();
    const { node, title, text } = stops[at];
    setText(this.title, title);
    setText(this.text, text);
    fill(this.next, at + 1 < stops.length ? t("Next") : t("Done"));
    show(this.node, true);
    this.mark(node);
    node?.scrollIntoView({ block: "center" });
    this.place(node);
    return this.node.focus({ preventScroll: true });
  }

  mark(node) {
    this.marked?.classList.remove("rs-guided");
    this.marked = node;
    node?.classList.add("rs-guided");
  }

  place(node) {
    if (!node) return;
    const frame = this.inspector.node.getBoundingClientRect();
    const box = node.getBoundingClientRect();
    const own = this.node.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left - frame.left, frame.width - own.width - 8));
    const above = box.height > 120;
    this.node.style.left = `${left}px`;
    const top = above ? Math.max(8, box.top - frame.top - own.height - GAP) : box.bottom - frame.top + GAP;
    this.node.style.top = `${top}px`;
  }
}

/** What to say of a token's move, "+", "-" or "0", for an advantage of this sign. */
function judged(move, sign) {
  if (move === "0") return t("It hardly moved: one update is a small step, and many add up.");
  if (!"+-".includes(sign)) return "";
  return move === sign
    ? t("That is the way its advantage asked for.")
    : t("Its advantage asked for the other way: other tokens share the same weights.");
}
