// A lesson's text, from its tree to elements. Text reaches the document only as text nodes; formulas become MathML.
import { onPlainClick } from "../../shared/links.js";
import { address } from "../../shared/address.js";
import { el, setText } from "../../shared/dom.js";
import { t } from "../../shared/language.js";

const MATH = "http://www.w3.org/1998/Math/MathML";
const WAITING = "…";
const OURS = "rlhf_studio/";

function math([tag, attributes, ...children]) {
  const node = document.createElementNS(MATH, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.map((child) => (typeof child === "string" ? child : math(child))));
  return node;
}

/** Where links inside a text lead: `page.choose(params)` opens a lesson or another place. */
export const leadOf = (page) => ({
  lesson: (lesson, scene) => page.choose(scene ? { lesson, scene } : { lesson }),
  place: (params) => page.choose(params),
});

/** A link inside this page: it has an address to copy, and a plain click opens it without loading the page again. */
const inside = (params, open) => ({
  href: `?${new URLSearchParams(params)}`,
  onclick: onPlainClick(open),
});

function toLesson(to, lead) {
  const [lesson, scene] = to.split(/[#/]/);
  return inside(scene ? { lesson, scene } : { lesson }, () => lead.lesson(lesson, scene));
}

function toPlace(to, lead) {
  const params = Object.fromEntries(new URLSearchParams(`place=${to}`));
  return inside(params, () => lead.place(params));
}

const LINKS = {
  lesson: toLesson,
  place: toPlace,
  tour: (to, lead) => toPlace(`tour&show=${to}`, lead),
  doc: (to, lead) => toPlace(`help&show=${to.replace("#", "&scene=")}`, lead),
  tab: (to) => ({ href: "#", onclick: (event) => (event.preventDefault(), address.lead(to, {})) }),
};

function link({ to, content }, lead) {
  const [kind, rest] = [to.slice(0, to.indexOf(":")), to.slice(to.indexOf(":") + 1)];
  if (kind === "term")
    return el("span", { class: "rs-learn-term", tabindex: "0", "data-term": rest }, inline(content, lead));
  const how = LINKS[kind] ? LINKS[kind](rest, lead) : { href: to, target: "_blank", rel: "noopener noreferrer" };
  return el("a", how, inline(content, lead));
}

const WORDS_OF_A_QUOTATION = 3;

/** Put what is known into a slot: a number, a word, or somebody's words, which are shown as a quotation. */
export function putSlot(node, text) {
  setText(node, text);
  const words = text.split(/\s+/).filter((word) => /\p{L}/u.test(word));
  node.classList.toggle("rs-learn-quoted", words.length >= WORDS_OF_A_QUOTATION);
}

const CLOSING = /^[\u3001\u3002\uff0c\uff1b\uff1a\uff1f\uff01\uff09\u201d]+/u;
const closingOf = (piece) => (typeof piece === "string" && CLOSING.exec(piece)?.[0]) || "";

/** A formula, with the Chinese sign that closes it: browsers would begin a line with that. */
const formula = (piece, next) => {
  const closing = closingOf(next);
  return closing ? el("span", { class: "rs-learn-unbroken" }, math(piece.tree), closing) : math(piece.tree);
};

/** Pieces of a line. `lead.slot(key, node)` is told of each slot, so that its number can be put there. */
export function inline(pieces, lead) {
  return pieces.map((piece, place) => {
    if (typeof piece === "string") return pieces[place - 1]?.kind === "formula" ? piece.replace(CLOSING, "") : piece;
    if (piece.kind === "code") return el("code", {}, piece.text);
    if (piece.kind === "formula") return formula(piece, pieces[place + 1]);
    if (piece.kind === "slot") {
      const node = el("span", { class: "rs-learn-slot" }, WAITING);
      lead.slot?.(piece.key, node);
      return node;
    }
    if (piece.kind === "link") return link(piece, lead);
    return el(piece.kind === "strong" ? "strong" : "em", {}, inline(piece.content, lead));
  });
}

const items = (block, lead) => block.items.flatMap((item) => blockNode(item, lead));

const KINDS = {
  paragraph: (block, lead) => el("p", {}, inline(block.content, lead)),
  heading: (block, lead) =>
    el(
      block.level > 2 ? "h4" : "h3",
      { tabindex: block.anchor && "-1", data: { anchor: block.anchor || "" } },
      inline(block.content, lead),
    ),
  listing: ({ lines }) => el("div", { class: "rs-learn-code" }, coloured(lines)),
  formula: (block) =>
    el(
      "div",
      { class: "rs-learn-formula", tabindex: "0", role: "group", "aria-label": t("Formula") },
      math(block.tree),
    ),
  bullet_list: (block, lead) => el("ul", {}, items(block, lead)),
  ordered_list: (block, lead) => el("ol", {}, items(block, lead)),
  list_item: (block, lead) => el("li", {}, items(block, lead)),
  table: (block, lead) =>
    el(
      "div",
      { class: "rs-learn-wide", tabindex: "0", role: "group", "aria-label": t("Table") },
      el("table", {}, items(block, lead)),
    ),
  row: (block, lead) => el("tr", {}, items(block, lead)),
  header: (block, lead) =>
    el(
      "th",
      { scope: "col" },
      block.items.flatMap((item) => inline(item.content, lead)),
    ),
  cell: (block, lead) =>
    el(
      "td",
      {},
      block.items.flatMap((item) => inline(item.content, lead)),
    ),
  code,
};

function blockNode(block, lead) {
  return KINDS[block.kind](block, lead);
}

/** The elements of plain blocks. */
export const blocks = (list, lead) => list.map((block) => blockNode(block, lead));

/** Lines of code, each as pairs of a class and a text. */
function coloured(lines) {
  const rows = lines.flatMap((pieces, number) => [
    number ? "\n" : "",
    ...pieces.map(([kind, text]) => (kind ? el("span", { class: `rs-code-${kind}` }, text) : text)),
  ]);
  return el("pre", { tabindex: "0" }, el("code", {}, rows));
}

function code({ symbol, path, lines }) {
  return el(
    "figure",
    { class: "rs-learn-code" },
    el(
      "figcaption",
      {},
      path.startsWith(OURS) ? t("In our code:") + " " : `${t("In {project}:", { project: path.split("/")[0] })} `,
      el("code", {}, symbol),
      el("span", { class: "rs-muted" }, path),
    ),
    coloured(lines),
  );
}
