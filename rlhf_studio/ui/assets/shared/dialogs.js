// Questions in a native dialog: it keeps the focus inside, closes with Escape, and gives the focus back.
import { el, pushButton } from "./dom.js";

/**
 * Ask; resolves to true, to the text of `input`, or to null when the person goes back.
 *
 * @param host     where the dialog lives, so that it has the page's styles
 * @param title    a question
 * @param text     what follows from a yes
 * @param confirm  the button's verb
 * @param danger   whether something is lost
 * @param input    (label, value, maxlength) for a line of text, or nothing
 */
export function ask(host, { title, text = "", confirm, danger = false, input = null }) {
  return new Promise((resolve) => {
    const field = input
      ? el("input", {
          class: "rs-input",
          type: "text",
          value: input.value,
          maxlength: input.maxlength,
          "aria-label": input.label,
          autocomplete: "off",
        })
      : null;
    const back = pushButton("rs-button", "Go back", () => dialog.close());
    const yes = el("button", { type: "submit", class: `rs-button ${danger ? "rs-danger" : "rs-primary"}` }, confirm);
    let answer = null;
    const form = el(
      "form",
      {
        method: "dialog",
        onsubmit: () => {
          answer = field ? field.value : true;
        },
      },
      el("h2", { id: "rs-dialog-title" }, title),
      text ? el("p", {}, text) : null,
      field,
      el("div", { class: "rs-dialog-buttons" }, back, yes),
    );
    const dialog = el("dialog", { class: "rs-dialog", "aria-labelledby": "rs-dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    host.append(dialog);
    dialog.showModal();
    if (field) field.select();
    else back.focus(); // so that Enter gives the harmless answer
  });
}

/** Whether to end a run's engine by force; the same question wherever it is offered. */
export function forceStop(host, name) {
  const text =
    "It was asked to stop and has not. Its processes are ended now, and no checkpoint is written: " +
    "a resume goes on from the last one there is, or begins again where there is none.";
  return ask(host, { title: `End ${name} by force?`, text, confirm: "Force stop", danger: true });
}
