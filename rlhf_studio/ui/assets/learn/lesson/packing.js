// Which blocks of a lesson stand together on a slide: as many as fit, pictures beside them, code over the whole width.
import { t } from "../../shared/language.js";

const [LINE, MARGINS, LETTER] = [26, 112, 8.2]; // pixels: of a line, around a slide and its bar, of a letter
const GAP = 0.6; // lines between two blocks
const [DRAWN, BUTTONS, FORMULA, ROW, CODE_LINE] = [12, 2.6, 2.2, 1.5, 0.85]; // in lines
const CONTROL = 2.6; // lines
const LAST_MAY_ADD = 1.25; // so much more than a slide holds, rather than a last slide with next to nothing
const LITTLE = 0.4; // of a slide

/** How many lines a slide has, and how many letters a line, at the size of type that slides have in this window. */
function roomOf(article) {
  const zoom = Number(getComputedStyle(article).zoom) || 1;
  const columns = getComputedStyle(article).getPropertyValue("--rs-slide-columns") || 2;
  return {
    lines: (innerHeight / zoom - MARGINS) / LINE,
    letters: Math.max(24, (innerWidth / zoom - 100) / Number(columns) / LETTER),
  };
}

const linesOf = (node, { letters }) => Math.ceil(node.textContent.length / letters);

/** About how many lines a block takes. It may be hidden, or its numbers on their way, so nothing is measured. */
function height(node, question, room) {
  if (node.matches(".rs-learn-picture")) return DRAWN + linesOf(node.querySelector("figcaption"), room);
  if (node.matches(".rs-learn-code")) return 2 + CODE_LINE * node.querySelector("pre").textContent.split("\n").length;
  if (node.matches(".rs-learn-formula")) return FORMULA;
  if (node.matches(".rs-learn-wide")) return ROW * node.querySelectorAll("tr").length;
  if (question) {
    const longest = Math.max(...question.answers.map(([, said]) => lettersOf(said)));
    return linesOf(node.querySelector(".rs-learn-asked"), room) + BUTTONS + longest / room.letters + 1.5;
  }
  return node.matches("ul, ol")
    ? [...node.children].reduce((sum, one) => sum + linesOf(one, room), 0)
    : linesOf(node, room);
}

const lettersOf = (pieces) =>
  pieces.reduce(
    (sum, one) => sum + (typeof one === "string" ? one.length : lettersOf(one.content || [t("a number")])),
    0,
  );

/** The slides of a lesson: each with its scene, its blocks, the results `drawn` beside them, and its questions. */
export function slidesOf(article, scenes) {
  const room = roomOf(article);
  const front = [...article.children].filter((node) =>
    node.matches(".rs-learn-head, .rs-learn-text, .rs-learn-contents"),
  );
  return [{ nodes: front, drawn: [], questions: [] }, ...scenes.flatMap((scene) => slidesOfScene(scene, room))];
}

function slidesOfScene(scene, room) {
  const [heading, ...begin] = scene.before.children;
  const asked = [scene.prediction, ...(scene.more || [])].filter(Boolean);
  const slides = [];
  const beside = besideOf(scene, room);
  /** @type {any} */
  let current;
  const open = (drawn) => {
    const nodes = heading ? [heading] : [];
    current = { scene, nodes, drawn, questions: [], lines: 2, beside, wide: false, own: 0 };
  };
  const close = () => {
    if (current.own) slides.push({ ...current, crowded: current.beside > room.lines });
    const newest = current.drawn.at(-1); // it stays beside what is said of it, where there is room
    open(newest && beside + height(newest, null, room) <= room.lines ? [newest] : []);
  };
  open([]);
  for (const node of [...begin, ...scene.after.children]) {
    const question = asked.find((one) => one.node === node);
    const lines = height(node, question, room) + GAP;
    const drawn = node.matches(".rs-learn-picture");
    const wide = node.matches(".rs-learn-code");
    const full = drawn
      ? current.drawn.length && current.beside + lines > room.lines
      : current.lines + lines > room.lines;
    if (full || (wide && current.nodes.some((one) => one.matches(".rs-learn-question")))) close();
    current.own += 1;
    if (question) current.questions.push(question);
    if (drawn) {
      current.drawn = [...current.drawn, node];
      current.beside += lines;
      continue;
    }
    current.nodes.push(node);
    current.lines += lines;
    current.wide = wide;
    if (wide) close();
  }
  close();
  return slides.length ? joined(slides, heading, room) : [{ scene, nodes: [heading], drawn: [], questions: [] }];
}

/** The lines that the controls of a scene take, with the pictures that stand there already. */
function besideOf({ figure, described = [] }, room) {
  const pictures = [...figure.children].filter((node) => node.matches(".rs-learn-picture"));
  return pictures.reduce(
    (sum, one) => sum + height(one, null, room),
    CONTROL * Math.ceil(described.length / (described.length > 2 ? 2 : 1)),
  );
}

/** A last slide with next to nothing on it goes to the one before. */
function joined(slides, heading, room) {
  const [before, last] = slides.slice(-2);
  if (!last || before.wide || last.wide || last.lines > LITTLE * room.lines) return slides;
  if (before.lines + last.lines - 2 > LAST_MAY_ADD * room.lines) return slides;
  before.nodes.push(...last.nodes.filter((node) => node !== heading));
  before.drawn = [...new Set([...before.drawn, ...last.drawn])];
  before.questions.push(...last.questions);
  return slides.slice(0, -1);
}
