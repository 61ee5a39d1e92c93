// Small preferences that outlast this tab, kept by the browser on this machine.
import { preferences } from "./dom.js";

export const lasting = preferences(() => localStorage);

export const TEXT_SIZES = [1, 1.25, 1.5];

/** How many times as large as usual text is, see shell/text_size.js. What is not drawn by a stylesheet asks here. */
export function textSize() {
  const kept = lasting.get("text-size", 1);
  return TEXT_SIZES.includes(kept) ? kept : 1;
}

export const keepTextSize = (size) => lasting.set("text-size", size);
