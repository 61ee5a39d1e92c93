// What lies around the pages: the product's name, the way past the tabs, the bell and the menu, and tips.
import { address } from "../shared/address.js";
import { el, fill, newTab, show } from "../shared/dom.js";
import { Poll, setPace } from "../shared/poll.js";
import { isOnScreen, onlyWatches, whenShown } from "../shared/visit.js";
import { mountTips } from "../shared/tips.js";
import { Bell } from "./bell.js";
import { keepTag } from "./language.js";
import { Menu } from "./menu.js";
import { openSheet } from "./sheet.js";
import { t } from "../shared/language.js";

const SETTLED = 100; // milliseconds: a chosen tab is shown a moment after it is selected
const FIRST_PAUSE = 500; // milliseconds
const LONGEST = 5000; // milliseconds until a tab that is not shown is selected again

const isTyping = (node) =>
  node.isContentEditable || node.closest?.("input:not([type=checkbox], [type=radio]), textarea, select");

/** The button of a tab; on a narrow screen Gradio moves some into a menu, where they carry only their name. */
function tabButton(page) {
  const named = [...document.querySelectorAll("#pages .overflow-dropdown button")];
  const title = t(page[0].toUpperCase() + page.slice(1));
  return /** @type {HTMLElement} */ (
    document.querySelector(`#pages [role="tab"][data-tab-id="${page}"]`) ||
      named.find((button) => button.textContent.trim() === title)
  );
}

const shown = () => document.querySelector('#pages [role="tab"][aria-selected="true"]')?.getAttribute("data-tab-id");

/** Resolves with Gradio's tabs once they are there: on a busy machine their own script comes after this one. */
const tabsThere = () =>
  new Promise((resolve) => {
    const look = () => {
      if (!shown()) return;
      watcher.disconnect();
      resolve(document.querySelector("#pages"));
    };
    const watcher = new MutationObserver(look);
    watcher.observe(document.body, { childList: true, subtree: true });
    look();
  });

/** Show a tab; again, after a growing pause, as long as the address leads there and another one is shown. */
function select(page, pause = SETTLED) {
  if (shown() === page) return;
  tabButton(page)?.click();
  setTimeout(() => address.here === page && select(page, Math.min(LONGEST, 2 * pause)), pause);
}

/** Show the tab that the address names, and let the address follow when another tab is shown, whoever chose it. */
function followTabs(pages) {
  select(address.here);
  address.onpage((page) => select(page));
  // only what says which tab is selected: other changes may come while a chosen tab is not shown yet
  const follow = () => {
    address.show(shown() || address.here);
    keepFocus();
  };
  new MutationObserver(follow).observe(pages, { subtree: true, attributeFilter: ["aria-selected"] });
}

/** Put the focus at the beginning of the page that is shown. */
function enterPage() {
  const pages = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('#pages [role="tabpanel"] .rs-page')]);
  const page = pages.find((node) => node.offsetParent !== null);
  if (!page) return;
  page.tabIndex = -1;
  page.focus({ preventScroll: true });
}

/** A button that led to another tab is hidden with its page: then the focus goes on to the new one. */
function keepFocus() {
  if (!navigator.userActivation?.hasBeenActive) return; // the page is just being opened
  setTimeout(() => {
    const has = /** @type {HTMLElement} */ (document.activeElement);
    if (!has || has === document.body || !has.checkVisibility()) enterPage();
  }, SETTLED);
}

function skip(event) {
  event.preventDefault();
  enterPage();
}

/** A link to a recorded run, for who has not seen one yet. */
function recordingLink(run) {
  const open = (event) => {
    event.preventDefault();
    address.lead("live", { run });
  };
  return run
    ? el("a", { href: `?${new URLSearchParams({ tab: "live", run })}`, onclick: open }, t("Watch a recorded run"))
    : null;
}

/** How the app is used, and what whoever looks at it may do; nothing where one person uses it and may do everything. */
async function sayWhere(host, node, server, menu) {
  const poll = new Poll({ awake: () => isOnScreen(host) });
  whenShown(host, () => poll.wake());
  const told = await poll.first(() => server.where({ view: onlyWatches() }));
  poll.stop();
  setPace(told.pace);
  menu.take(told);
  Object.assign(document.body.dataset, { starts: told.starts, limit: told.limit }); // for the pages
  if (!told.line && !told.notice) return;
  const links = [
    recordingLink(told.recording),
    newTab(told.duplicate, t("Duplicate this Space")),
    newTab(told.login, told.login_word),
  ];
  fill(node, el("b", {}, told.title), " ", told.line, " ", links);
  if (told.notice) {
    node.append(
      el("span", { class: "rs-where-notice" }, told.notice, " ", newTab(told.alone, t("Open the Space by itself"))),
    );
  }
  show(node, true);
  if (told.mode === "classroom") await openClass(host, node, server, told);
}

/** What only a class has is loaded in a class alone; asked for again, after a growing pause, where it was lost. */
async function openClass(host, node, server, told, pause = FIRST_PAUSE) {
  try {
    const { classTools } = await import("../classroom/classroom.js");
    classTools(host, node, server, told);
  } catch (error) {
    if (pause > LONGEST) throw error;
    setTimeout(() => openClass(host, node, server, told, 2 * pause).catch(console.error), pause);
  }
}

export async function mount({ host, server }) {
  const where = el("p", { class: "rs-page rs-where", hidden: true });
  const menu = new Menu(() => openSheet(host));
  const bell = new Bell(server).drop;
  fill(
    host,
    el("a", { class: "rs-skip", href: "#pages", onclick: skip }, t("Skip to the page")),
    el("h1", { class: "rs-brand" }, "RLHF Studio"),
    el("div", { class: "rs-shell-tools" }, bell.button, menu.drop.button),
    bell.panel,
    menu.drop.panel,
  );
  document.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    event.preventDefault();
    openSheet(host);
  });
  keepTag();
  mountTips(() => server.words({}));
  const pages = await tabsThere();
  followTabs(pages);
  pages.firstElementChild?.after(where);
  sayWhere(host, where, server, menu).catch((error) => console.error(error));
}
