// How a page is looked at: on screen or not, and by someone who only wants to watch.

/** What is said when the server gives no answer to something a person waits for. */
export const NO_ANSWER = "The app does not answer. Try again in a moment.";

/**
 * Whether the address asks for pages that only watch (`?view=1`), whoever opens them. The server is told with every
 * question.
 */
export const onlyWatches = () => new URLSearchParams(location.search).get("view") === "1";

export const isOnScreen = (node) =>
  document.visibilityState === "visible" && node.isConnected && node.offsetParent !== null;

/** Call `action` each time `node` comes into view, for instance when its tab is chosen. */
export function whenShown(node, action) {
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && action()).observe(node);
}

const AGAIN = 4000;

/** Call `action` in a while, once `node` is on the screen; not when it is `wanted` no more. */
export function later(node, wanted, action) {
  setTimeout(() => {
    if (!wanted() || !node.isConnected) return;
    if (isOnScreen(node)) action();
    else later(node, wanted, action);
  }, AGAIN);
}
