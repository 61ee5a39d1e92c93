// Everything about one token: its numbers, where its advantage comes from, and what else could have been written.
import { el, elEach, fill } from "./dom.js";
import { chance, fixed, number } from "./format.js";
import { term, word } from "./tips.js";
import { isKnown, tokenContent, valuesOf } from "./tokens.js";
import { t, tx } from "./language.js";

const DIGITS = 4;

export class TokenCard {
  /** @param forms  the sums and sentences that any card may show, as the app defines them */
  constructor(forms) {
    this.forms = forms;
    this.node = el("div", { class: "rs-card rs-column", "aria-live": "off" });
  }

  empty(text) {
    fill(this.node, el("p", { class: "rs-hint" }, text));
  }

  /**
   * @param settings  the run's
   * @param auto      why the page chose this token by itself; empty when a person did
   * @param ppo       whether it is a token that a policy sampled; else one of an example that a model learns from
   * @param waiting   whether its step waits between two phases: numbers that are missing have a dash then
   * @param unit      what the response is cut into: tokens or words
   */
  update(sample, index, { settings, auto = "", ppo = true, waiting = false, unit = "tokens" }) {
    const { tokens } = sample;
    const at = (name, offset = 0) => valuesOf(tokens, name)[index + offset] ?? null;
    const chanceAt = (name) => chance(tokens.chances[name]?.[index]);
    const last = index === tokens.response_ids.length - 1;
    const head = el(
      "div",
      { class: "rs-card-head rs-wrap" },
      el(
        "span",
        { class: "rs-card-title" },
        t("{unit} {index} of {length}", {
          unit: unit === "words" ? t("Word") : t("Token"),
          index: index + 1,
          length: tokens.response_ids.length,
        }),
      ),
      el("span", { class: "rs-card-token" }, tokenContent(tokens.response_pieces[index])),
      tokens.response_ids[index] >= 0 ? el("span", { class: "rs-muted" }, `id ${tokens.response_ids[index]}`) : null,
      at("clipped") > 0 ? el("span", { class: "rs-chip rs-chip-clip", "data-term": "clipped" }, t("clipped")) : null,
      auto ? el("span", { class: "rs-muted rs-auto" }, auto) : null,
    );
    const left = [ppo && advantageBlock(sample, index, last, this.forms), alternativesBlock(tokens, index, ppo)];
    const right = ppo ? numbersBlock(at, chanceAt, tokens.card.edges, settings, waiting) : exampleBlock(at, chanceAt);
    const column = left.some(Boolean) && el("div", { class: "rs-card-column rs-column" }, left);
    fill(this.node, head, (column || right) && el("div", { class: "rs-card-columns" }, column, right));
  }
}

/** A sum in two lines: in letters, then with this token's numbers, with as many decimals as they need to add up. */
function equation({ name, left, right, terms }, digits, { tokens, score }, index) {
  const valueOf = (term) => {
    if (term.of === "score") return score;
    const values = tokens.arrays[term.of];
    const at = term.next ? index + 1 : index;
    return at < values.length ? values[at] : term.beyond;
  };
  const shown = Number(digits) || DIGITS;
  const filled = terms.map((term, place) => written(valueOf(term), shown, term, tokens.card.factors, place));
  return el(
    "div",
    { class: "rs-equation", role: "group", "aria-label": name },
    el("span", { class: "rs-lhs", "data-term": name }, left),
    el("span", {}, "="),
    el("span", { class: "rs-rhs" }, right),
    el("span", {}),
    el("span", {}, "="),
    el(
      "span",
      { class: "rs-rhs rs-filled" },
      ...filled,
      digits === "~" ? " ≈ " : " = ",
      el("b", {}, fixed(tokens.arrays[name][index], DIGITS)),
    ),
  );
}

/** A term as it is printed in its place of a sum, with its sign. */
function written(value, digits, { factor, minus }, factors, place) {
  if (factor) return `${place ? " + " : ""}${factors[factor]} × ${brackets(fixed(value, digits))}`;
  if (!place) return fixed(value, digits);
  return `${value < 0 === Boolean(minus) ? " + " : " − "}${fixed(value, digits).replace("−", "")}`;
}

const brackets = (text) => (text.startsWith("\u2212") ? `(${text})` : text);

/** The sums of a token: each with one character for the decimals that it needs, see analysis/token_card.py. */
const sumsOf = ({ sums }, index) =>
  Object.entries(sums)
    .map(([name, [first, digits]]) => ({ name, digits: digits[index - first] || " " }))
    .filter(({ digits }) => digits !== " ");

function advantageBlock(sample, index, last, { sums, sentences }) {
  const { tokens } = sample;
  const { card, arrays } = tokens;
  const own = (name) => el("b", {}, fixed(arrays[name][index], DIGITS));
  const shown = sumsOf(card, index);
  const equations = shown.map(({ name, digits }) => equation(sums[name], digits, sample, index));
  const say = (name) => el("p", { class: "rs-muted" }, sentences[name]);
  if (!shown.length && !card.missing) return null;
  const follows = shown.some(({ name }) => sums[name].terms.some((term) => term.next));
  const end = arrays.rewards ? arrays.rewards.length - 1 : -1;
  const paid = sumsOf(card, end).some(({ name }) => name.endsWith("_last")); // the score is a part of that reward
  const score = el("b", {}, fixed(sample.score, DIGITS));
  return el(
    "section",
    { class: "rs-card-block rs-formulas rs-column" },
    el("h4", {}, t("Where the advantage comes from")),
    shown.length ? null : say(card.missing),
    shown.length && card.compared
      ? el(
          "p",
          { class: "rs-compared", "data-term": "advantages" },
          tx("There is no critic: every token of this response has the same advantage, {advantage}: {sentence}", {
            advantage: own("advantages"),
            sentence: sentences[card.compared],
          }),
        )
      : null,
    equations,
    shown.length && paid
      ? el(
          "p",
          { class: "rs-paid", "data-term": "score" },
          last ? tx("The judge pays its score, {score}, here: at the last token.", { score }) : null,
          !last && follows
            ? tx("The judge pays its score, {score}, at the last token. It comes here through Aₜ₊₁.", { score })
            : null,
          !last && !follows ? tx("The judge pays its score, {score}, at the last token.", { score }) : null,
        )
      : null,
    last && follows ? say("last") : null,
    shown.length && card.whitened && Number.isFinite(arrays.whitened_advantages?.[index])
      ? el(
          "p",
          { class: "rs-whitened", tabindex: "0", "data-term": "whitened_advantages" },
          tx("The loss used {advantage}: this advantage, whitened over the batch (mean 0, variance 1).", {
            advantage: own("whitened_advantages"),
          }),
        )
      : null,
  );
}

function numbersBlock(at, chanceAt, edges, settings, waiting) {
  // the advantages once more, of a trainer that is not known to whiten them
  const isCopy = (name) =>
    name === "whitened_advantages" && !settings?.whiten_advantages && at(name) === at("advantages");
  const range = settings?.cliprange ? `${number(edges["-"], 2)} – ${number(edges["+"], 2)}` : "";
  const rows = [
    ["logprobs", number(at("logprobs"), 4), chanceAt("logprobs")],
    ["ref_logprobs", number(at("ref_logprobs"), 4), chanceAt("ref_logprobs")],
    ["kl", number(at("kl"), 4), settings?.kl_estimator ? word("kl_estimator", settings.kl_estimator) : ""],
    ["new_logprobs", number(at("new_logprobs"), 4), chanceAt("new_logprobs")],
    ["ratio", number(at("ratio"), 4), at("clipped") > 0 ? t("clipped") : at("ratio") === null ? "" : range],
    ["log_ratio", number(at("log_ratio"), 4), ""],
    ["entropy", number(at("entropy"), 4), ""],
    ["rewards", number(at("rewards"), 4), ""],
    ["values", number(at("values"), 4), ""],
    ["returns", number(at("returns"), 4), ""],
    ["advantages", number(at("advantages"), 4), ""],
    ["whitened_advantages", number(at("whitened_advantages"), 4), ""],
  ].filter(([name]) => isKnown(name, settings) && (waiting || at(name) !== null) && !isCopy(name));
  if (!rows.length) return null;
  const cells = rows.flatMap(([name, value, note]) => [
    el("dt", { "data-term": name }, term(name).title),
    el("dd", {}, value),
    el("dd", { class: "rs-note" }, note),
  ]);
  return el("section", { class: "rs-card-block rs-numbers" }, el("h4", {}, t("All numbers")), el("dl", {}, cells));
}

/** The numbers of a token of an example: only those that its stage has. */
function exampleBlock(at, chanceAt) {
  const rows = [
    ["loss", at("loss"), ""],
    ["probability", null, chanceAt("logprobs")],
    ["ref_logprobs", at("ref_logprobs"), chanceAt("ref_logprobs")],
    ["kl", at("kl"), ""],
    ["entropy", at("entropy"), ""],
  ].filter(([, value, note]) => value !== null || note);
  const cells = rows.flatMap(([name, value, note]) => [
    el("dt", { "data-term": name }, term(name).title),
    el("dd", {}, value === null ? note : number(value, 4)),
    el("dd", { class: "rs-note" }, value === null ? "" : note),
  ]);
  return el("section", { class: "rs-card-block rs-numbers" }, el("h4", {}, t("All numbers")), el("dl", {}, cells));
}

function alternativesBlock(tokens, index, ppo) {
  if (!ppo && !tokens.top_ids?.[index]?.length) return null;
  const own = tokens.response_ids[index];
  const names = new Map(tokens.pieces);
  const text = (id) => (id === own ? tokens.response_pieces[index] : (names.get(id) ?? `id ${id}`));
  const table = (title, ids, shares, chosen) => {
    const rows = (ids?.[index] || []).map((id, rank) => ({ id, share: shares[index][rank] }));
    if (!rows.some((row) => row.id === own) && Number.isFinite(chosen))
      rows.push({ id: own, share: chosen, beyond: true });
    if (!rows.length) return null;
    return el(
      "div",
      { class: "rs-alternatives" },
      el("h5", {}, title),
      elEach("ol", {}, rows, (row) => alternative(row, text(row.id), row.id === own)),
    );
  };
  const { chances } = tokens;
  const reference = ppo || tokens.ref_top_ids?.[index]?.length > 0;
  const tables = [
    table(ppo ? t("Policy, when sampled") : t("The model"), tokens.top_ids, chances.top, chances.logprobs?.[index]),
    reference && table(t("Reference"), tokens.ref_top_ids, chances.ref_top, chances.ref_logprobs?.[index]),
  ].filter(Boolean);
  if (!tables.length) return null;
  return el(
    "section",
    { class: "rs-card-block" },
    el("h4", { "data-term": "probability" }, t("What else could have come here")),
    el("div", { class: "rs-alternatives-pair" }, tables),
  );
}

function alternative(row, text, chosen) {
  const share = row.share ?? 0;
  const classes = [chosen && "rs-chosen", row.beyond && "rs-beyond"].filter(Boolean).join(" ");
  return el(
    "li",
    { class: classes || null, "data-tip": chosen ? t("The token that stands here.") : null },
    el("i", { style: { "--w": `${Math.max(share > 0 ? 1 : 0, 100 * share).toFixed(1)}%` } }),
    el("span", { class: "rs-alternative-text rs-cut" }, tokenContent(text)),
    el("span", { class: "rs-alternative-share" }, chance(share)),
  );
}
