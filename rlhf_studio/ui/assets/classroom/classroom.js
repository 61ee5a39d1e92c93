// A class: everyone looks where the teacher is and what is asked; the teacher has two buttons, students a switch.
import { address } from "../shared/address.js";
import { el, fill, memory, pushButton, setText, show } from "../shared/dom.js";
import { clauses, t, tn } from "../shared/language.js";
import { Poll } from "../shared/poll.js";
import { onlyWatches, whyNot } from "../shared/visit.js";
import { AskDialog } from "../rounds/ask.js";
import { RoundCard } from "../rounds/card.js";
import { ClassDialog } from "./dialog.js";
import { Follow } from "./follow.js";
import { markLessons, onLessonToken } from "./lesson_point.js";
import { NameLine } from "./name.js";
import { pointing } from "./pointing.js";

const LOOK = 2000; // milliseconds between two looks at the class
const REPLACED = t(
  "There is a new class link, and the one that you opened has ended. Ask your teacher for the new one.",
);
const WITH_PLACE = t("You have a place in the class now. Load the page again to see all that you may do.");

/** What the line above the pages and the place below it show in a class; the last argument says whose page this is. */
export function classTools(host, line, server, { teaches, plays }) {
  // each page says itself that the connection is lost
  const poll = new Poll({ awake: () => document.visibilityState === "visible" });
  const card = new RoundCard(server, teaches, poll);
  line.after(card.node);
  const parts = teaches ? teacherTools(host, server, card, () => look()) : studentTools(line, server, plays);
  line.append(...parts.nodes);
  markLessons();
  let seen = null; // the version of the round that is shown
  const receive = (now) => {
    parts.now(now);
    card.counted(now.answered);
    if (now.present) {
      seen = now.round;
      card.take(now.present);
      parts.round?.(now.present);
    }
    return LOOK;
  };
  const news = poll.add({ ask: () => server.class_now({ round: seen, view: onlyWatches() }), receive });
  const look = () => {
    seen = null;
    news.wake();
  };
  card.moved = look;
  news.wake();
}

/** @param plays  whether this was a student of the class when the page was opened */
function studentTools(line, server, plays) {
  const [follow, name] = [new Follow(), new NameLine(server)];
  const toTalk = pushButton("rs-link rs-class-try", t("Ask the model"), () => address.lead("talk", {}));
  const [nodes, usual] = [[follow.node, toTalk, name.node], [...line.childNodes]];
  let [ended, was, shown] = [false, plays, ""]; // was: in the class once; shown: in place of the usual line
  const say = (words) => fill(line, el("b", {}, t("Class")), ` ${words}`);
  const now = (told) => {
    follow.take(told);
    show(toTalk, told.talk && was && !told.ended);
    if (told.ended && !ended) say(t("The class has ended. You can go on reading and watching."));
    ended = told.ended;
  };
  const round = (told) => {
    name.take(told);
    const gone = was && !told.may;
    was ||= told.may;
    const words = told.may && !plays ? WITH_PLACE : told.why_not || (gone ? REPLACED : "");
    if (ended || words === shown) return;
    shown = words;
    if (words) say(words);
    else fill(line, usual);
    line.append(...nodes);
  };
  return { nodes, now, round };
}

/** The teacher's buttons: one opens the class link, and says whether the class is led; the other asks the class. */
function teacherTools(host, server, card, changed) {
  const button = el("button", { type: "button", class: "rs-button rs-small" }, t("Class"));
  const ask = el("button", { type: "button", class: "rs-button rs-small" }, t("Ask the class"));
  const said = el("span", { class: "rs-class-said", role: "status" });
  let leading = memory.get("leading", false); // this tab does, also after a reload
  let led = false; // the server has said so since this page leads
  let app = ""; // which start of the app has answered last
  let dialog = null; // of the class, when it was opened last
  let came = ""; // who had come when the dialog was drawn
  const drafts = {}; // what was typed for a question and not asked yet
  const tell = (change) => server.class_change({ ...change, view: onlyWatches() });
  const here = () => ({ page: address.here, params: address.params(address.here) });
  const keep = (on) => {
    leading = on;
    memory.set("leading", on);
  };
  const goOn = (point = "") => {
    if (!leading) return;
    const place = { ...here(), ...(point ? { params: { ...here().params, point } } : {}) };
    pointing.set(place, t("you point here"));
    tell({ lead: place }).then(
      () => setText(said, ""),
      (error) => {
        if (error.refused) keep(false);
        setText(said, t(" Students do not follow you now. {error}", { error: whyNot(error) }));
      },
    );
  };
  address.onmove(() => goOn());
  onLessonToken(goOn);
  goOn();
  const lead = async (on) => {
    keep(on);
    if (on) goOn();
    else {
      pointing.set(null, "");
      await tell({ lead: null });
    }
    setText(button, on ? t("Class: leading") : t("Class"));
  };
  const open = async (make) => {
    const made = await make().catch((error) => (console.error(error), whyNot(error)));
    setText(said, made.node ? "" : ` ${made}`);
    if (!made.node) return;
    host.append(made.node);
    made.node.showModal();
  };
  button.addEventListener("click", () =>
    open(async () => (dialog = new ClassDialog(await server.class_link({}), tell, lead, changed))),
  );
  const asking = async () => new AskDialog(await server.class_ready({}), server, { card, drafts, asked: changed });
  ask.addEventListener("click", () => open(asking));
  const now = (told) => {
    const again = app && app !== told.start; // the app was started again: it leads nobody, and this page goes on
    app = told.start;
    if (again) {
      led = false;
      if (!told.ended) return goOn();
    }
    if (leading && (told.ended || (led && told.seq === 0))) keep(false); // it was stopped, by another page perhaps
    led = leading && told.seq > 0;
    const newest = [told.came, told.late, told.asking, told.asked].join(" ");
    if (newest !== came && dialog?.node.open) dialog.refresh(() => server.class_link({}));
    came = newest;
    const leads = leading ? t("Class: leading") : told.seq > 0 ? t("Class: another page leads") : t("Class");
    const asking = told.asking ? tn("{count} asks the model", "{count} ask the model", told.asking) : "";
    setText(button, clauses([leads, told.late ? t("{late} without a place", { late: told.late }) : "", asking]));
    return undefined;
  };
  return { nodes: [button, ask, said], now };
}
