// A guided look for who wants one: three stops, from a token to why it was good, and what the update made of it.
import { el, fill, setText, show } from "../shared/dom.js";
import { number, percent, spoken } from "../shared/format.js";
import { lasting } from "../shared/lasting.js";

const GAP = 10;

export class Guide {
  /** @param inspector  the token inspector that is looked at */
  constructor(inspector) {
    this.inspector = inspector;
    this.start = el(
      "button",
      { type: "button", class: "rs-button rs-small rs-guide-start", onclick: () => this.open() },
      "Show me around",
    );
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
        el("button", { type: "button", class: "rs-button rs-small", onclick: () => this.close() }, "Close"),
        this.next,
      ),
    );
    inspector.node.append(this.node);
    inspector.title.after(this.start);
    this.start.classList.toggle("rs-new", !lasting.get("guided", false));
  }

  open() {
    if (!this.inspector.sample) return;
    this.inspector.choose("advantages");
    this.go(0);
  }

  close() {
    show(this.node, false);
    this.mark(null);
    lasting.set("guided", true);
    this.start.classList.remove("rs-new");
    this.start.focus();
  }

  stops() {
    const { sample, index, view, card } = this.inspector;
    const { arrays, response_pieces: pieces } = sample.tokens;
    const at = (name) => arrays[name]?.[index] ?? null;
    const token = `“${spoken(pieces[index]).trim() || spoken(pieces[index])}”`;
    const advantage = at("advantages");
    const better = advantage >= 0;
    const [was, now] = [at("logprobs"), at("new_logprobs")];
    const moved = was !== null && now !== null ? now - was : null;
    return [
      {
        node: view.nodes[index],
        title: "1 of 3: one token",
        text:
          `The policy wrote ${token} here. Its colour is its advantage: orange turned out better than expected, ` +
          `blue worse. This one is the most decisive of the response, or the one you chose.`,
      },
      {
        node: card.node.querySelector(".rs-formulas"),
        title: "2 of 3: why its advantage",
        text:
          advantage === null
            ? "Its advantage is not known yet."
            : `Its advantage is ${number(advantage)}: from here on the response earned ` +
              `${better ? "more" : "less"} than the value head expected. The sums below show where it comes from.`,
      },
      {
        node: card.node.querySelector(".rs-numbers"),
        title: "3 of 3: its probability a step later",
        text:
          moved === null
            ? "The update is still to come; it will change this token's probability."
            : `${token} had a probability of ${percent(Math.exp(was))} when it was written, and has ` +
              `${percent(Math.exp(now))} after this step's update. ${
                moved >= 0 === better
                  ? "That is the way its advantage asked for."
                  : "Its advantage asked for the other way: other tokens share the same weights."
              }`,
      },
    ];
  }

  go(at) {
    const stops = this.stops();
    if (at >= stops.length) return this.close();
    this.at = at;
    const { node, title, text } = stops[at];
    setText(this.title, title);
    setText(this.text, text);
    fill(this.next, at + 1 < stops.length ? "Next" : "Done");
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
