// Help: the documents, one at a time, in place of a lesson. It is loaded when somebody opens it.
import { address } from "../shared/address.js";
import { el, elEach, fill } from "../shared/dom.js";
import { onPlainClick } from "../shared/links.js";
import { blocks, leadOf } from "../learn/lesson/text.js";
import { t } from "../shared/language.js";

const PLACE = "help";
const FIRST = "faq";
const FEW = 3; // sections that are seen without a list of them

export class Help {
  /** @param page  (article, contents(title, entries), entry(...), mark(...), need(...), choose(params), tell(...)) */
  constructor(page) {
    this.page = page;
    this.shown = "";
    this.shelf = null; // all documents
    this.lead = leadOf(page);
  }

  /** Show the document that the address names, and in it the section. */
  async go({ show = FIRST, scene = "" }) {
    const again = this.shown === show;
    this.shown = show;
    const wanted = () => this.shown === show;
    if (!again && !(await this.load(show, wanted))) return;
    const heading = scene && this.page.article.querySelector(`[data-anchor="${CSS.escape(scene)}"]`);
    if (!heading) return;
    heading.focus({ preventScroll: true });
    heading.scrollIntoView({ block: "start" });
  }

  leave() {
    this.shown = "";
  }

  /** Whether the document came, and is still wanted. */
  async load(show, wanted) {
    this.shelf ??= await this.page.need("help_shelf");
    const text = await this.page.need("help_text", { document: show }, wanted);
    if (!wanted()) return false;
    const { documents } = this.shelf;
    this.page.contents(
      t("Help"),
      documents.map(({ name, title }) => this.page.entry({ place: PLACE, show: name }, title, "")),
    );
    this.page.mark(PLACE, show);
    this.page.tell(text.error || "");
    if (!text.error) this.draw(show, text);
    return !text.error;
  }

  draw(show, { title, blocks: all }) {
    const drawn = blocks(all, this.lead);
    const places = all.flatMap(({ anchor }, number) => (anchor ? [{ anchor, node: drawn[number] }] : []));
    const before = drawn.indexOf(places[0]?.node); // what stands before the first heading
    const links = places.map(({ anchor, node }) => this.link(show, anchor, node.textContent, node.tagName === "H4"));
    for (const { anchor, node } of places) node.append(this.sign(show, anchor, node.textContent));
    fill(
      this.page.article,
      el("h2", { class: "rs-learn-title" }, title),
      el(
        "div",
        { class: "rs-learn-text rs-help-text" },
        drawn.slice(0, before),
        links.length > FEW &&
          el(
            "details",
            { class: "rs-help-contents", open: show === FIRST },
            el("summary", {}, t("On this page")),
            elEach("ul", {}, links, (link) => el("li", {}, link)),
          ),
        drawn.slice(before),
      ),
    );
  }

  /** A link to a section of this document, for its list of contents. */
  link(show, anchor, words, inner) {
    return el("a", { ...this.to(show, anchor), class: inner ? "rs-help-inner" : null }, words);
  }

  /** The link beside a heading, whose address can be copied. */
  sign(show, anchor, words) {
    const name = t("Link to: {words}", { words });
    return el("a", { ...this.to(show, anchor), class: "rs-help-sign", "aria-label": name }, "#");
  }

  to(show, anchor) {
    const params = { place: PLACE, show, scene: anchor };
    const go = () => {
      address.put("learn", params, true);
      this.go(params);
    };
    return { href: `?${new URLSearchParams(params)}`, onclick: onPlainClick(go) };
  }
}
