// Every tab has an address, so that back, forward, reload and links lead where a person expects: ?tab=live&run=...
// One object for all pages: scripts of the browser are loaded once, so all of them see the same state.

/** The parameters that belong to each page; others (view, operator) belong to all and stay. */
const OWN = {
  train: [],
  live: ["run", "step", "sample", "token", "replay", "at", "from"],
  runs: ["compare", "metric"],
  talk: ["talk", "reward"],
  feedback: ["task", "show"],
  road: ["road"],
  evaluate: ["evaluation", "show"],
  learn: ["place", "lesson", "scene", "set", "seed", "run", "show"],
};
const PAGES = Object.keys(OWN);
/** Parameters that lead to a page where no tab is named. */
const LEADING = [
  ["talk", "talk"],
  ["lesson", "learn"],
  ["place", "learn"],
  ["run", "live"],
  ["replay", "live"],
];

/** The tab that the server opens where the address leads nowhere: it knows how the app is used (ui/app.py). */
function firstPage() {
  const tabs = window.gradio_config?.components?.find(({ props }) => props?.elem_id === "pages");
  return PAGES.includes(tabs?.props.selected) ? tabs.props.selected : "train";
}

class Address {
  constructor() {
    this.kept = {}; // the parameters of pages that are not shown now
    this.listeners = new Map();
    this.waiting = []; // pages that have not been shown yet: [page, what to call then]
    this.here = this.read().page;
    addEventListener("popstate", () => this.moved());
  }

  read() {
    const query = new URLSearchParams(location.search);
    const named = query.get("tab");
    const leading = LEADING.find(([key]) => query.has(key));
    const page = PAGES.includes(named) ? named : leading ? leading[1] : firstPage();
    const params = Object.fromEntries(OWN[page].filter((key) => query.has(key)).map((key) => [key, query.get(key)]));
    return { page, params };
  }

  /** What the address says of a page: what is kept of it while another one is shown. */
  params(page) {
    const now = this.read();
    return now.page === page ? now.params : this.kept[page] || {};
  }

  /**
   * Say what a page shows.
   *
   * @param params  its parameters; empty ones are left out
   * @param push    whether this is a new place, to which "back" should return; else the present entry is changed
   */
  put(page, params, push = false) {
    const filled = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
    this.kept[page] = Object.fromEntries(filled.map(([key, value]) => [key, String(value)]));
    if (page === this.here) this.write(push);
  }

  /** Another tab is shown now. */
  show(page) {
    if (page === this.here) return;
    const now = this.read();
    this.kept[now.page] ??= now.params;
    this.go(page);
    this.write(true);
  }

  go(page) {
    this.here = page;
    const called = this.waiting.filter(([named]) => named === page);
    this.waiting = this.waiting.filter(([named]) => named !== page);
    for (const [, action] of called) action();
  }

  /** Resolves when the address leads to a page, now or later; at once for what is no tab. */
  turn(page) {
    if (page === this.here || !PAGES.includes(page)) return Promise.resolve();
    return new Promise((resolve) => this.waiting.push([page, resolve]));
  }

  /** Call `action(params)` when back or forward leads to other parameters of a page. */
  watch(page, action) {
    this.listeners.set(page, action);
  }

  /** `select(page)` shows a tab: called when back or forward leads to another one. */
  onpage(select) {
    this.select = select;
  }

  /** Call `action()` whenever the address has changed. */
  onmove(action) {
    this.told = action;
  }

  /** Show another page with those that are its own parameters, as a link would: others would stay for good. */
  lead(page, params) {
    const own = Object.fromEntries(OWN[page].filter((key) => key in params).map((key) => [key, params[key]]));
    this.put(page, own, page === this.here); // a link within a page leads to a new place too
    this.select?.(page);
    this.listeners.get(page)?.(own);
  }

  moved() {
    const { page, params } = this.read();
    const before = JSON.stringify(this.kept[page] || {});
    this.go(page);
    this.kept[page] = params;
    this.select?.(page);
    if (JSON.stringify(params) !== before) this.listeners.get(page)?.(params);
  }

  write(push) {
    const query = new URLSearchParams(location.search);
    for (const key of ["tab", ...Object.values(OWN).flat()]) query.delete(key);
    const all = { tab: this.here, ...(this.kept[this.here] || {}) };
    const text = new URLSearchParams([...Object.entries(all), ...query]).toString();
    const url = `${location.pathname}?${text}${location.hash}`;
    if (url === location.pathname + location.search + location.hash) return;
    history[push ? "pushState" : "replaceState"](history.state, "", url);
    this.told?.();
  }
}

export const address = new Address();
