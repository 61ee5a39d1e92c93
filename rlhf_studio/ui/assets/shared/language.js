// What the pages say, in the reader's language; the English text is the key. See CONTRIBUTING.md.

const words = new Map(Object.entries(globalThis.rsWords ?? {})); // an exported page brings them
let coming = null;

const slots = /\{(\w+)\}/;
const said = (key, text, values) =>
  (words.get(key) ?? text).replace(/\{(\w+)\}/g, (slot, name) => values?.[name] ?? slot);

/** The sentence; `{name}` in it is replaced by a value. */
export const t = (text, values) => said(text, text, values);

/** Of one thing, or of `{count}` things. */
export const tn = (one, many, count, values) => said(one, count === 1 ? one : many, { count, ...values });

/** Where the same English words mean two things: `context` says which one is meant. */
export const tp = (context, text, values) => said(`${context}\u0004${text}`, text, values);

/** As `t`, with nodes among the values: texts and nodes for an element. */
export const tx = (text, values) =>
  (words.get(text) ?? text).split(slots).map((part, index) => (index % 2 ? values[part] : part));

/** "label: what", with the colon of the language; either may be empty. */
export const colon = (label, what) => `${label}${t(": ")}${what}`;

/** Things of one kind, one after the other: "a, b, c". */
export const listing = (things) => things.join(t(", "));

/** What is said one after the other, without what is empty: "temperature 1, seed 0". */
export const clauses = (parts) => parts.filter(Boolean).join(tp("clauses", ", "));

/** An addition in brackets, to be put behind a word. */
export const bracketed = (text) => t(" ({text})", { text });

/** With a full stop at its end. */
export const sentence = (text) => (text && !/[.\u3002]$/.test(text) ? `${text}${t(".")}` : text);

/** The language of the pages. Gradio's own, in `lang`, is always the browser's. */
export const language = () => (document.documentElement.dataset.words || "en").split(".")[0];

/** Fetch the translations, once for all pages. Without them the pages speak English. */
export const learn = (address) =>
  (coming ??= fetch(address)
    .then((reply) => reply.json())
    .then((all) => Object.entries(all).forEach(([key, text]) => words.set(key, text))));
