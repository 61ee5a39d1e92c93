// What one page hands to another: settings of a run to the Train page's form, a reward model to the Talk page.
import { memory } from "./dom.js";
import { onlyWatches } from "./visit.js";

/**
 * Fill the form: at once when the Train page is there, and from memory when it is opened for the first time.
 * `parent` is the id of the run called `name`, which a start then varies; empty for one that cannot be. `field` is the
 * dotted name of a setting to look at, `cause` why the run failed; each is empty for none.
 */
export function handOver({ basis, values, stage = "ppo", parent = "" }, name, field = "", cause = "") {
  const origin = parent ? { run: parent, name } : null;
  memory.set("train", { card: basis, stage, values, origin });
  memory.set("train.wanted", { field, cause, name });
  window.dispatchEvent(
    new CustomEvent("rlhf-studio:settings", { detail: { basis, values, stage, name, cause, origin } }),
  );
}

/** The address of the Train page with a recipe and some values of its settings: {name: text}. */
export function recipeAddress(recipe, values) {
  return `?${new URLSearchParams({ tab: "train", recipe, ...values })}`;
}

/** Fill the form with a recipe and some values, without leaving this document. */
export function handRecipe(recipe, values) {
  memory.set("train.recipe", { recipe, values });
  window.dispatchEvent(new CustomEvent("rlhf-studio:recipe"));
}

/** The address of the Talk page with the reward model that a run has trained. */
export function rewardAddress(run) {
  return `?${new URLSearchParams({ tab: "talk", reward: run, ...(onlyWatches() ? { view: "1" } : {}) })}`;
}

/**
 * The address of the lesson, and its part, that is about what a run came to; where there is none, of a response of the
 * run itself, which needs a critic's numbers; else null.
 */
export function lessonAddress(run, place, critic) {
  if (!place) return critic ? microscopeAddress(run) : null;
  return `?${new URLSearchParams({ tab: "learn", ...place, ...(onlyWatches() ? { view: "1" } : {}) })}`;
}

/**
 * The address of the lesson that follows a response of a run screen by screen; without one the best of the newest step,
 * without its `sample` the best of its step. A response's `token` (null for none) is chosen there too, in the first
 * scene that is about one token.
 */
export function microscopeAddress(run, response = null) {
  const { step, sample, token = null } = response || {};
  const set = `step:${step}${sample === undefined ? "" : `,sample:${sample + 1}`}`;
  const whole = { scene: "written", set };
  const place = !response ? {} : token === null ? whole : { scene: "beside", set: `${set},place:${token + 1}` };
  const view = onlyWatches() ? { view: "1" } : {};
  return `?${new URLSearchParams({ tab: "learn", lesson: "one_sample", run, ...place, ...view })}`;
}
