// The first rows of the prompts, with their token counts.
import { debounce, el, fill } from "./dom.js";
import { integer } from "./format.js";

export class Preview {
  /** @param ask  async function that fetches {rows: [{text, tokens, cut}], total, message} */
  constructor(ask) {
    this.ask = ask;
    this.node = el("div", { class: "rt-preview", "aria-live": "polite" });
    this.soon = debounce(400, () => this.fetch());
  }

  get open() {
    return Boolean(this.node.closest("details")?.open);
  }

  /** Look again when something that matters here has changed; a closed section waits. */
  consider(watched) {
    const key = JSON.stringify(watched);
    if (key === this.key) return;
    this.key = key;
    this.stale = true;
    if (this.open) this.soon();
  }

  wake() {
    if (this.stale) this.fetch();
  }

  async fetch() {
    const key = this.key;
    this.stale = false;
    try {
      const answer = await this.ask();
      if (key === this.key) this.draw(answer);
    } catch (error) {
      console.error("the prompts could not be shown:", error);
      this.stale = true;
      fill(this.node, el("p", { class: "rt-help" }, "The app does not answer."));
    }
  }

  draw({ rows, total, message }) {
    if (!rows.length) return fill(this.node, el("p", { class: "rt-help" }, message));
    const counted = rows.some((row) => row.tokens !== null);
    const body = rows.map((row) =>
      el("tr", {}, el("td", {}, row.text), counted ? el("td", { class: "rt-number" }, integer(row.tokens), row.cut ? " cut" : "") : null),
    );
    const head = el("tr", {}, el("th", { scope: "col" }, "Prompt"), counted ? el("th", { scope: "col", class: "rt-number" }, "Tokens") : null);
    const caption = rows.length < total ? `First ${rows.length} of ${integer(total)} prompts` : `${integer(total)} ${total === 1 ? "prompt" : "prompts"}`;
    return fill(this.node, el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body)));
  }
}
