// What a person takes along from a page: a text as a file, or in the clipboard.
import { el, pushButton, setText } from "./dom.js";
import { t } from "./language.js";

const KEPT = 10000; // milliseconds for which a browser may take to begin with a file
const TOLD = 2000; // milliseconds for which a button says what became of a click

/** Offer a text as a file. */
export function saveText(text, name, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT);
}

/**
 * A button that copies.
 * @param text    gives what is copied
 * @param source  the node that has this text, or nothing: without https there is no clipboard, and the text is selected
 *                there, so that one key press copies it
 */
export function copyButton(text, source = null, look = "rs-quiet") {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setText(button, t("Copied"));
    } catch {
      if (source) selectAll(source);
      setText(button, source ? t("Press Ctrl+C") : t("Copying is not allowed here"));
    }
    setTimeout(() => setText(button, t("Copy")), TOLD);
  };
  const button = pushButton(look, t("Copy"), copy);
  return button;
}

const selectAll = (node) => (node.select ? node.select() : getSelection().selectAllChildren(node));
