"""The sums behind one token's advantage: their letters, and with how many decimals the recorded numbers of a token add up.

This is the one definition that the page's token card draws; it computes nothing itself. The lessons write the same sums with the same
letters. How the engine computes the numbers is in :mod:`rlhf_studio.ppo`; here the numbers that it recorded are put back into the sums.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from rlhf_studio.config import PPOConfig
from rlhf_studio.language import N_, _, shown
from rlhf_studio.runs.records import TokenRecord

DIGITS, MOST_DIGITS = 4, 6
"""Decimals of a total, and the most that its terms are printed with so that they add up to it."""
CLEAR = 0.01
"""A change of a token's probability that is worth a word; a smaller one is called hardly any."""
NEEDED = ("advantages", "deltas", "rewards", "values", "returns")
CHANCES = ("logprobs", "ref_logprobs", "new_logprobs")


@dataclass(frozen=True)
class SumTerm:
    """One term of a sum.

    Attributes:
        of: a recorded quantity, or ``score``, which a response has once.
        factor: what it is multiplied with, a name of :func:`factors`; empty for 1.
        minus: it is taken away.
        next: the quantity of the next token. After the last token there is none, so the term is ``beyond`` there.
    """

    of: str
    factor: str = ""
    minus: bool = False
    next: bool = False
    beyond: float = 0.0


@dataclass(frozen=True)
class Sum:
    """A quantity of a token as a sum, in LaTeX; ``note`` are words behind the letters."""

    name: str
    left: str
    right: str
    terms: tuple[SumTerm, ...]
    note: str = ""


_REWARD, _CHARGE, _SCORE = SumTerm("rewards"), SumTerm("kl", "minus_beta"), SumTerm("score")
SUMS = {
    "advantages": Sum(
        "advantages", r"A_t", r"\delta_t + \gamma\lambda A_{t+1}", (SumTerm("deltas"), SumTerm("advantages", "gamma_lambda", next=True))
    ),
    "deltas": Sum(
        "deltas",
        r"\delta_t",
        r"r_t + \gamma V_{t+1} - V_t",
        (_REWARD, SumTerm("values", "gamma", next=True), SumTerm("values", minus=True)),
    ),
    "rewards": Sum("rewards", r"r_t", r"-\beta\,\mathrm{kl}_t", (_CHARGE,)),
    "rewards_last": Sum("rewards", r"r_t", r"-\beta\,\mathrm{kl}_t + \mathrm{score}", (_CHARGE, _SCORE)),
    "rewards_in_loss": Sum("rewards", r"r_t", r"0", (_REWARD,), N_(", the KL is charged in the loss")),
    "rewards_in_loss_last": Sum("rewards", r"r_t", r"\mathrm{score}", (_SCORE,)),
    "rewards_given": Sum("rewards", r"r_t", "", (_REWARD,), N_("reward of this token")),
    "returns": Sum("returns", r"R_t", r"A_t + V_t", (SumTerm("advantages"), SumTerm("values"))),
}
"""Every sum that a card may show, in the order of the card. A token has at most one of those for its reward: ``rewards_given`` when the
recorded reward is not what the run's settings say, as in a log of another program."""
IN_SUMS = {formula.name for formula in SUMS.values()} | {term.of for formula in SUMS.values() for term in formula.terms}
"""The quantities that a page must have as they were recorded, so that they add up there as they do here."""

SENTENCES = {
    "rloo": N_("the reward of the whole response, less the mean reward of the other responses to its prompt."),
    "grpo": N_("its score less the mean score of the responses to its prompt, over their standard deviation."),
    "dr_grpo": N_("its score less the mean score of the responses to its prompt."),
    "reinforce": N_("the reward of the whole response, less the mean reward of the batch."),
    "waiting": N_("Advantages are not computed yet: the step waits before that phase."),
    "missing": N_("What the advantage here was added up from is not recorded, or not finite."),
    "last": N_("Last token: nothing follows, so Aₜ₊₁ and Vₜ₊₁ are 0."),
}

_GREEK = {"beta": "β", "gamma": "γ", "delta": "δ", "lambda": "λ"}
_WIDE = Context(prec=60)  # room for the largest float32 and its decimals
_STEPS = {digits: Decimal(1).scaleb(-digits) for digits in range(DIGITS, MOST_DIGITS + 1)}
_BELOW = str.maketrans({"t": "ₜ", "+": "₊", "1": "₁"})


def letters(latex: str) -> str:
    """The LaTeX of a sum as plain text, such as ``γλ Aₜ₊₁``. Raises ValueError for what has no such text."""
    text = re.sub(r"\\mathrm\{(\w+)\}", r"\1", latex).replace(r"\,", " ").replace("-", "−")
    text = re.sub(r"_(\w)|_\{([^}]*)\}", lambda match: (match[1] or match[2]).translate(_BELOW), text)
    for name, letter in _GREEK.items():
        text = text.replace(f"\\{name}", letter)
    if re.search(r"[\\{}_]", text):
        raise ValueError(f"this formula has no plain text: {latex}")
    return text


def described() -> dict[str, Any]:
    """What the page needs to draw any card: the sums by name, and the sentences. It is the same for all runs."""
    sums = {}
    for name, formula in SUMS.items():
        terms = [{key: value for key, value in asdict(term).items() if value or (key == "beyond" and term.next)} for term in formula.terms]
        sums[name] = {
            "name": formula.name,
            "left": letters(formula.left),
            "right": letters(formula.right) + _(formula.note),
            "terms": terms,
        }
    return {"sums": sums, "sentences": shown(SENTENCES, SENTENCES)}


def factors(gamma: float, lam: float, kl_coef: float) -> dict[str, tuple[Decimal, str]]:
    """The value and the printed text of each factor of a term, with six significant digits: the value is what the text says.

    Those that are not finite, as gamma and lambda without a critic, are left out.
    """
    numbers = {"gamma": (gamma,), "gamma_lambda": (lam,) if gamma == 1 else (gamma, lam), "minus_beta": (-kl_coef,)}
    known = {}
    for name, parts in numbers.items():
        if np.isfinite(parts).all():
            texts = [np.format_float_positional(float(f"{part:.6g}"), trim="-") for part in parts]
            value = Decimal(1)
            for text in texts:
                value *= Decimal(text)
            known[name] = value, " × ".join(texts).replace("-", "−")
    return known


def chances(logprobs: np.ndarray) -> np.ndarray:
    """The probabilities of log-probabilities (any shape, natural logarithm), to four decimals as they are shown; NaN stays NaN."""
    with np.errstate(over="ignore"):
        return np.round(np.exp(np.asarray(logprobs, np.float64)), 4)


def log_ratio(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """log π − log π_old of each sampled token, shape (T,), in nats; None where one of them was not recorded."""
    after, sampled = arrays.get("new_logprobs"), arrays.get("logprobs")
    return None if after is None or sampled is None else after - sampled


def loss(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """−log π of each token of an example, shape (T,), in nats; None for PPO's sampled tokens, which have no such loss.

    A token that is read but not learned, as the user's turns between two answers, has NaN.
    """
    if "rewards" in arrays or "logprobs" not in arrays:
        return None
    return np.where(arrays.get("learned", True), -arrays["logprobs"], np.float32(np.nan))


def loss_advantages(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the loss took as the advantage of each token: whitened where the run whitens. Shape (0,) where it was not recorded."""
    return np.asarray(arrays.get("whitened_advantages", arrays.get("advantages", np.zeros(0))), np.float64)


def card(tokens: TokenRecord, score: float, ppo: PPOConfig) -> dict[str, Any]:
    """What the cards of a response's tokens say, a few bytes for each token. ``score`` is the response's.

    ``sums``: for each sum that some token has, the first such token and, from there on, one character for each token: the decimals that its
    terms need to add up as printed, ``~`` when even :data:`MOST_DIGITS` do not suffice, a space for a token that does not have this sum.
    ``factors``: the factors as texts. ``signs``: one character for each token, the sign of what the loss took as its advantage, a space
    where it is 0 or unknown. ``edges``: by that sign, the ratio beyond which such a token is clipped. ``moves``: what the update did to its
    probability: ``+``, ``-``, ``0`` for less than :data:`CLEAR`, a space where it is unknown. ``whitened``: the loss took whitened
    advantages. ``compared``: without a critic, the sentence that says with what the response was compared, else empty. ``missing``: the
    sentence for tokens without sums, empty where no advantage was recorded.
    """
    arrays = tokens.arrays
    known = {name: _as_sent(values) for name, values in arrays.items()}
    times = factors(tokens.gamma, tokens.lam, tokens.kl_coef)
    count = len(tokens.response_ids)
    marks_of_sum = {name: [" "] * count for name in SUMS}
    for position in range(count):
        for name in _sums_of(known, times, position, position == count - 1, score, ppo):
            marks_of_sum[name][position] = _decimals(SUMS[name], known, times, position, score)
    texts = {name: "".join(marks) for name, marks in marks_of_sum.items()}
    low, high = ppo.cliprange, ppo.cliprange_high or ppo.cliprange
    return {
        "sums": {name: [len(text) - len(text.lstrip()), text.strip()] for name, text in texts.items() if text.strip()},
        "factors": {name: text for name, (_, text) in times.items()},
        "edges": {"-": round(1 - low, 6), "+": round(1 + high, 6)},
        "signs": "".join("+" if value > 0 else "-" if value < 0 else " " for value in loss_advantages(arrays)),
        "moves": _moves(arrays),
        "whitened": ppo.has_critic and ppo.whiten_advantages,
        "compared": "" if ppo.has_critic else ppo.advantage,
        "missing": "missing" if "advantages" in arrays else "waiting" if np.isfinite(tokens.gamma) else "",
    }


def _as_sent(values: np.ndarray) -> list[float]:
    """The numbers as the page reads them: it gets the shortest decimal text of each float32."""
    return [float(text) for text in np.asarray(values, np.float32).astype(str)]


def _sums_of(
    known: Mapping[str, Sequence[float]], times: Mapping[str, Any], position: int, last: bool, score: float, ppo: PPOConfig
) -> list[str]:
    """The sums that the card of a token shows."""

    def own(*names: str) -> bool:
        return all(name in known and bool(np.isfinite(known[name][position])) for name in names)

    if not ppo.has_critic:
        return [_reward_sum(known, times, position, last, score, ppo)] if own("advantages", "rewards") else []
    if not own(*NEEDED) or "gamma_lambda" not in times or "gamma" not in times:
        return []
    return ["advantages", "deltas", _reward_sum(known, times, position, last, score, ppo), "returns"]


def _reward_sum(
    known: Mapping[str, Sequence[float]], times: Mapping[str, Any], position: int, last: bool, score: float, ppo: PPOConfig
) -> str:
    """The sum of the token's reward that the settings ask for, or ``rewards_given`` when it does not give what was recorded."""
    reward = known["rewards"][position]
    end = score if last else 0.0
    name = "rewards_in_loss" if ppo.kl_placement == "loss" else "rewards"
    if name == "rewards":
        end += float(times["minus_beta"][0]) * known["kl"][position] if "minus_beta" in times and "kl" in known else np.nan
    adds = abs(end - reward) < 1e-4 * (1 + abs(reward))  # False for NaN
    return "rewards_given" if not adds else f"{name}_last" if last else name


def _decimals(formula: Sum, known: Mapping[str, Sequence[float]], times: Mapping[str, Any], position: int, score: float) -> str:
    """With how many decimals the terms of a token's sum come nearer to its printed total than half a unit; ``~`` when they never do."""
    values = []
    for term in formula.terms:
        at = position + term.next
        value = score if term.of == "score" else known[term.of][at] if at < len(known[term.of]) else term.beyond
        if not np.isfinite(value):
            return "~"
        values.append((times[term.factor][0] if term.factor else Decimal(-1 if term.minus else 1), Decimal(value)))
    total = _rounded(Decimal(known[formula.name][position]), DIGITS)
    for digits in range(DIGITS, MOST_DIGITS + 1):
        if abs(sum((factor * _rounded(value, digits) for factor, value in values), Decimal(0)) - total) < _STEPS[DIGITS] / 2:
            return str(digits)
    return "~"


def _rounded(value: Decimal, digits: int) -> Decimal:
    """To so many decimals, halves away from 0, as the page prints numbers."""
    return value.quantize(_STEPS[digits], ROUND_HALF_UP, _WIDE)


def _moves(arrays: Mapping[str, np.ndarray]) -> str:
    if not {"logprobs", "new_logprobs"} <= arrays.keys():
        return ""
    with np.errstate(over="ignore", invalid="ignore"):
        before, after = (np.exp(np.asarray(arrays[name], np.float64)) for name in ("logprobs", "new_logprobs"))
        change = after - before
    return "".join(" " if np.isnan(value) else "0" if abs(value) < CLEAR else "+" if value > 0 else "-" for value in change)
