// The language of the pages: as the browser has it, until another one is chosen in the menu.
import { language, t } from "../shared/language.js";
import { Segments } from "../shared/segments.js";

const NAMES = [
  { value: "en", label: "English" },
  { value: "zh", label: "中文" },
];

/** Say which language the pages are in, also after Gradio has said that it is the browser's. */
export function keepTag() {
  const root = document.documentElement;
  const tag = language() === "zh" ? "zh-Hans" : "en";
  const keep = () => root.lang !== tag && (root.lang = tag);
  new MutationObserver(keep).observe(root, { attributeFilter: ["lang"] });
  keep();
}

/** Open the page again in another language, and remember it; the address says it where the browser keeps no cookies. */
function speak(name) {
  const kept = `rlhf_studio_language=${name}`;
  document.cookie = `${kept}; path=/; max-age=31536000; samesite=lax`;
  const here = new URL(location.href);
  here.searchParams.delete("lang");
  if (!document.cookie.includes(kept)) here.searchParams.set("lang", name);
  if (here.href === location.href) location.reload();
  else location.replace(here.href);
}

export function languageChoice() {
  const choice = new Segments({ "aria-label": t("Language") }, NAMES, language(), speak, { framed: true });
  for (const button of choice.buttons) button.lang = button.dataset.value;
  return choice.node;
}
