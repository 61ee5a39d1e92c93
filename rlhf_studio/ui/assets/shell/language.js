// The language of the pages: as the browser has it, until another one is chosen in the menu.
import { language, speak, t } from "../shared/language.js";
import { Segments } from "../shared/segments.js";

// each by its own name, so that who reads one of them finds it on a page in the other
const LANGUAGES = [
  { value: "en", label: "English" },
  { value: "zh", label: "中文" },
];
const TAGS = { en: "en", zh: "zh-Hans" };

/** Say which language the pages are in, whenever Gradio says that it is the browser's. */
export function keepTag() {
  const root = document.documentElement;
  const tag = TAGS[language()];
  const keep = () => root.lang !== tag && (root.lang = tag);
  new MutationObserver(keep).observe(root, { attributeFilter: ["lang"] });
  keep();
}

export function languageChoice() {
  const choice = new Segments({ "aria-label": t("Language") }, LANGUAGES, language(), speak, { framed: true });
  for (const button of choice.buttons) button.lang = button.dataset.value;
  return choice.node;
}
