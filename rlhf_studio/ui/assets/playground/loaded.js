// What a reward model's files say: its class, files, score head, pad token, and the token that is scored.
import { el } from "../shared/dom.js";
import { bytes, integer, number, readable } from "../shared/format.js";

const shape = (sizes) => sizes.map((size) => integer(size)).join(" × ");
const token = (id, text) => {
  if (id === null && text === null) return "none";
  const name = text === null ? "" : `“${readable(text, 40)}”`;
  return id === null ? `${name} (not named in config.json)` : `${name} id ${id}`.trim();
};

/** A folded panel. `model` is RewardModelDescription of inputs/models/reward_models.py. */
export function loadedPanel(model) {
  const head = Object.entries(model.head_weights).map(([name, sizes]) => `${name} ${shape(sizes)}`);
  const kind = model.head === "hidden" ? `one hidden layer (${model.activation}), then linear` : "linear";
  const files = Object.entries(model.files).map(([name, size]) => `${name}, ${bytes(size)}`);
  const normal = model.normalised;
  const rows = [
    ["Class", readable(model.architecture, 80)],
    ["Base", model.base ? readable(model.base, 200) : null],
    ["Files", readable(files.join("; "), 400) || "on the Hugging Face hub"],
    ["Weights", model.parameters === null ? null : integer(model.parameters)],
    ["Score head", `${kind}${head.length ? `: ${readable(head.join(", "), 400)}` : ""}`],
    ["Outputs", model.labels.length > 1 ? readable(model.labels.join(", "), 400) : "1"],
    ["Pad token", token(model.pad_id, model.pad_token)],
    ["End token", token(model.end_id, model.end_token)],
    ["Position scored", model.scored],
    ["Longest text", model.longest === null ? "no limit of positions" : `${integer(model.longest)} tokens`],
    [
      "Normalised",
      normal
        ? `over ${integer(normal.responses)} responses${normal.source ? ` (${readable(normal.source, 80)})` : ""}: ` +
          `mean ${number(normal.mean, 3)} and deviation ${number(normal.std, 3)} became 0 and 1`
        : "not recorded",
    ],
  ];
  return el(
    "details",
    { class: "rs-playground-details" },
    el(
      "summary",
      {},
      el("b", {}, "What is loaded"),
      el("span", { class: "rs-muted" }, ` ${readable(model.architecture, 60)}, ${kind} head`),
    ),
    el(
      "dl",
      {},
      rows.filter(([, value]) => value !== null).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
    ),
    model.notes.map((note) => el("p", { class: "rs-help" }, note)),
  );
}
