// What the prompts of a list have in common, such as a chat template, is left out of its rows.
const LONG_PROMPT = 60; // characters: with more, a row shows the end alone, so that the response has room
const PROMPT_END = 36;

/**
 * What all of the prompts begin and end with, such as a chat template, in characters; no part of a word first.
 * @returns {[number, number]}
 */
export function sharedEnds([first = "", ...others]) {
  let [start, end] = [0, 0];
  while (start < first.length && others.every((text) => text[start] === first[start])) start += 1;
  start = first.slice(0, start).search(/\S*$/);
  const left = Math.min(...[first, ...others].map((text) => text.length - start));
  while (end < left && others.every((text) => text.at(-1 - end) === first.at(-1 - end))) end += 1;
  return [start, end];
}

/** A prompt as a row shows it: of a long one the end of what the other rows' prompts do not have too. */
export function shortPrompt(prompt, [start, end]) {
  if (prompt.length <= LONG_PROMPT) return prompt;
  const own = [...prompt.slice(start, prompt.length - end)];
  const cut = start > 0 || own.length > PROMPT_END;
  return `${cut ? "\u2026" : ""}${own.slice(-PROMPT_END).join("")}${end ? "\u2026 " : ""}`;
}
