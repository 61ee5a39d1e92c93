// The size of all text, for a projector: chosen with one button and remembered on this machine.
//
// Browsers enlarge a page for one person at one screen; this is for the page that a whole room reads. The font sizes of
// all rules are multiplied, and so are the widths at which a page becomes narrower: large text needs the layout of a
// narrower window.
import { el } from "../shared/dom.js";
import { TEXT_SIZES, keepTextSize, textSize } from "../shared/lasting.js";

const PROPERTIES = ["font-size", "--rs-read", "--body-text-size"];
const SIZE = /^(\d+(?:\.\d+)?)px$/;
const WIDTH = /(width[^)]*?)(\d+(?:\.\d+)?)px/g;
const plain = new WeakMap(); // what a rule says at the usual size

function enlargeStyle(rule, by) {
  if (!plain.has(rule)) {
    const sizes = PROPERTIES.map((name) => [name, SIZE.exec(rule.style.getPropertyValue(name).trim())]);
    plain.set(
      rule,
      sizes
        .filter(([, size]) => size)
        .map(([name, size]) => [name, Number(size[1]), rule.style.getPropertyPriority(name)]),
    );
  }
  for (const [name, size, priority] of plain.get(rule)) rule.style.setProperty(name, `${size * by}px`, priority);
}

function enlargeMedia(rule, by) {
  if (!plain.has(rule)) plain.set(rule, rule.media.mediaText);
  const text = plain.get(rule).replace(WIDTH, (_, before, width) => `${before}${width * by}px`);
  if (rule.media.mediaText !== text) rule.media.mediaText = text;
}

function enlarge(rules, by) {
  for (const rule of rules) {
    if (rule instanceof CSSMediaRule) enlargeMedia(rule, by);
    if (rule.style) enlargeStyle(rule, by);
    if (rule.cssRules?.length) enlarge(rule.cssRules, by);
  }
}

const enlargeAll = (by) => [...document.styleSheets].forEach((sheet) => enlarge(sheet.cssRules, by));

/** Pages load their rules when they are first shown. */
function watchNewRules() {
  const come = (node) => node.sheet && textSize() !== 1 && enlarge(node.sheet.cssRules, textSize());
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes) {
        if (node.tagName === "LINK") node.addEventListener("load", () => come(node));
        else if (node.tagName === "STYLE") come(node);
      }
  }).observe(document.head, { childList: true });
}

export function textSizeButton() {
  const sign = el("span", { "aria-hidden": "true" }, "A");
  const words = el("span", { class: "rs-hidden" });
  const button = el("button", { type: "button", class: "rs-tool rs-text-size" }, sign, words);
  const draw = () => {
    const percent = `${Math.round(100 * textSize())}\u00a0%`;
    words.textContent = button.title = `Text size: ${percent}`;
    sign.textContent = textSize() === 1 ? "A" : percent;
  };
  button.addEventListener("click", () => {
    keepTextSize(TEXT_SIZES[(TEXT_SIZES.indexOf(textSize()) + 1) % TEXT_SIZES.length]);
    enlargeAll(textSize());
    draw();
  });
  if (textSize() !== 1) enlargeAll(textSize());
  watchNewRules();
  draw();
  return button;
}
