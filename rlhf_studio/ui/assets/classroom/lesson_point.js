// Pointing in a lesson: the teacher clicks on a token of a picture, and everyone who follows sees it marked.
import { address } from "../shared/address.js";
import { markPointed, pointing } from "./pointing.js";

const TOKENS = ".rs-learn-token, .rs-picture-ledger thead th[scope=col]";
const page = () => document.querySelector("#learn-page");

function tokensOf(scene) {
  return [...(page()?.querySelectorAll(`[data-scene="${CSS.escape(scene)}"] :is(${TOKENS})`) || [])];
}

/** Call `point(text)` when the teacher clicks on a token: its scene and its number in it, as an address has them. */
export function onLessonToken(point) {
  document.addEventListener("click", (event) => {
    const token = /** @type {Element} */ (event.target).closest?.(TOKENS);
    const scene = token?.closest("[data-scene]")?.getAttribute("data-scene");
    if (address.here === "learn" && scene) point(`${scene}:${tokensOf(scene).indexOf(token)}`);
  });
}

/** Keep the mark where the teacher points, whatever is drawn anew. */
export function markLessons() {
  let asked = false;
  const mark = () => {
    asked = false;
    const [scene, place] = (pointing.place?.page === "learn" && pointing.place.params.point?.split(":")) || [];
    if (page()) markPointed(page(), scene ? (tokensOf(scene)[Number(place)] ?? null) : null);
  };
  const soon = () => {
    if (!asked) requestAnimationFrame(mark);
    asked = true;
  };
  pointing.onchange(soon);
  new MutationObserver(() => pointing.place?.page === "learn" && soon()).observe(page() || document.body, {
    subtree: true,
    childList: true,
  });
}
