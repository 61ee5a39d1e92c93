// The size of all text, for a projector: chosen in the menu and remembered on this machine.
//
// Browsers enlarge a page for one person at one screen; this is for the page that a whole room reads. In all rules the
// sizes of text and columns are multiplied, and so are the widths at which a page becomes narrower: large text needs
// the layout of a narrower window.
import { TEXT_SIZES, keepTextSize, textSize } from "../shared/lasting.js";
import { Segments } from "../shared/segments.js";
import { t } from "../shared/language.js";

const SIZES = ["small", "body", "large", "title", "display"].map((name) => `--rs-text-${name}`); // see tokens.css
const PROPERTIES = ["font-size", "--body-text-size", "grid-template-columns", ...SIZES];
const PIXELS = /(\d+(?:\.\d+)?)px/g;
const FACTOR = "--rs-text-size"; // for rules that have lengths of other kinds to multiply
const plain = new WeakMap(); // what a rule says at the usual size

const times = (text, by) => text.replace(PIXELS, (_, size) => `${size * by}px`);

function enlargeStyle(rule, by) {
  if (!plain.has(rule)) {
    const values = PROPERTIES.map((name) => [
      name,
      rule.style.getPropertyValue(name),
      rule.style.getPropertyPriority(name),
    ]);
    plain.set(
      rule,
      values.filter(([, value]) => value.includes("px")),
    );
  }
  for (const [name, value, priority] of plain.get(rule)) rule.style.setProperty(name, times(value, by), priority);
}

function enlargeMedia(rule, by) {
  if (!plain.has(rule)) plain.set(rule, rule.media.mediaText);
  const text = times(plain.get(rule), by);
  if (rule.media.mediaText !== text) rule.media.mediaText = text;
}

function enlarge(rules, by) {
  for (const rule of rules) {
    if (rule instanceof CSSMediaRule) enlargeMedia(rule, by);
    if (rule.style) enlargeStyle(rule, by);
    if (rule.cssRules?.length) enlarge(rule.cssRules, by);
  }
}

function enlargeAll(by) {
  document.documentElement.style.setProperty(FACTOR, by);
  for (const sheet of document.styleSheets) enlarge(sheet.cssRules, by);
}

/** Pages load their rules when they are first shown; some are on their way already. */
function watchNewRules() {
  const take = (node) => textSize() !== 1 && node.sheet && enlarge(node.sheet.cssRules, textSize());
  const come = (node) => {
    if (node.tagName === "LINK" && !node.sheet) node.addEventListener("load", () => take(node));
    else take(node);
  };
  for (const link of document.querySelectorAll("link")) if (!link.sheet) come(link);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(come))).observe(
    document.head,
    {
      childList: true,
    },
  );
}

/** The three sizes; the one that was chosen before is in force at once. */
export function textSizeChoice() {
  const sizes = TEXT_SIZES.map((size) => ({ value: String(size), label: `${Math.round(100 * size)}\u00a0%` }));
  const choose = (value) => {
    keepTextSize(Number(value));
    enlargeAll(textSize());
  };
  if (textSize() !== 1) enlargeAll(textSize());
  watchNewRules();
  const look = { radio: true, framed: true };
  return new Segments({ "aria-label": t("Text size") }, sizes, String(textSize()), choose, look).node;
}
