// Settings of a run on their way to the Train page's form.
import { memory } from "./dom.js";

/**
 * Fill the form: at once when the Train page is there, and from memory when it is opened for the first time. `field` is
 * the dotted name of a setting to look at, `cause` why the run failed; each is empty for none.
 */
export function handOver({ basis, values }, name, field = "", cause = "") {
  memory.set("train", { card: basis, values });
  memory.set("train.wanted", field || cause ? { field, cause, name } : null);
  window.dispatchEvent(new CustomEvent("rlhf-studio:settings", { detail: { basis, values, name, cause } }));
}
