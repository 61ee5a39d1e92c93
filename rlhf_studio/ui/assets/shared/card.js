// Everything about one token: its numbers, where its advantage comes from, and what else could have been written.
import { el, fill } from "./dom.js";
import { decimalsThatAddUp, fixed, number, percent } from "./format.js";
import { term } from "./tips.js";
import { isKnown, tokenContent, valuesOf } from "./tokens.js";

const SMALL = 1e-12;
const DIGITS = 4;

export class TokenCard {
  constructor() {
    this.node = el("div", { class: "rs-card", "aria-live": "off" });
  }

  empty(text) {
    fill(this.node, el("p", { class: "rs-hint" }, text));
  }

  /**
   * @param auto  why the page chose this token by itself; empty when a person did
   * @param ppo   whether it is a token that a policy sampled; else one of an example that a model learns from
   */
  update(sample, index, settings, auto, ppo = true) {
    const { tokens } = sample;
    const at = (name, offset = 0) => valuesOf(tokens, name)[index + offset] ?? null;
    const last = index === tokens.response_ids.length - 1;
    const head = el(
      "div",
      { class: "rs-card-head" },
      el("span", { class: "rs-card-title" }, `Token ${index + 1} of ${tokens.response_ids.length}`),
      el("span", { class: "rs-card-token" }, tokenContent(tokens.response_pieces[index])),
      tokens.response_ids[index] >= 0 ? el("span", { class: "rs-muted" }, `id ${tokens.response_ids[index]}`) : null,
      at("clipped") > 0 ? el("span", { class: "rs-chip rs-chip-clip", "data-term": "clipped" }, "clipped") : null,
      auto ? el("span", { class: "rs-muted rs-auto" }, auto) : null,
    );
    fill(
      this.node,
      head,
      el(
        "div",
        { class: "rs-card-columns" },
        el(
          "div",
          { class: "rs-card-column" },
          ppo && advantageBlock(tokens, index, last, sample, settings),
          alternativesBlock(tokens, index, ppo),
        ),
        ppo ? numbersBlock(at, settings) : exampleBlock(at),
      ),
    );
  }
}

/** A sum in two lines: in letters, then with this token's numbers, with as many decimals as they need to add up. */
function equation({ name, letters, total, terms }) {
  const digits = decimalsThatAddUp(
    total,
    terms.map((item) => item.value),
    DIGITS,
  );
  const shown = digits ?? DIGITS;
  const filled = terms.flatMap(({ value, factor }, index) => {
    if (Array.isArray(value)) return [index ? " + " : "", `${factor} × ${brackets(fixed(value[1], shown))}`];
    if (!index) return [fixed(value, shown)];
    return [value < 0 ? " − " : " + ", fixed(Math.abs(value), shown)];
  });
  return el(
    "div",
    { class: "rs-equation", role: "group", "aria-label": name },
    el("span", { class: "rs-lhs", "data-term": name }, letters[0]),
    el("span", {}, "="),
    el("span", { class: "rs-rhs" }, letters[1]),
    el("span", {}),
    el("span", {}, "="),
    el(
      "span",
      { class: "rs-rhs rs-filled" },
      ...filled,
      digits === null ? " ≈ " : " = ",
      el("b", {}, fixed(total, DIGITS)),
    ),
  );
}

const brackets = (text) => (text.startsWith("\u2212") ? `(${text})` : text);
/** A factor as it is printed; sums are checked with the printed value. */
const factorText = (value) => String(Number(value.toPrecision(6))).replace("-", "−");
const printed = (value) => Number(value.toPrecision(6));

const AGAINST_OTHERS = {
  rloo: "the reward of the whole response, less the mean reward of the other responses to its prompt.",
  grpo: "its score less the mean score of the responses to its prompt, over their standard deviation.",
};

function advantageBlock(tokens, index, last, sample, settings) {
  const { arrays, gamma, lam } = tokens;
  const next = (name) => (last ? 0 : arrays[name]?.[index + 1]);
  const own = (name) => arrays[name]?.[index];
  const terms = ["advantages", "deltas", "rewards", "values", "returns"].map(own);
  const complete = [...terms, gamma, lam].every(Number.isFinite);
  const block = el("section", { class: "rs-card-block rs-formulas" }, el("h4", {}, "Where the advantage comes from"));
  if (settings?.advantage in AGAINST_OTHERS && Number.isFinite(own("advantages"))) {
    block.append(
      el(
        "p",
        { class: "rs-compared", "data-term": "advantages" },
        "There is no critic: every token of this response has the same advantage, ",
        el("b", {}, fixed(own("advantages"), 4)),
        `: ${AGAINST_OTHERS[settings.advantage]}`,
      ),
      equation(rewardSum(tokens, index, last, sample, settings)),
    );
    return block;
  }
  if (!complete) {
    const why = arrays.advantages
      ? "A number of this token is missing or not finite, so nothing can be added up."
      : "Advantages are not computed yet: the step waits before that phase.";
    block.append(el("p", { class: "rs-muted" }, why));
    return block;
  }
  const factor = gamma === 1 ? factorText(lam) : `${factorText(gamma)} × ${factorText(lam)}`;
  const sums = [
    {
      name: "advantages",
      letters: ["Aₜ", "δₜ + γλ · Aₜ₊₁"],
      total: own("advantages"),
      terms: [{ value: own("deltas") }, { value: [printed(gamma) * printed(lam), next("advantages")], factor }],
    },
    {
      name: "deltas",
      letters: ["δₜ", "rₜ + γ · Vₜ₊₁ − Vₜ"],
      total: own("deltas"),
      terms: [
        { value: own("rewards") },
        { value: [printed(gamma), next("values")], factor: factorText(gamma) },
        { value: -own("values") },
      ],
    },
    rewardSum(tokens, index, last, sample, settings),
    {
      name: "returns",
      letters: ["Rₜ", "Aₜ + Vₜ"],
      total: own("returns"),
      terms: [{ value: own("advantages") }, { value: own("values") }],
    },
  ];
  block.append(...sums.map(equation));
  if (last) block.append(el("p", { class: "rs-muted" }, "Last token: nothing follows, so Aₜ₊₁ and Vₜ₊₁ are 0."));
  if (Number.isFinite(own("whitened_advantages")) && settings?.whiten_advantages) {
    block.append(
      el(
        "p",
        { class: "rs-whitened", "data-term": "whitened_advantages" },
        "The loss used ",
        el("b", {}, fixed(own("whitened_advantages"), 4)),
        ": this advantage, whitened over the batch (mean 0, variance 1).",
      ),
    );
  }
  return block;
}

/** r_t = -beta * kl_t, plus the score on the last token; only the number when the run shapes rewards otherwise. */
function rewardSum(tokens, index, last, sample, settings) {
  const { arrays, kl_coef: beta } = tokens;
  const [reward, kl] = [arrays.rewards[index], arrays.kl?.[index]];
  if (settings?.kl_placement === "loss")
    return {
      name: "rewards",
      letters: ["rₜ", last ? "score" : "0, the KL is charged in the loss"],
      total: reward,
      terms: [{ value: reward }],
    };
  const penalty = -beta;
  const sum = penalty * kl + (last ? sample.score : 0);
  const adds = [beta, kl, sum].every(Number.isFinite) && Math.abs(sum - reward) < 1e-4 * (1 + Math.abs(reward));
  if (!adds)
    return { name: "rewards", letters: ["rₜ", "reward of this token"], total: reward, terms: [{ value: reward }] };
  const terms = [
    { value: [printed(penalty), kl], factor: factorText(penalty) },
    ...(last ? [{ value: sample.score }] : []),
  ];
  return { name: "rewards", letters: ["rₜ", last ? "−β · klₜ + score" : "−β · klₜ"], total: reward, terms };
}

function numbersBlock(at, settings) {
  const range = settings ? `${number(1 - settings.cliprange, 2)} – ${number(1 + settings.cliprange_high, 2)}` : "";
  const rows = [
    ["logprobs", number(at("logprobs"), 4), chance(at("logprobs"))],
    ["ref_logprobs", number(at("ref_logprobs"), 4), chance(at("ref_logprobs"))],
    ["kl", number(at("kl"), 4), settings?.kl_estimator || ""],
    ["new_logprobs", number(at("new_logprobs"), 4), chance(at("new_logprobs"))],
    ["ratio", number(at("ratio"), 4), at("clipped") > 0 ? "clipped" : at("ratio") === null ? "" : range],
    ["log_ratio", number(at("log_ratio"), 4), ""],
    ["entropy", number(at("entropy"), 4), ""],
    ["rewards", number(at("rewards"), 4), ""],
    ["values", number(at("values"), 4), ""],
    ["returns", number(at("returns"), 4), ""],
    ["advantages", number(at("advantages"), 4), ""],
    ["whitened_advantages", number(at("whitened_advantages"), 4), ""],
  ].filter(([name]) => isKnown(name, settings));
  const cells = rows.flatMap(([name, value, note]) => [
    el("dt", { "data-term": name }, term(name).title),
    el("dd", {}, value),
    el("dd", { class: "rs-note" }, note),
  ]);
  return el("section", { class: "rs-card-block rs-numbers" }, el("h4", {}, "All numbers"), el("dl", {}, cells));
}

/** The numbers of a token of an example: only those that its stage has. */
function exampleBlock(at) {
  const rows = [
    ["loss", at("loss"), ""],
    ["probability", null, chance(at("logprobs"))],
    ["ref_logprobs", at("ref_logprobs"), chance(at("ref_logprobs"))],
    ["kl", at("kl"), ""],
    ["entropy", at("entropy"), ""],
  ].filter(([, value, note]) => value !== null || note);
  const cells = rows.flatMap(([name, value, note]) => [
    el("dt", { "data-term": name }, term(name).title),
    el("dd", {}, value === null ? note : number(value, 4)),
    el("dd", { class: "rs-note" }, value === null ? "" : note),
  ]);
  return el("section", { class: "rs-card-block rs-numbers" }, el("h4", {}, "All numbers"), el("dl", {}, cells));
}

const chance = (logprob) =>
  Number.isFinite(logprob) ? percent(Math.exp(logprob), Math.exp(logprob) < 0.01 ? 2 : 1) : "";

function alternativesBlock(tokens, index, ppo) {
  if (!ppo && !tokens.top_ids?.[index]?.length) return null;
  const own = tokens.response_ids[index];
  const names = new Map(tokens.pieces);
  const text = (id) => (id === own ? tokens.response_pieces[index] : (names.get(id) ?? `id ${id}`));
  const table = (title, ids, logprobs, chosen) => {
    const rows = (ids?.[index] || []).map((id, rank) => ({ id, logprob: logprobs[index][rank] }));
    if (!rows.some((row) => row.id === own) && Number.isFinite(chosen))
      rows.push({ id: own, logprob: chosen, beyond: true });
    return el(
      "div",
      { class: "rs-alternatives" },
      el("h5", {}, title),
      el(
        "ol",
        {},
        rows.map((row) => alternative(row, text(row.id), row.id === own)),
      ),
    );
  };
  const { arrays } = tokens;
  const reference = ppo || tokens.ref_top_ids?.[index]?.length > 0;
  return el(
    "section",
    { class: "rs-card-block" },
    el("h4", { "data-term": "probability" }, "What else could have come here"),
    el(
      "div",
      { class: "rs-alternatives-pair" },
      table(ppo ? "Policy, when sampled" : "The model", tokens.top_ids, tokens.top_logprobs, arrays.logprobs?.[index]),
      reference && table("Reference", tokens.ref_top_ids, tokens.ref_top_logprobs, arrays.ref_logprobs?.[index]),
    ),
  );
}

function alternative(row, text, chosen) {
  const share = Number.isFinite(row.logprob) ? Math.exp(row.logprob) : 0;
  const classes = [chosen && "rs-chosen", row.beyond && "rs-beyond"].filter(Boolean).join(" ");
  return el(
    "li",
    { class: classes || null, "data-tip": chosen ? "The token that stands here." : null },
    el("i", { style: { "--w": `${Math.max(share > SMALL ? 1 : 0, 100 * share).toFixed(1)}%` } }),
    el("span", { class: "rs-alternative-text" }, tokenContent(text)),
    el("span", { class: "rs-alternative-share" }, percent(share, share < 0.01 ? 2 : 1)),
  );
}
