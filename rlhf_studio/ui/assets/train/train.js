// The Train page: its first screen, and the form, which is loaded when somebody wants it.
import { fill, memory } from "../shared/dom.js";
import { pagePoll } from "../shared/lost.js";
import { onlyWatches } from "../shared/visit.js";
import { FirstScreen } from "./first.js";

const OPEN = "train.open";

/** Whether the form is wanted at once, or was open before. */
const wantsForm = () =>
  memory.get(OPEN, false) ||
  memory.get("train.recipe", null) !== null ||
  memory.get("train.wanted", null) !== null ||
  new URLSearchParams(location.search).has("recipe");

/** Draw the page into `host`; called once when the component appears. */
export async function mount({ host, server, trigger, watch, props }) {
  const poll = pagePoll(host);
  fill(host, poll.notice);
  let shown = null; // the first screen, or the form
  let asked = null; // the form, once it is wanted

  const load = async () => {
    const asking = poll.first(() => server.boot({ view: onlyWatches() }));
    const { TrainPage } = await import("./page.js");
    const boot = await asking;
    memory.set(OPEN, true);
    shown?.end();
    return (shown = new TrainPage(host, { server, trigger, boot, poll }));
  };
  const form = () =>
    (asked ??= load().catch((error) => {
      asked = null; // asked again with the next click
      throw error;
    }));
  const open = async (card) => {
    const page = await form();
    if (!card) return page.change();
    page.pick(card);
    return page.goOn();
  };

  watch("value", () => shown?.outcome(JSON.parse(props.value || "{}")));
  window.addEventListener("rlhf-studio:settings", async (/** @type {CustomEvent} */ event) =>
    (await form()).take(event.detail),
  );
  window.addEventListener("rlhf-studio:setting", form);
  window.addEventListener("rlhf-studio:recipe", async () => (await form()).takeRecipe());
  if (wantsForm()) return void (await form());
  const first = await poll.first(() => server.first({ view: onlyWatches() }));
  if (!asked) shown = new FirstScreen(host, { first, server, trigger, poll, onform: open });
  return undefined;
}
