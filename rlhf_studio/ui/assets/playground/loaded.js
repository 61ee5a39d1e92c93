// What a reward model's files say: its class, files, score head, pad token, and the token that is scored.
import { el } from "../shared/dom.js";
import { bytes, counted, integer, number, readable } from "../shared/format.js";
import { bracketed, clauses, colon, listing, t, tp } from "../shared/language.js";

const shape = (sizes) => sizes.map((size) => integer(size)).join(" × ");
const token = (id, text) => {
  if (id === null && text === null) return t("none");
  const name = text === null ? "" : `“${readable(text, 40)}”`;
  return id === null ? t("{name} (not named in config.json)", { name }) : `${name} id ${id}`.trim();
};

/** A folded panel. `model` is RewardModelDescription of inputs/models/reward_models.py. */
export function loadedPanel(model) {
  const head = Object.entries(model.head_weights).map(([name, sizes]) => `${name} ${shape(sizes)}`);
  const kind =
    model.head === "hidden"
      ? t("one hidden layer ({activation}), then linear", { activation: model.activation })
      : t("linear");
  const files = Object.entries(model.files).map(([name, size]) => clauses([name, bytes(size)]));
  const normal = model.normalised;
  const rows = [
    [tp("of a model", "Class"), readable(model.architecture, 80)],
    [t("Base"), model.base ? readable(model.base, 200) : null],
    [t("Files"), readable(files.join(t("; ")), 400) || t("on the Hugging Face hub")],
    [t("Weights"), model.parameters === null ? null : integer(model.parameters)],
    [t("Score head"), head.length ? colon(kind, readable(listing(head), 400)) : kind],
    [t("Outputs"), model.labels.length > 1 ? readable(listing(model.labels), 400) : "1"],
    [t("Pad token"), token(model.pad_id, model.pad_token)],
    [t("End token"), token(model.end_id, model.end_token)],
    [t("Position scored"), model.scored],
    [t("Longest text"), model.longest === null ? t("no limit of positions") : counted(model.longest, "token")],
    [
      t("Normalised"),
      normal
        ? [
            t("over {responses} responses: mean {mean} and deviation {std} became 0 and 1", {
              responses: integer(normal.responses),
              mean: number(normal.mean, 3),
              std: number(normal.std, 3),
            }),
            normal.source && bracketed(readable(normal.source, 80)),
          ].filter(Boolean)
        : t("not recorded"),
    ],
  ];
  return el(
    "details",
    { class: "rs-playground-details" },
    el(
      "summary",
      {},
      el("b", {}, t("What is loaded")),
      el(
        "span",
        { class: "rs-muted" },
        " ",
        t("{architecture}, {kind} head", { architecture: readable(model.architecture, 60), kind }),
      ),
    ),
    el(
      "dl",
      {},
      rows.filter(([, value]) => value !== null).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
    ),
    model.notes.map((note) => el("p", { class: "rs-help" }, note)),
  );
}
