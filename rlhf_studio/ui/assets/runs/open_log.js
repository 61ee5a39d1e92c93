// "Open a log": a file that the browser reads and sends as text, or the path of a file on the app's machine.
import { el, labelled, setText } from "../shared/dom.js";
import { pageLink } from "../shared/links.js";
import { bytes, counted, readable } from "../shared/format.js";
import { Once, onlyWatches } from "../shared/visit.js";
import { form, input } from "../shared/dialogs.js";
import { t } from "../shared/language.js";

const once = new Once();
const MOST_BYTES = 950_000; // of a request's body as JSON, less than the door lets an operator send
const FILES = t("JSON Lines of up to about {lines}, or Parquet of {parquet}; give the path of a larger one.", {
  lines: bytes(MOST_BYTES),
  parquet: bytes((3 * MOST_BYTES) / 4),
});
const ASK_MS = 1000; // between two questions whether a followed log has a response
const PARQUET = ".parquet"; // no text

const inBase64 = (file) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",")[1] || "");
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });

/** Ask for a log and open it. Resolves to {run, steps, rollouts, notes, following}, or null. */
export async function openLog(host, server) {
  const file = el("input", { type: "file", class: "rs-file", accept: `.jsonl,.json,.ndjson,.txt,${PARQUET}` });
  const path = input({ placeholder: "/data/rollouts" });
  const follow = el("input", { type: "checkbox" });
  const tokenizer = input({ placeholder: "Qwen/Qwen3-0.6B" });
  const weights = input({ placeholder: "1,1" });
  const name = input({ maxlength: 120, placeholder: t("The file's name") });
  const said = el("p", { class: "rs-help", role: "status" });
  const opened = await form(host, {
    title: t("Open a log"),
    wide: true,
    confirm: t("Open"),
    body: [
      el(
        "p",
        {},
        t(
          "The rollouts of another trainer (verl, TRL, prime-rl, tinker-cookbook, OpenRLHF, RL Logging Board), or " +
            "your own, become a run to look at, to diagnose and to compare.",
        ),
      ),
      labelled(t("File"), file, FILES),
      labelled(t("Or the path of a file or folder on the app's machine"), path),
      el("label", { class: "rs-check" }, follow, " ", t("Follow it while it grows, until you stop following")),
      labelled(
        t("Tokenizer of its model (optional)"),
        tokenizer,
        t("Texts without tokens are cut at words otherwise."),
      ),
      labelled(
        t("Weights of TRL's reward columns (optional)"),
        weights,
        t("TRL's file does not have them; its default is 1 for each. With them the run has a score."),
      ),
      labelled(t("Name (optional)"), name),
      said,
    ],
    submit: async () => {
      const data = { name: name.value, tokenizer: tokenizer.value, follow: follow.checked, view: onlyWatches() };
      Object.assign(data, { weights: weights.value });
      const [chosen] = file.files;
      if (!chosen && !path.value.trim()) return { problem: t("Choose a file, or give a path.") };
      if (chosen && path.value.trim()) return { problem: t("Choose a file or give a path, not both.") };
      if (chosen && follow.checked) return { problem: t("Give a path: a file that the browser sends does not grow.") };
      if (chosen) {
        if (chosen.size > MOST_BYTES) return { problem: tooLarge(chosen.size) };
        const content = chosen.name.toLowerCase().endsWith(PARQUET)
          ? { base64: await inBase64(chosen) }
          : { text: await chosen.text() };
        const sent = new Blob([JSON.stringify(content)]).size;
        if (sent > MOST_BYTES) return { problem: tooLarge(chosen.size) };
        Object.assign(data, { ...content, file_name: chosen.name });
      } else data.path = path.value.trim();
      setText(said, t("Reading the log"));
      const begun = once.ask(data, (named) => server.open_log(named));
      const reply = await begun.then((first) => firstResponse(server, said, first)).finally(() => setText(said, ""));
      return reply.problem ? { problem: readable(reply.problem, 1000) } : reply;
    },
  });
  return opened;
}

/** Of a log that is followed, wait for the first response. Who goes back ends the process that waits. */
async function firstResponse(server, said, first) {
  let reply = first;
  while (reply.waiting) {
    const { waiting: name, notes } = reply;
    setText(said, notes.join(" "));
    if (said.isConnected) await new Promise((resolve) => setTimeout(resolve, ASK_MS));
    reply = await server.open_log({ [said.isConnected ? "go_on" : "leave"]: name, view: onlyWatches() });
  }
  return reply;
}

const tooLarge = (size) =>
  t(
    "This file is too large to send ({size}). Put it on the app's machine and give its path, or use " +
      "“python -m rlhf_studio open-log FILE”.",
    { size: bytes(size) },
  );

/** What is said of a log that was opened, with the way to its run. */
export function openedLine({ run, steps, rollouts, notes, following }) {
  const told = notes.map((note) => readable(note, 400)).join(" ");
  const link = run && pageLink(t("Look at the run"), "live", { run }, "rs-link rs-opened");
  if (following) return run ? [t("The log is followed: its run grows with it."), " ", link, " ", told] : [told];
  return [
    t("Opened: {steps}, {responses}.", { steps: counted(steps, "step"), responses: counted(rollouts, "response") }),
    " ",
    link,
    " ",
    told,
  ];
}
