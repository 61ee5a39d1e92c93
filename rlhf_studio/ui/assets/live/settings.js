// All settings of the run that is shown, to look at: section by section, searched as one types.
import { el, fill, setText, show } from "../shared/dom.js";
import { readable } from "../shared/format.js";
import { t } from "../shared/language.js";

export class SettingsPanel {
  /** @param page  with the titles of the `settings`, by dotted name, and of their `sections` */
  constructor(fetch, page) {
    this.fetch = fetch;
    this.titles = page.settings;
    this.sections = page.sections;
    this.find = el("input", {
      class: "rs-input",
      type: "search",
      placeholder: t("Find a setting"),
      "aria-label": t("Find a setting"),
      oninput: () => this.filter(),
    });
    this.list = el("div", { class: "rs-settings" });
    this.node = el(
      "details",
      { class: "rs-fold rs-box" },
      el("summary", {}, t("Settings of this run")),
      this.find,
      this.list,
    );
    this.node.addEventListener("toggle", () => this.load());
    this.reset();
  }

  reset() {
    this.loaded = false;
    fill(this.list);
    if (this.node.open) this.load();
  }

  async load() {
    if (!this.node.open || this.loaded) return;
    this.loaded = true;
    const reply = await this.fetch({ kind: "settings" });
    if (!reply || reply.problem) {
      this.loaded = false;
      fill(
        this.list,
        el("p", { class: "rs-hint" }, reply?.problem || t("The app does not answer. Open this again in a moment.")),
      );
      return;
    }
    this.draw(reply.known || reply.values); // of another program's run only some are known
  }

  draw(values) {
    const sections = new Map();
    this.rows = Object.entries(values)
      .filter(([name]) => name.includes("."))
      .map(([name, value]) => {
        const section = name.split(".")[0];
        if (!sections.has(section)) sections.set(section, []);
        const text = `${this.titles[name] || name} ${name}`.toLowerCase();
        const title = el("dt", {}, this.titles[name] || name, el("code", {}, name));
        const said = el("dd", {}, written(value));
        sections.get(section).push(title, said);
        return { text, nodes: [title, said], section };
      });
    this.blocks = new Map([...sections].map(([section, nodes]) => [section, this.section(section, nodes)]));
    this.none = el("p", { class: "rs-hint", hidden: true });
    fill(this.list, [...this.blocks.values()], this.none);
    this.filter();
  }

  section(name, nodes) {
    return el("section", {}, el("h4", {}, this.sections[name] || name), el("dl", {}, nodes));
  }

  filter() {
    if (!this.rows) return;
    const wanted = this.find.value.trim().toLowerCase();
    const seen = new Set();
    for (const { text, nodes, section } of this.rows) {
      const fits = text.includes(wanted);
      for (const node of nodes) show(node, fits);
      if (fits) seen.add(section);
    }
    for (const [section, block] of this.blocks) show(block, seen.has(section));
    const none = this.rows.length
      ? t("No setting is called “{wanted}”.", { wanted })
      : t("None of its settings is known.");
    setText(this.none, none);
    show(this.none, seen.size === 0);
  }
}

function written(value) {
  if (value === null || value === "") return "–";
  if (value === true) return t("on");
  if (value === false) return t("off");
  return readable(typeof value === "string" ? value : JSON.stringify(value, null, 1), 2000);
}
