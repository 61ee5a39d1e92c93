// How a page is looked at: on screen or not, and by someone who only wants to watch. And how it asks for what a person
// waits for.
import { memory } from "./dom.js";
import { t } from "./language.js";

/** What is said when the server gives no answer to something a person waits for. */
export const NO_ANSWER = t("The app does not answer. Try again in a moment.");

/** What is said of a question that failed: why the server refused it, where it did, else that there was no answer. */
export const whyNot = (error) => error.refused || NO_ANSWER;

const REFUSED = [401, 403];
const NOT_YOU = t("The app did not allow this. Reload the page to see what you may do.");
const TOO_MUCH = [429, 503];
const COOL_DOWN = 5000; // milliseconds, where the server does not say how long
const SESSION = crypto.getRandomValues(new Uint32Array(4)).join("-");

/**
 * The server's functions of a page: a call gives the answer, or rejects. Gradio's own give `undefined` when no answer
 * comes, and do not say for how long a server that has too much to do wants to rest; here the error's `restFor` does.
 * @param address    where functions are asked
 * @param component  the page's component, as Gradio's own configuration has it
 */
export function functionsOf(address, component) {
  const ask = async (name, data) => {
    const body = JSON.stringify({ data, component_id: component.id, fn_name: name, session_hash: SESSION });
    const reply = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (reply.ok) return reply.json();
    /** @type {Error & { refused?: string, restFor?: number }} */
    const error = new Error(`the app answered ${name} with HTTP ${reply.status}`);
    const asked = 1000 * Number(reply.headers.get("Retry-After"));
    if (REFUSED.includes(reply.status)) error.refused = (await reply.json().catch(() => ({}))).detail || NOT_YOU;
    if (TOO_MUCH.includes(reply.status)) error.restFor = asked || COOL_DOWN;
    throw error;
  };
  return Object.fromEntries(component.props.server_fns.map((name) => [name, (data) => ask(name, data)]));
}

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

const MOST_OPEN = 20;

/**
 * Names every wish to start something, so that the server (ui/once.py) starts it once, however often it is asked: by a
 * double click, or again because no answer came.
 */
export class Once {
  constructor() {
    this.open = new Map(); // what was asked for and not answered yet, with its nonce
  }

  /** The nonce of a request: a new one, or that of the same request which still has no answer. */
  nonce(request) {
    const key = JSON.stringify(request);
    const nonce = this.open.get(key) || crypto.getRandomValues(new Uint32Array(4)).join("-");
    this.open.delete(key);
    this.open.set(key, nonce);
    if (this.open.size > MOST_OPEN) this.open.delete(this.open.keys().next().value);
    return nonce;
  }

  /** An answer has come: whoever asks again now wishes something new. */
  answered(nonce) {
    for (const [key, known] of this.open) if (known === nonce) this.open.delete(key);
  }

  /** What `send` answers to the request with its nonce. A request that gets no answer keeps its nonce, and rejects. */
  async ask(request, send) {
    const nonce = this.nonce(request);
    const reply = await send({ ...request, nonce });
    this.answered(nonce);
    return reply;
  }
}

/**
 * An app that was started anew may not know this page's component any more; then only a fresh page helps.
 * @param api  where the app's own address of functions is
 * @param ask  async function that asks a component of this page something
 */
export async function reloadAfterRestart(api, ask) {
  try {
    const reply = await fetch(`${api}/app_id`, { cache: "no-store" });
    const now = reply.ok ? (await reply.json()).app_id : null;
    if (now === null || now === window.gradio_config.app_id || now === memory.get("reloaded", null)) return;
    if (await ask().catch(() => null)) return;
    memory.set("reloaded", now); // reload once for each start of the app, or it might never end
    location.reload();
  } catch {
    // the app does not answer yet; the next failed poll asks again
  }
}
