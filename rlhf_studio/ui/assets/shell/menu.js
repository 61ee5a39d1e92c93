// The menu of the line above the pages: how the pages look, the keys, and help. All works offline.
import { el, memory, pushButton, setText } from "../shared/dom.js";
import { address } from "../shared/address.js";
import { pageLink } from "../shared/links.js";
import { Drop } from "./drop.js";
import { t } from "../shared/language.js";
import { languageChoice } from "./language.js";
import { textSizeChoice } from "./text_size.js";
import { themeChoice } from "./theme.js";

/** Lead to Live and have it show what one token can tell; it takes a recorded run where there is none to look at. */
function showAround() {
  memory.set("around", true);
  address.lead("live", address.params("live"));
  dispatchEvent(new Event("rlhf-studio:around"));
}

export class Menu {
  /** @param keys  opens the sheet of keys */
  constructor(keys) {
    this.version = el("p", { class: "rs-help" }, "RLHF Studio");
    const closing = (action) => () => {
      this.drop.close();
      action();
    };
    const help = [
      pushButton("rs-drop-item", t("Show me around"), closing(showAround)),
      pageLink(t("Tour of the code of one step"), "learn", { place: "tour" }, "rs-drop-item"),
      pageLink(t("Help, and a search"), "learn", { place: "help" }, "rs-drop-item"),
      pushButton("rs-drop-item", [t("Keyboard shortcuts"), el("kbd", { "aria-hidden": "true" }, "?")], closing(keys)),
      el(
        "a",
        { class: "rs-drop-item", href: "agents.md", target: "_blank", rel: "noopener" },
        t("For programs and agents"),
      ),
    ];
    this.drop = new Drop({
      id: "rs-page-menu",
      name: t("Menu"),
      sign: el("span", { "aria-hidden": "true" }, "\u2630"),
      content: [
        group(t("Theme"), themeChoice()),
        group(t("Text size"), textSizeChoice()),
        group(t("Language"), languageChoice()),
        el("div", { class: "rs-drop-list" }, help),
        this.version,
      ],
    });
    for (const link of help.filter((node) => node.tagName === "A"))
      link.addEventListener("click", () => this.drop.close());
  }

  /** What the server says of the program. */
  take({ version }) {
    setText(this.version, `RLHF Studio ${version}`);
  }
}

const group = (words, control) =>
  el("div", { class: "rs-drop-group" }, el("span", { class: "rs-label", "aria-hidden": "true" }, words), control);
