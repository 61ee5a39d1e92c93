// All questions and answers that people have added, for teachers: the waiting ones first, and a file of them.
import { el, pushButton } from "../shared/dom.js";
import { t } from "../shared/language.js";
import { saveText } from "../shared/take.js";
import { Added } from "./below.js";

class All extends Added {
  draw(found) {
    const entries = [...(found.entries || [])].sort((a, b) => Number(Boolean(a.answer)) - Number(Boolean(b.answer)));
    super.draw({ ...found, entries });
    if (!entries.length) this.node.prepend(el("p", { class: "rs-muted" }, t("There are none yet.")));
    if (found.change) this.node.append(this.files());
  }

  /** Two buttons: one saves all that is answered, the other takes in such a file. */
  files() {
    const save = async () => {
      const reply = await this.tell("added_change", { op: "save" });
      if (reply.text) saveText(reply.text, "questions.json", "application/json");
    };
    const load = async () => {
      const [file] = picker.files;
      if (!file) return;
      const reply = await this.tell("added_change", { op: "load", text: await file.text() });
      if (!reply.problem)
        this.said.textContent = t("New: {new}. Here already: {known}.", { new: reply.new, known: reply.known });
    };
    const picker = el("input", { type: "file", accept: ".json,application/json", hidden: true, onchange: load });
    return el(
      "div",
      { class: "rs-wrap" },
      pushButton("rs-button rs-small", t("Save as a file"), save),
      pushButton("rs-button rs-small", t("Take from a file"), () => picker.click()),
      picker,
    );
  }
}

export function everything(node, server, places) {
  new All(node, "", server, new Map(places.map(({ name, title }) => [name, title]))).look();
}
