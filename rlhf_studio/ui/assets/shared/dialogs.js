// Questions and forms in a native dialog: it keeps the focus inside, closes with Escape, and gives the focus back.
import { el, pushButton, setText, show } from "./dom.js";
import { NO_ANSWER } from "./visit.js";
import { t } from "./language.js";

/**
 * A dialog with a form: it stays open while something is wrong, and says what.
 *
 * @param host     where the dialog lives, so that it has the page's styles
 * @param title    what it is about
 * @param body     nodes
 * @param confirm  the button's verb; without it there is nothing to confirm
 * @param submit   async; gives {problem} to stay open, else what the dialog resolves to
 * @param wide     for more than a few fields
 * @param danger   whether something is lost
 * @param plain    a question with nothing to fill in: Enter gives the harmless answer
 * @param first    the field that a person fills in first, if any
 * Resolves to null when the person goes back.
 */
export function form(
  host,
  { title, body, confirm = "", submit = null, wide = false, danger = false, first = null, plain = false },
) {
  return new Promise((resolve) => {
    let answer = null;
    const problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    const look = danger ? "rs-button rs-danger" : "rs-button rs-primary";
    const yes = confirm ? el("button", { type: "submit", class: look }, confirm) : null;
    const back = pushButton("rs-button", confirm ? t("Go back") : t("Close"), () => dialog.close());
    const node = el(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          if (!submit || yes.disabled) return;
          yes.disabled = true;
          show(problem, false);
          const reply = (await submit().catch(() => null)) || { problem: NO_ANSWER };
          yes.disabled = false;
          if (!dialog.isConnected) return;
          setText(problem, reply.problem || "");
          show(problem, Boolean(reply.problem));
          if (reply.problem) return;
          answer = reply;
          dialog.close();
        },
      },
      el("h2", { id: "rs-form-title" }, title),
      body,
      problem,
      el("div", { class: "rs-dialog-buttons" }, back, yes),
    );
    const size = wide ? "rs-dialog rs-broad" : "rs-dialog";
    const dialog = el("dialog", { class: size, "aria-labelledby": "rs-form-title" }, node);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    host.append(dialog);
    dialog.showModal();
    if (first) first.select();
    else if (plain) back.focus();
  });
}

export const input = (properties) =>
  el("input", { class: "rs-input", type: "text", autocomplete: "off", spellcheck: "false", ...properties });

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
export async function ask(host, { title, text = "", confirm, danger = false, input: line = null }) {
  const field = line ? input({ value: line.value, maxlength: line.maxlength, "aria-label": line.label }) : null;
  const body = [text ? el("p", {}, text) : null, field];
  const submit = async () => ({ value: field ? field.value : true });
  const reply = await form(host, { title, body, confirm, danger, submit, first: field, plain: !field });
  return reply && reply.value;
}

/** Whether to end a run's engine by force; the same question wherever it is offered. */
export function forceStop(host, name) {
  const text = t(
    "It was asked to stop and has not. Its processes are ended now, and no checkpoint is written: " +
      "a resume goes on from the last one there is, or begins again where there is none.",
  );
  return ask(host, { title: t("End {name} by force?", { name }), text, confirm: t("Force stop"), danger: true });
}
