// Settings of a run on their way to the Train page's form.
import { memory } from "./dom.js";

/** Fill the form: at once when the Train page is there, and from memory when it is opened for the first time. */
export function handOver({ basis, values }, name) {
  memory.set("train", { card: basis, values });
  window.dispatchEvent(new CustomEvent("rlhf-studio:settings", { detail: { basis, values, name } }));
}
