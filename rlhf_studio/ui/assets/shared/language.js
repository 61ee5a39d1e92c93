// What the pages say, in the language of whoever reads them: the English text is the key of its translation. They
// come before the first script of a page, and only where they are needed (ui/html.py, ui/serving/spoken.py).

const COOKIE = "rlhf_studio_language";
const YEAR = 31536000; // seconds
const CONTEXT_END = "\u0004";
const words = new Map();
let coming = null;

const slots = /\{(\w+)\}/;
const filled = (text, values) =>
  values ? text.replace(new RegExp(slots, "g"), (slot, name) => (name in values ? values[name] : slot)) : text;

/** The sentence; `{name}` in it is replaced by a value. */
export const t = (text, values = null) => filled(words.get(text) ?? text, values);

/** The sentence of one thing, or of several; `{count}` in it is the number, as it is given in `values` or as it is. */
export const tn = (one, many, count, values = {}) =>
  filled(words.get(one) ?? (count === 1 ? one : many), { count, ...values });

/** The sentence, where the same English words mean two things: `context` says which one is meant. */
export const tp = (context, text, values = null) => filled(words.get(context + CONTEXT_END + text) ?? text, values);

/** As `t`, with nodes among the values: gives texts and nodes to put into an element. */
export const tx = (text, values) =>
  (words.get(text) ?? text).split(slots).map((part, index) => (index % 2 ? values[part] : part));

/** The language of the pages, as the server has decided it. Gradio's own, in `lang`, is always the browser's. */
export const language = () => (document.documentElement.dataset.words || "en").split(".")[0];

/** Fetch the translations, once for all pages. Without them the pages speak English. */
export const learn = (address) =>
  (coming ??= fetch(address)
    .then((reply) => reply.json())
    .then((all) => Object.entries(all).forEach(([key, text]) => words.set(key, text))));

/** Open the page again in another language, and remember it; the address says it where the browser keeps no cookies. */
export function speak(name) {
  document.cookie = `${COOKIE}=${name}; path=/; max-age=${YEAR}; samesite=lax`;
  const here = new URL(location.href);
  here.searchParams.delete("lang");
  if (!document.cookie.includes(`${COOKIE}=${name}`)) here.searchParams.set("lang", name);
  if (here.href === location.href) location.reload();
  else location.replace(here.href);
}
