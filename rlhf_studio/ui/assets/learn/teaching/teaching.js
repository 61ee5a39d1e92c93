// For teachers: ready hours, sheets of questions by a seed, a quiz, and what result codes say.
import { wide } from "../../pictures/grids.js";
import { address } from "../../shared/address.js";
import { el, elEach, fill, memory, pushButton, setText } from "../../shared/dom.js";
import { Segments } from "../../shared/segments.js";
import { figure, numberHead, rowHead, table } from "../../shared/table.js";
import { Quiz } from "./quiz.js";
import { sheetNode } from "./sheet.js";
import { blocks, leadOf } from "../lesson/text.js";
import { bracketed, colon, listing, t } from "../../shared/language.js";

const KEPT = "teach.choice";
const MARKS = { first: "\u2713", second: t("2nd"), not: "\u2717", open: "\u2013" };
const MEANING = t("\u2713 right at the first try, 2nd at the second, \u2717 not right, \u2013 not answered");
const SHEETS = ["sheet", "answers", "quiz"];

export class Teaching {
  /**
   * @param page  (lessons, article, teach(question), choose(params), tell(problem))
   */
  constructor(page) {
    this.page = page;
    /** @type {any} */
    this.texts = null;
  }

  async go(params) {
    this.params = params;
    this.page.tell("");
    if (SHEETS.includes(params.show)) return this.sheet(params);
    this.texts ||= await this.page.teach({ what: "plans" });
    if (!this.texts || this.params !== params) return undefined;
    const { plans } = this.texts;
    const views = [
      ...plans.map(({ name, title }) => [name, title, () => this.plan(name)]),
      ["sheets", t("Sheets and quiz"), () => this.choosing()],
      ["check", t("Results"), () => this.checking()],
      ["questions", t("Questions"), () => this.questions()],
    ];
    const [name, , draw] = views.find(([one]) => one === params.show) || views[0];
    const options = views.map(([value, label]) => ({ value, label }));
    const segments = new Segments({ "aria-label": t("For teachers") }, options, name, (show) => this.show(show));
    fill(
      this.page.article,
      this.heading(t("For teachers")),
      el("div", { class: "rs-learn-views" }, segments.node),
      draw(),
    );
    return undefined;
  }

  leave() {
    this.params = null;
  }

  show(view) {
    const params = { place: "teach", show: view };
    address.put("learn", params, true);
    this.go(params);
  }

  heading(text) {
    return el("h2", { class: "rs-learn-title" }, text);
  }

  plan(name) {
    const lead = { ...leadOf(this.page), words: {} };
    const { blocks: tree } = this.texts.plans.find((plan) => plan.name === name);
    const print = { type: "button", class: "rs-button rs-small", onclick: () => window.print() };
    return el(
      "div",
      { class: "rs-learn-text rs-learn-plan" },
      blocks(tree, lead),
      el("div", {}, el("button", print, t(t("Print")))),
    );
  }

  /** The form: which lessons, which seed, how many questions. */
  choosing() {
    const kept = memory.get(KEPT, {});
    const boxes = this.page.lessons.map(({ name, title, number }) => {
      const box = el("input", { type: "checkbox", value: name, checked: (kept.lessons || []).includes(name) });
      return el("label", {}, box, el("span", {}, `${number} ${title}`));
    });
    const seed = field("number", t("Seed"), kept.seed ?? 7, { min: 0, max: 999_999, step: 1 });
    const each = field("number", t("Questions of each lesson"), kept.each ?? 3, {
      min: 1,
      max: this.texts.most_each,
      step: 1,
    });
    const problem = el("p", { class: "rs-problem", role: "alert" });
    const open = (show) => {
      const chosen = boxes.map((label) => label.firstChild).filter((box) => box.checked);
      const choice = {
        lessons: chosen.map((box) => box.value),
        each: each.input.valueAsNumber,
        seed: seed.input.valueAsNumber,
      };
      const wrong = !choice.lessons.length || [seed, each].some(({ input }) => !input.value || !input.checkValidity());
      setText(problem, wrong ? t("Choose at least one lesson, a seed from 0 to 999,999, and how many questions.") : "");
      if (wrong) return;
      memory.set(KEPT, choice);
      this.page.choose(addressOf(show, choice));
    };
    const button = (name, show) => pushButton("rs-button rs-small", name, () => open(show));
    return el(
      "div",
      { class: "rs-learn-text" },
      el(
        "p",
        {},
        t("A seed picks the questions and draws their numbers. The same seed gives the same sheet on every machine."),
      ),
      el("fieldset", { class: "rs-learn-choosing" }, el("legend", {}, t("Lessons")), boxes),
      el("div", { class: "rs-learn-fields" }, seed.node, each.node),
      problem,
      el(
        "div",
        { class: "rs-learn-answers rs-flow" },
        button(t("Exercise sheet"), "sheet"),
        button(t("Answer sheet"), "answers"),
        button(t("Quiz on this page"), "quiz"),
      ),
      el("p", { class: "rs-muted" }, t("Send students the address of the quiz: it holds the lessons and the seed.")),
    );
  }

  /** A sheet to print, or the quiz. */
  async sheet(params) {
    const choice = choiceOf(params);
    fill(
      this.page.article,
      el("p", { class: "rs-muted", role: "status" }, t("Drawing the numbers. This may take some seconds.")),
    );
    const sheet = await this.page.teach({ what: "sheet", ...choice, with_answers: params.show !== "sheet" });
    if (this.params !== params) return;
    if (!sheet) {
      fill(this.page.article, this.back());
      return;
    }
    if (params.show === "quiz") {
      fill(this.page.article, new Quiz(this.page, choice, sheet).node);
      return;
    }
    const other = params.show === "sheet" ? [t("Answer sheet"), "answers"] : [t("Exercise sheet"), "sheet"];
    const button = (name, onclick) => pushButton("rs-button rs-small", name, onclick);
    const tools = el(
      "div",
      { class: "rs-learn-tools" },
      button(t("Print"), () => print()),
      button(other[0], () => this.page.choose(addressOf(other[1], choice))),
      this.back(),
    );
    fill(this.page.article, tools, sheetNode(sheet));
  }

  back() {
    const leave = () => this.page.choose({ place: "teach", show: "sheets" });
    return pushButton("rs-quiet", t("Choose others"), leave);
  }

  /** All questions that people have added, and that students have asked; saved to a file, and taken from one. */
  questions() {
    const { server, lessons, stations } = this.page;
    const list = el("div", { class: "rs-learn-added" });
    const node = el(
      "div",
      { class: "rs-learn-text" },
      el(
        "p",
        {},
        t("Questions below lessons and stations, with those that wait for your answer. Add one below its lesson."),
      ),
      list,
    );
    const fillIt = async () => {
      const { everything } = await import("../../added/all.js");
      everything(list, server, [...lessons, ...stations]);
    };
    fillIt();
    return node;
  }

  checking() {
    const lines = el("textarea", {
      class: "rs-input rs-learn-lines",
      rows: 6,
      "aria-label": t("Result codes"),
      spellcheck: "false",
    });
    const found = el("div", { class: "rs-learn-found", role: "status" });
    const check = async () => {
      const answer = await this.page.teach({ what: "check", lines: lines.value });
      if (answer) fill(found, resultsOf(answer.rows));
    };
    return el(
      "div",
      { class: "rs-learn-text" },
      el("p", {}, t("Paste result codes, one in each line. A name may stand before the code. Nothing is stored.")),
      lines,
      el("div", {}, pushButton("rs-button rs-small rs-primary", t("Check"), check)),
      found,
      el(
        "p",
        { class: "rs-muted" },
        t("A code is no proof: anyone can invent one, or answer twice. It shows what a class has understood."),
      ),
    );
  }
}

let count = 0;

function field(type, label, value, more) {
  const id = `rs-learn-field-${(count += 1)}`;
  const input = el("input", { type, id, class: "rs-input", value, ...more });
  return { input, node: el("div", {}, el("label", { for: id, class: "rs-label" }, label), input) };
}

function addressOf(show, { lessons, each, seed }) {
  return { place: "teach", show, set: `lessons:${lessons.join(".")},each:${each}`, seed };
}

/** What the address names; the app says what is wrong with it. */
function choiceOf({ set = "", seed }) {
  const named = Object.fromEntries(set.split(",").map((part) => part.split(":")));
  const lessons = (named.lessons || "").split(".").filter(Boolean);
  return { lessons, each: Number(named.each ?? 3), seed: Number(seed ?? 0) };
}

/** A table for each quiz, with a row for each student, and what could not be read. */
function resultsOf(rows) {
  const problems = rows.filter((row) => row.problem);
  const quizzes = new Map();
  for (const row of rows.filter((one) => !one.problem)) {
    const key = JSON.stringify([row.lessons, row.each, row.seed]);
    quizzes.set(key, [...(quizzes.get(key) || []), row]);
  }
  if (!rows.length) return [el("p", {}, t("There is no code here."))];
  return [
    problems.map(({ who, problem }) => el("p", { class: "rs-problem" }, who ? colon(who, problem) : problem)),
    [...quizzes.values()].map(quizTable),
    quizzes.size ? el("p", { class: "rs-muted" }, MEANING) : null,
  ].flat();
}

function quizTable(rows) {
  const { questions, lessons, seed } = rows[0];
  const right = (outcomes) => outcomes.filter((outcome) => outcome === "first").length;
  const figures = (list) => list.map((text) => figure(String(text)));
  const of = (place) => right(rows.map(({ outcomes }) => outcomes[place]));
  const heads = questions.map(({ title, scene }, place) =>
    numberHead(String(place + 1), { title: `${title}${bracketed(scene)}` }),
  );
  const lines = rows.map(({ who, code, outcomes }) => [
    rowHead(who || code),
    ...figures([
      t("{right} of {length}", { right: right(outcomes), length: outcomes.length }),
      ...outcomes.map((one) => MARKS[one]),
    ]),
  ]);
  const last = [rowHead(t("Right at the first try")), ...figures(["", ...questions.map((_, place) => of(place))])];
  const link = (show) => `?${new URLSearchParams(addressOf(show, rows[0]))}`;
  return el(
    "section",
    {},
    el("h3", {}, t("Seed {seed}: {lessons}", { seed, lessons: listing(lessons) })),
    wide(
      t("Results"),
      table([t("Who"), numberHead(t("First try")), ...heads], [...lines, last], { class: "rs-learn-results" }),
    ),
    elEach("ol", { class: "rs-learn-asked-list" }, questions, ({ title, scene }) =>
      el("li", {}, `${title}${bracketed(scene)}`),
    ),
    el("p", {}, el("a", { href: link("answers") }, t("The answer sheet of this quiz"))),
  );
}
