// Other ways to a model or to data: folders of the app's machine, a file of one's own, the Hugging Face hub.
import { each, el, fill, pushButton, setText, show } from "../../shared/dom.js";
import { bytes, readable } from "../../shared/format.js";
import { Choices } from "./choices.js";
import { t } from "../../shared/language.js";

const PART = 450_000; // bytes; the server takes 600,000
const LARGEST = 100_000_000;

/** Text of a file's part as the server takes it. */
async function inBase64(part) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(part);
  });
  return url.slice(url.indexOf(",") + 1);
}

const newKey = () =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class Finder {
  /**
   * @param what      model, data or reward
   * @param ask       async (name, question) -> the server's answer
   * @param value     present value of a setting
   * @param onchoose  called with a choice
   * @param onpath    called with a path that was found
   * @param onupload  called with the settings that name an uploaded file
   */
  constructor({ what, ask, value, onchoose, onpath, onupload }) {
    this.what = what;
    this.ask = ask;
    this.value = value;
    this.onchoose = onchoose;
    this.onpath = onpath;
    this.onupload = onupload;
    this.panel = el("div", { class: "rs-finder-panel", hidden: true });
    this.status = el("p", { class: "rs-help", role: "status" });
    this.buttons = el("div", { class: "rs-finder rs-wrap" });
    this.node = el("div", {}, this.buttons, this.status, this.panel);
    this.offer(false);
  }

  /** @param browse  whether folders may be looked into */
  offer(browse) {
    const folders = this.what === "reward" || !browse ? null : this.opener(t("Browse folders"), () => this.browse(""));
    const file = this.what === "data" ? this.upload() : null;
    fill(
      this.buttons,
      folders,
      file,
      this.opener(t("Search the hub"), () => this.search()),
    );
  }

  opener(words, open) {
    const button = pushButton("rs-button rs-small", words, () => {
      const again = button.getAttribute("aria-expanded") === "true";
      this.close();
      if (again) return;
      button.setAttribute("aria-expanded", "true");
      open();
    });
    button.setAttribute("aria-expanded", "false");
    return button;
  }

  close() {
    for (const button of this.buttons.children)
      if (button.hasAttribute("aria-expanded")) button.setAttribute("aria-expanded", "false");
    show(this.panel, false);
    this.say("");
  }

  say(text, wrong = false) {
    setText(this.status, text);
    this.status.classList.toggle("rs-problem", wrong);
  }

  /** Ask; says what is wrong and gives null when there is no answer. */
  async answer(name, question) {
    const answer = await this.ask(name, { what: this.what, ...question });
    this.say(answer.problem || "", Boolean(answer.problem));
    return answer.problem ? null : answer;
  }

  // --- folders ---------------------------------------------------------------

  async browse(path) {
    this.say(t("Looking into the folder"));
    const answer = await this.answer("pick_folder", { path });
    if (!answer) return;
    const up =
      answer.path && !answer.top ? pushButton("rs-button rs-small", t("Up"), () => this.browse(answer.parent)) : null;
    const whole =
      this.what === "data" && answer.path && answer.files.length > 1
        ? pushButton("rs-button rs-small", t("Use the whole folder"), () => this.take(answer.path))
        : null;
    const list = el("ul", { class: "rs-folder" });
    each(
      list,
      [...answer.folders.map((row) => this.folder(row)), ...answer.files.map((row) => this.file(row))],
      (row) => row,
    );
    const empty =
      this.what === "data" ? t("No folder, and no file that can be read as data.") : t("No folder is in here.");
    fill(
      this.panel,
      el(
        "p",
        { class: "rs-folder-path" },
        answer.path ? readable(answer.path, 600) : t("Folders that may be looked into"),
      ),
      el("div", { class: "rs-finder rs-wrap" }, up, whole),
      list.children.length ? list : el("p", { class: "rs-help" }, empty),
      answer.left ? el("p", { class: "rs-help" }, t("{left} more are not listed.", { left: answer.left })) : null,
    );
    show(this.panel, true);
    (list.querySelector("button") || up)?.focus({ preventScroll: true });
  }

  folder({ name, path, model }) {
    const use =
      model && this.what === "model" ? pushButton("rs-button rs-small", t("Use"), () => this.take(path)) : null;
    use?.setAttribute("aria-label", t("Use the model {name}", { name }));
    return el(
      "li",
      { class: "rs-middle" },
      pushButton("rs-link", `${readable(name, 200)}/`, () => this.browse(path)),
      model && this.what === "model" ? el("span", { class: "rs-help" }, t("a model")) : null,
      use,
    );
  }

  file({ name, path, bytes: size }) {
    const button = pushButton("rs-link", readable(name, 200), () => this.take(path));
    return el("li", { class: "rs-middle" }, button, el("span", { class: "rs-help" }, bytes(size)));
  }

  take(path) {
    this.close();
    this.onpath(path);
  }

  // --- a file of one's own ---------------------------------------------------

  upload() {
    const input = el("input", {
      type: "file",
      class: "rs-hidden",
      tabindex: -1,
      "aria-hidden": "true",
      accept: ".jsonl,.json,.csv,.tsv,.txt,.parquet,.gz",
      onchange: () => {
        const [file] = input.files;
        input.value = "";
        if (file) this.send(file);
      },
    });
    const button = pushButton("rs-button rs-small", t("Upload a file"), () => input.click());
    return el("span", {}, button, input);
  }

  async send(file) {
    this.close();
    if (file.size > LARGEST)
      return this.say(
        t("{name} is larger than {largest}: copy it to the app's machine, and type its path.", {
          name: file.name,
          largest: bytes(LARGEST),
        }),
        true,
      );
    if (!file.size) return this.say(t("{name} is empty.", { name: file.name }), true);
    const key = newKey();
    for (let offset = 0; offset < file.size; offset += PART) {
      const last = offset + PART >= file.size;
      const part = await inBase64(file.slice(offset, offset + PART)).catch(() => null);
      if (part === null) return this.say(t("{name} cannot be read.", { name: file.name }), true);
      const answer = await this.answer("pick_upload", { key, name: file.name, offset, part, last });
      if (!answer) return undefined;
      if (last) {
        this.onupload(answer.settings);
        return this.say(t("{name} is on the app's machine now.", { name: file.name }));
      }
      this.say(t("Uploading {name}: {next} %", { name: file.name, next: Math.round((100 * answer.next) / file.size) }));
    }
    return undefined;
  }

  // --- the hub ---------------------------------------------------------------

  search() {
    const input = el("input", {
      class: "rs-input",
      type: "search",
      maxlength: 100,
      placeholder: this.what === "data" ? "gsm8k" : "smollm2 instruct",
      "aria-label": t("Words to search the Hugging Face hub for"),
    });
    const choices = new Choices({ label: t("From the hub"), value: this.value, onchoose: this.onchoose });
    const go = el("button", { type: "submit", class: "rs-button rs-small" }, t("Search"));
    const form = el(
      "form",
      {
        class: "rs-hub-search rs-middle",
        onsubmit: async (event) => {
          event.preventDefault();
          if (go.disabled) return;
          go.disabled = true;
          this.say(t("Asking the hub"));
          const answer = await this.answer("pick_search", { words: input.value });
          go.disabled = false;
          if (answer) choices.draw([{ title: t("From the hub"), choices: answer.choices, note: "" }]);
          show(choices.node, Boolean(answer));
        },
      },
      input,
      go,
    );
    this.found = choices;
    show(choices.node, false); // until there is an answer
    fill(this.panel, form, choices.node);
    show(this.panel, true);
    input.focus();
  }

  follow() {
    this.found?.follow();
  }
}
