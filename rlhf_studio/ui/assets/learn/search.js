// The search, on Learn and in Help: while it is typed, results stand where the text stood.
import { address } from "../shared/address.js";
import { debounce, each, el, memory, pushButton, setText, show } from "../shared/dom.js";
import { listing, t, tn, tp } from "../shared/language.js";

const WAIT = 150; // milliseconds after a key, before the app is asked
const KINDS = {
  lesson: t("Lesson"),
  scene: t("In a lesson"),
  question: t("Question"),
  station: t("Tour of the code"),
  code: t("Code"),
  term: tp("search", "Word"),
  page: t("Page of the app"),
  document: t("Document"),
  setting: t("Setting"),
  check: t("Check of the doctor"),
  name: t("Name in TRL"),
};
const TYPING = "input, textarea, select, [contenteditable]";

export class Search {
  /** @param page  (host, article, server, language(), choose(params)) */
  constructor(page) {
    this.page = page;
    this.asked = 0;
    const ask = debounce(WAIT, () => this.ask());
    this.field = el("input", {
      type: "search",
      class: "rs-input",
      placeholder: t("Search"),
      "aria-label": t("Search lessons, documents, settings, code and names of TRL"),
      "aria-keyshortcuts": "/",
      maxlength: "80",
      autocomplete: "off",
      oninput: ask,
      onkeydown: (event) => this.key(event),
    });
    this.node = el("div", { class: "rs-learn-search", role: "search" }, this.field, el("kbd", {}, "/"));
    this.status = el("p", { class: "rs-muted", role: "status" });
    this.list = el("ul", { class: "rs-learn-results" });
    this.results = el(
      "section",
      { class: "rs-learn-found", "aria-label": t("Results"), hidden: true },
      this.status,
      this.list,
    );
    document.addEventListener("keydown", (event) => this.shortcut(event));
  }

  /** "/" anywhere on the page leads to the field. */
  shortcut(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(TYPING) || !this.page.host.offsetParent) return;
    event.preventDefault();
    this.field.focus();
  }

  key(event) {
    if (event.key === "Escape") this.close();
    if (event.key === "ArrowDown") this.list.querySelector("button")?.focus();
    if (event.key === "Enter" && this.list.childElementCount) this.list.querySelector("button")?.click();
  }

  async ask() {
    const query = this.field.value.trim();
    this.asked += 1;
    const number = this.asked;
    if (!query) return this.open(false);
    const { server, language } = this.page;
    const reply = await server.learn_search({ query, language: language() }).catch((error) => {
      console.error(error);
      return null;
    });
    if (number !== this.asked) return undefined; // a later letter has been typed
    const results = reply?.results || [];
    setText(this.status, reply ? sayCount(results.length, query) : t("The app did not answer. Is it still running?"));
    each(this.list, results, (result) =>
      el("li", {}, result.kind === "name" ? this.named(result) : this.result(result)),
    );
    return this.open(true);
  }

  open(searching) {
    show(this.results, searching);
    show(this.page.article, !searching);
    this.page.host.classList.toggle("rs-learn-searching", searching);
    if (searching && this.results.getBoundingClientRect().top < 0) this.results.scrollIntoView({ block: "start" });
  }

  /** Back to what was read. */
  close() {
    this.asked += 1; // what is still asked for is not shown
    this.field.value = "";
    this.open(false);
  }

  lead(to) {
    this.close();
    if (!to.tab) return this.page.choose(to);
    if (to.field) wantSetting(to.field);
    return address.lead(to.tab, {});
  }

  result({ kind, title, where, extract, to }) {
    const inside = [
      el("span", { class: "rs-learn-kind" }, KINDS[kind], where && where !== title ? ` \u00b7 ${where}` : ""),
      kind === "code" ? el("code", {}, title) : el("strong", {}, title),
      el("span", { class: "rs-muted" }, extract),
    ];
    if (!Object.keys(to).length) return el("div", { class: "rs-learn-result" }, inside);
    return pushButton("rs-learn-result", inside, () => this.lead(to));
  }

  /** A name of TRL with its answer. */
  named({ answer }) {
    const { name, releases, what, symbols, settings, note, see, family } = answer;
    const said = [
      el("span", { class: "rs-learn-kind" }, [KINDS.name, listing(releases)].filter(Boolean).join(" \u00b7 ")),
      el("code", { class: "rs-learn-name" }, name),
    ];
    if (what) said.push(el("p", {}, el("strong", {}, t("In TRL:"), " "), coded(what)));
    if (settings.length) {
      const codes = settings.flatMap((setting, place) => [place ? t(", ") : "", el("code", {}, setting)]);
      said.push(el("p", {}, el("strong", {}, t("Setting here:"), " "), codes));
    }
    if (note || symbols.length) said.push(el("p", {}, el("strong", {}, t("Here:"), " "), coded(note)));
    if (symbols.length) {
      const places = symbols.map((symbol) => el("li", {}, this.symbol(symbol)));
      said.push(el("ul", {}, places));
    }
    if (family.length) said.push(el("p", { class: "rs-muted" }, t("Answered together with:"), " ", listing(family)));
    if (see) said.push(el("p", {}, t("More:"), " ", this.link(see.title, see.to)));
    return el("div", { class: "rs-learn-result" }, said);
  }

  symbol({ symbol, path, to }) {
    const name = el("code", {}, symbol);
    const where = el("span", { class: "rs-muted" }, ` ${path}`);
    return Object.keys(to).length ? [this.link(name, to), where] : [name, where];
  }

  link(text, to) {
    return pushButton("rs-learn-lead", text, () => this.lead(to));
  }
}

/** A text in which names of code stand between backticks. */
const coded = (text) => text.split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part));

/** Have the form of the Train page show a setting, as it is there now. */
function wantSetting(field) {
  memory.set("train.wanted", { field, cause: "", name: "" });
  window.dispatchEvent(new CustomEvent("rlhf-studio:setting"));
}

const sayCount = (count, query) =>
  count ? tn("One result.", "{count} results, best first.", count) : t('Nothing found for "{query}".', { query });
