// Settings as a YAML file: saved to this computer, and loaded from it.
import { el, fill } from "../shared/dom.js";

const LARGEST = 64e3; // bytes; also in train_page.py

/** Offer a text as a file. */
export function saveText(text, name) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/yaml" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** What is wrong with a chosen file before it is read; empty for nothing. */
export const tooLarge = (file) =>
  file.size > LARGEST ? `${file.name} is larger than 64 kB; a settings file has a few kilobytes.` : "";

/** Problems as one text. */
export const inOne = (problems) =>
  problems.map(({ field, message }) => (field ? `${field}: ${message}` : message)).join("; ");

/** The two buttons; `onload` gets the file that was chosen. */
export function fileButtons({ operator, onload, onsave }) {
  const chosen = () => {
    const [file] = input.files;
    input.value = "";
    if (file) onload(file);
  };
  const input = el("input", { type: "file", accept: ".yaml,.yml", hidden: true, onchange: chosen });
  const button = (label, act) => el("button", { type: "button", class: "rs-quiet", onclick: act }, label);
  const node = el("span", { class: "rs-files" });
  return fill(node, operator && button("Load settings", () => input.click()), button("Save settings", onsave), input);
}
