// A dialog with a form: it stays open while something is wrong, and says what.
import { el, pushButton, setText, show } from "../shared/dom.js";
import { NO_ANSWER } from "../shared/visit.js";

/**
 * @param host     where the dialog lives, so that it has the page's styles
 * @param title    what it is about
 * @param body     nodes
 * @param confirm  the button's verb; without it there is nothing to confirm
 * @param submit   async; gives {problem} to stay open, else what the dialog resolves to
 * @param wide     for more than a few fields
 * Resolves to null when the person goes back.
 */
export function form(host, { title, body, confirm = "", submit = null, wide = false }) {
  return new Promise((resolve) => {
    let answer = null;
    const problem = el("p", { class: "rs-problem", role: "alert", hidden: true });
    const yes = confirm ? el("button", { type: "submit", class: "rs-button rs-primary" }, confirm) : null;
    const back = pushButton("rs-button", confirm ? "Go back" : "Close", () => dialog.close());
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
    const look = wide ? "rs-dialog rs-broad" : "rs-dialog";
    const dialog = el("dialog", { class: look, "aria-labelledby": "rs-form-title" }, node);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    host.append(dialog);
    dialog.showModal();
  });
}

export const input = (properties) =>
  el("input", { class: "rs-input", type: "text", autocomplete: "off", spellcheck: "false", ...properties });
