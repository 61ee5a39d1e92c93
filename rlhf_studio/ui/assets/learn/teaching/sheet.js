// A sheet of questions, on the page and in a file of its own: exercises to fill in, or their answers.
import { el, elEach } from "../../shared/dom.js";
import { PictureView } from "../../pictures/view.js";
import { answerName } from "../lesson/prediction.js";
import { blocks, inline, putSlot } from "../lesson/text.js";
import { t, tp } from "../../shared/language.js";

const LETTERS = "ABCDEFGH";

/** @type {any} */
const NOWHERE = { lesson() {}, place() {}, tour() {} }; // a file leads to no lesson

/** What a question's texts need: its words, where its links lead, and its slots, which have their numbers already. */
export function readingOf(question, lead = NOWHERE) {
  const named = (label) => question.words[label.slice(1)] ?? label.slice(1);
  const word = (label) => (/^@[^@]/.test(label) ? named(label) : label.replace(/^@@/, "@"));
  const slot = (key, node) => putSlot(node, word(question.shown.slots[key] ?? ""));
  return { word, reading: { ...lead, words: question.words, slot } };
}

/** What can be seen before a question is answered: text, pictures, and where the controls stand. */
export function contextOf(question, { word, reading }) {
  const plain = { yes: question.words.yes ?? "yes", no: question.words.no ?? "no" };
  const nodes = question.blocks.map((block) => {
    if (block.kind !== "picture") return blocks([block], reading)[0];
    const view = new PictureView(inline(block.caption, reading), word);
    view.put(question.shown.pictures[block.name]);
    return view.node;
  });
  const settings = question.settings.map(({ label, text }) =>
    el("div", {}, el("dt", {}, inline(label, reading)), el("dd", {}, plain[text] ?? word(text))),
  );
  return [...nodes, settings.length ? el("dl", { class: "rs-learn-settings rs-wrap" }, settings) : null];
}

/** A whole sheet. */
export function sheetNode(sheet) {
  const name = sheet.with_answers ? t("Answers") : t("Exercises");
  const line = (label) => el("span", { class: "rs-learn-line" }, label);
  return el(
    "div",
    { class: "rs-learn-sheet" },
    el(
      "header",
      {},
      el("h2", { class: "rs-learn-title" }, t("{name}, sheet {seed}", { name, seed: sheet.seed })),
      el("p", { class: "rs-muted" }, sheet.titles.join(" · ")),
      sheet.with_answers ? null : el("p", { class: "rs-learn-name" }, line(tp("of a person", "Name")), line(t("Date"))),
    ),
    sheet.questions.map((question, place) => task(question, place + 1, sheet.with_answers)),
    el("footer", {}, t("The same sheet again:"), " ", el("code", {}, commandOf(sheet))),
  );
}

function commandOf({ lessons, seed, each, with_answers: withAnswers }) {
  const command = `python -m rlhf_studio lessons sheet --lessons ${lessons.join(",")} --seed ${seed} --each ${each}`;
  return `${command}${withAnswers ? " --answers" : ""} --out ${withAnswers ? "answers" : "exercises"}-${seed}.html`;
}

function task(question, number, withAnswers) {
  const { word, reading } = readingOf(question);
  const context = withAnswers ? blocks(question.blocks.slice(0, 1), reading) : contextOf(question, { word, reading });
  const [, explanation] = question.choices.find(([key]) => key === question.answer) || ["", []];
  return el(
    "section",
    { class: "rs-learn-task", "data-task": number },
    el("p", { class: "rs-learn-of" }, el("b", {}, String(number)), question.title),
    context,
    el("p", { class: "rs-learn-asked" }, inline(question.question, reading)),
    elEach("ul", { class: "rs-learn-boxes rs-wrap" }, question.choices, ([key], place) =>
      choice(key, LETTERS[place], question, word),
    ),
    withAnswers ? el("p", { class: "rs-learn-because" }, inline(explanation, reading)) : space(),
  );
}

function choice(key, letter, question, word) {
  const right = key === question.answer;
  const box = el("span", { class: "rs-learn-box", "aria-hidden": "true" }, right ? "\u2713" : "");
  const attributes = right ? { "data-right": true, "aria-label": t("right") } : {};
  return el("li", attributes, box, el("span", {}, `${letter}\u2002${answerName(key, word)}`));
}

const space = () => el("div", { class: "rs-learn-space" }, t("Because"));
