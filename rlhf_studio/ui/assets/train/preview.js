// The prompts as the policy will read them: the first ones, how long they are, and what is left out.
import { debounce, el, elEach, fill } from "../shared/dom.js";
import { counted, integer } from "../shared/format.js";
import { listing, t } from "../shared/language.js";
import { figure, numberHead, table } from "../shared/table.js";

const SLOW = 700;
const BAR_HEIGHT = 44;
// by how many texts
const TITLES = { 1: [t("Prompt")], 2: [t("Prompt"), t("Response")], 3: [t("Prompt"), t("Chosen"), t("Rejected")] };

export class Preview {
  /** @param ask  async () => {rows: [{text, tokens, cut}], total, whole, columns, lengths, notes, message} */
  constructor(ask) {
    this.ask = ask;
    this.node = el("div", { class: "rs-preview", "aria-live": "polite" });
    this.ondraw = () => undefined;
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
    const slow = setTimeout(
      () =>
        key === this.key &&
        this.say(t("Reading the first rows. From the Hugging Face hub this can take half a minute.")),
      SLOW,
    );
    try {
      const answer = await this.ask();
      if (key === this.key) this.draw(answer);
    } catch (error) {
      console.error("the prompts could not be shown:", error);
      this.stale = true;
      this.say(t("The app does not answer."));
    } finally {
      clearTimeout(slow);
    }
  }

  say(text) {
    return fill(this.node, el("p", { class: "rs-help" }, text));
  }

  draw(answer) {
    const { shape, rows, total, whole, columns, lengths, notes, message } = answer;
    this.last = answer;
    this.ondraw();
    if (message) return this.say(message);
    const noun = shape === undefined ? "prompt" : "example";
    const parts = rows.length
      ? [shape && el("p", { class: "rs-help" }, sentence(shape)), this.table(rows, total, whole, noun)]
      : [
          el(
            "p",
            {},
            noun === "prompt"
              ? t("With these settings none of the prompts looked at is left.")
              : t("With these settings none of the examples looked at is left."),
          ),
        ];
    if (lengths) parts.push(summary(lengths, noun));
    if (notes.length) parts.push(elEach("ul", { class: "rs-preview-notes" }, notes, (note) => el("li", {}, note)));
    if (columns.length) parts.push(el("p", { class: "rs-help" }, t("Columns: {join}", { join: listing(columns) })));
    return fill(this.node, parts);
  }

  table(rows, total, whole, noun) {
    const counted = rows.some((row) => row.tokens !== null);
    const titles = TITLES[rows[0].texts?.length || 1];
    const lines = rows.map((row) => [
      ...(row.texts || [row.text]).map((text, place) => [
        text,
        ...(place === 0 ? remarks(row).map((said) => el("small", {}, said)) : []),
      ]),
      counted ? figure(tokensOf(row), row.cut ? t(" cut") : "") : null,
    ]);
    const caption = captionOf(rows.length, total, whole, noun);
    return table([...titles, counted ? numberHead(t("Tokens")) : null], lines, { caption });
  }
}

/** What is said of an example beside its prompt. */
const remarks = ({ held_out: heldOut, said }) => [heldOut && t(" held out"), said && ` ${said}`].filter(Boolean);

/** The tokens of a prompt, or of each text of an example. */
const tokensOf = ({ tokens }) =>
  Array.isArray(tokens) ? tokens.map((count) => integer(count)).join(" + ") : integer(tokens);

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

function captionOf(shown, total, whole, noun) {
  const prompts = noun === "prompt" ? counted(total, "prompt") : counted(total, "example");
  if (!whole) return t("First {shown} of the {prompts} looked at; there are more", { shown, prompts });
  return shown < total ? t("First {shown} of {prompts}", { shown, prompts }) : prompts;
}

/** How long the prompts are: four figures, and a small histogram of tokens. */
function summary({ least, median, percentile_95: high, most, bins }, noun) {
  const figures = [
    [t("Shortest"), least],
    [t("Median"), median],
    [t("95 of 100 up to"), high],
    [t("Longest"), most],
  ].map(([label, count]) => el("div", {}, el("dt", {}, label), el("dd", {}, integer(count))));
  const tallest = Math.max(...bins);
  const height = (count) => (count ? Math.max(2, Math.round((count / tallest) * BAR_HEIGHT)) : 0);
  const bars = bins.map((count) => el("span", { class: "rs-bar", style: { height: `${height(count)}px` } }));
  const picture = el(
    "div",
    {
      class: "rs-bars",
      role: "img",
      "aria-label":
        noun === "prompt"
          ? t("Lengths of the prompts, from 0 to {most} tokens", { most: integer(most) })
          : t("Lengths of the examples, from 0 to {most} tokens", { most: integer(most) }),
    },
    bars,
  );
  const axis = el(
    "div",
    { class: "rs-bars-axis", "aria-hidden": "true" },
    el("span", {}, "0"),
    el("span", {}, t("{most} tokens", { most: integer(most) })),
  );
  return el("div", { class: "rs-lengths rs-wrap" }, el("dl", {}, figures), el("div", {}, picture, axis));
}
