// Settings of a run on their way to the Train page's form.
import { memory } from "./dom.js";

/**
 * Fill the form: at once when the Train page is there, and from memory when it is opened for the first time.
 * `parent` is the id of the run called `name`, which a start then varies; empty for one that cannot be. `field` is the
 * dotted name of a setting to look at, `cause` why the run failed; each is empty for none.
 */
export function handOver({ basis, values, parent = "" }, name, field = "", cause = "") {
  const origin = parent ? { run: parent, name } : null;
  memory.set("train", { card: basis, values, origin });
  memory.set("train.wanted", field || cause ? { field, cause, name } : null);
  window.dispatchEvent(new CustomEvent("rlhf-studio:settings", { detail: { basis, values, name, cause, origin } }));
}
