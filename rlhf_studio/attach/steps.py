"""From the responses of a step to what the run folder keeps. What is not known is left out, never made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlhf_studio.runs.means import ERRORS, mean_metrics, part_metrics
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, TokenRecord
from rlhf_studio.token_texts import GrowingText, remembering, words_of

UNKNOWN_ID = -1


@dataclass
class Response:
    """One response with all that is known of it; what is None, NaN or missing is unknown.

    Attributes:
        prompt_ids, response_ids: int32, shapes (P,) and (T,).
        prompt_pieces, response_pieces: the text of each token, where the caller has it.
        arrays: float32, shape (T,), by the names of :data:`~rlhf_studio.runs.records.TOKEN_QUANTITIES`.
        parts: the weighted reward of each function that gave one.
        score: their sum.
    """

    prompt: str | None = None
    response: str | None = None
    prompt_ids: np.ndarray | None = None
    response_ids: np.ndarray | None = None
    prompt_pieces: list[str] | None = None
    response_pieces: list[str] | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    score: float = math.nan
    gold: float | None = None
    stopped: bool | None = None

    @property
    def length(self) -> int | None:
        """How many tokens it has; None where only its text is known."""
        known = self.response_ids if self.response_ids is not None else self.response_pieces
        return None if known is None else len(known)

    @property
    def kl(self) -> float:
        """The sum of log-probability differences to the reference, in nats; NaN where they are not known."""
        if not {"logprobs", "ref_logprobs"} <= self.arrays.keys():
            return math.nan
        return float(np.sum(self.arrays["logprobs"].astype(np.float64) - self.arrays["ref_logprobs"].astype(np.float64)))


class TokenTexts:
    """The texts of tokens, by the trainer's own tokenizer (anything with ``decode``); without one there are none."""

    def __init__(self, tokenizer: Any | None):
        self._tokenizer: Any = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor for pictures and text
        self._decoder = remembering(self._tokenizer)

    def __bool__(self) -> bool:
        return self._tokenizer is not None

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)) if self._tokenizer is not None else ""

    def pieces(self, prompt_ids: Sequence[int], response_ids: Sequence[int]) -> tuple[list[str], list[str]]:
        """The text that each token adds."""
        text = GrowingText(self._decoder)
        pieces = [text.add(int(token)) for token in (*prompt_ids, *response_ids)]
        return pieces[: len(prompt_ids)], pieces[len(prompt_ids) :]


def step_record(
    step: int,
    responses: Sequence[Response],
    metrics: Mapping[str, float],
    texts: TokenTexts,
    *,
    most: int,
    kl_coef: float = math.nan,
    estimator: str = "k1",
    ratio_level: str = "token",
    events: Sequence[EventRecord] = (),
) -> StepRecord:
    """A step's record: the first ``most`` responses with every token's numbers, and metrics over all of them.

    ``estimator``: of the KL of tokens, by the names of ``ppo.kl_estimator``. "full" needs whole distributions, so then there is none.
    ``ratio_level``: as ``ppo.ratio_level``, what the ratio of a token is.
    What ``metrics`` gives has the last word over what follows from the responses; beside a mean of its own stands no error of ours.
    """
    rollouts = [_rollout(row, response, texts, kl_coef, estimator, ratio_level) for row, response in enumerate(responses[:most])]
    ours = metrics_of(responses)
    for name in ERRORS.keys() & metrics.keys():
        ours.pop(ERRORS[name], None)
    return StepRecord(step, {**ours, **metrics}, rollouts, events=list(events))


def _rollout(row: int, response: Response, texts: TokenTexts, kl_coef: float, estimator: str, ratio_level: str) -> RolloutRecord:
    tokens = _tokens(response, texts, kl_coef, estimator, ratio_level)
    prompt, text = response.prompt, response.response
    if prompt is None:
        prompt = texts.text(_listed(response.prompt_ids)) or "".join(tokens.prompt_pieces if tokens else [])
    if text is None:
        text = texts.text(_listed(response.response_ids)) or "".join(tokens.response_pieces if tokens else [])
    return RolloutRecord(
        sample=row,
        prompt=prompt,
        response=text,
        score=response.score,
        parts=response.parts,
        gold=response.gold,
        kl=response.kl,
        length=len(tokens.response_pieces if tokens is not None else _listed(response.response_ids)),
        stopped=response.stopped,
        tokens=tokens,
    )


def _listed(ids: np.ndarray | None) -> list[int]:
    return [] if ids is None else ids.tolist()


def _tokens(response: Response, texts: TokenTexts, kl_coef: float, estimator: str, ratio_level: str) -> TokenRecord | None:
    """The tokens with their numbers; None where no text of a token is known."""
    known = _pieces(response, texts)
    if known is None:
        return None
    (prompt_pieces, pieces), arrays = known, dict(response.arrays)
    if {"logprobs", "ref_logprobs"} <= arrays.keys() and estimator in _ESTIMATORS:
        arrays.setdefault("kl", _ESTIMATORS[estimator](arrays).astype(np.float32))
    if {"logprobs", "new_logprobs"} <= arrays.keys():
        moved = np.clip(arrays["new_logprobs"] - arrays["logprobs"], -80, 80)
        arrays.setdefault("ratio", np.exp(np.full_like(moved, _mean(moved)) if ratio_level == "sequence" else moved))
    count = len(pieces)
    none_ids, none = np.zeros((count, 0), np.int32), np.zeros((count, 0), np.float32)
    return TokenRecord(
        prompt_ids=_ids(response.prompt_ids, len(prompt_pieces)),
        response_ids=_ids(response.response_ids, count),
        prompt_pieces=prompt_pieces,
        response_pieces=pieces,
        arrays=arrays,
        top_ids=none_ids,
        top_logprobs=none,
        ref_top_ids=none_ids,
        ref_top_logprobs=none,
        top_pieces={},
        gamma=math.nan,
        lam=math.nan,
        kl_coef=kl_coef,
    )


def _pieces(response: Response, texts: TokenTexts) -> tuple[list[str], list[str]] | None:
    """The texts of the tokens of prompt and response, the words of a response that is a text alone; None where there are only ids."""
    prompt_pieces, pieces = response.prompt_pieces, response.response_pieces
    if pieces is None and response.response_ids is None:
        pieces = words_of(response.response or "")
    elif pieces is None:
        if not texts:
            return None
        own, pieces = texts.pieces(_listed(response.prompt_ids), _listed(response.response_ids))
        prompt_pieces = own if prompt_pieces is None else prompt_pieces
    return prompt_pieces or [], pieces


def _ids(ids: np.ndarray | None, count: int) -> np.ndarray:
    return np.full(count, UNKNOWN_ID, np.int32) if ids is None else ids


def metrics_of(responses: Sequence[Response]) -> dict[str, float]:
    """Means over the responses of which a number is known; no metric of which none is.

    The standard errors of scores count prompts, not responses; there are none where a response's prompt is not known.
    """
    if not responses:
        return {}
    scores = np.array([response.score for response in responses], np.float64)
    kls = np.array([response.kl for response in responses], np.float64)
    lengths = np.array([math.nan if response.length is None else response.length for response in responses], np.float64)
    stopped = np.array([math.nan if response.stopped is None else not response.stopped for response in responses], np.float64)
    gold = np.array([math.nan if response.gold is None else response.gold for response in responses], np.float64)
    metrics = {
        "objective/kl": _mean(kls),
        "objective/kl_k3": _mean(np.array([_k3(own.arrays).sum() for own in responses if not math.isnan(own.kl)])),
        "tokens/response_length": _mean(lengths),
        "tokens/cut_off": _mean(stopped),
        "policy/entropy_avg": _token_mean(responses, "entropy"),
        "val/ratio": _ratio(responses),
        "objective/entropy": _mean(
            np.array([-response.arrays["logprobs"].sum() for response in responses if "logprobs" in response.arrays])
        ),
    }
    metrics |= part_metrics([response.parts for response in responses])
    prompts = [_prompt_of(response) for response in responses]
    for name, values in (("objective/scores", scores), ("gold/score", gold)):
        rows = np.flatnonzero(~np.isnan(values))
        metrics |= mean_metrics(name, values[rows], None if None in prompts else [prompts[row] for row in rows])
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _prompt_of(response: Response) -> Hashable | None:
    """What tells a response's prompt from others; None where it is not known."""
    if response.prompt is not None:
        return response.prompt
    if response.prompt_ids is not None:
        return tuple(response.prompt_ids.tolist())
    return None if response.prompt_pieces is None else "".join(response.prompt_pieces)


def _difference(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    own: np.ndarray = arrays["logprobs"].astype(np.float64) - arrays["ref_logprobs"].astype(np.float64)
    return own


def _k3(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    difference = np.clip(_difference(arrays), -80, 80)
    own: np.ndarray = np.expm1(-difference) + difference
    return own.astype(np.float32)


_ESTIMATORS: dict[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]] = {
    "k1": _difference,
    "k2": lambda arrays: _difference(arrays) ** 2 / 2,
    "k3": _k3,
    "abs": lambda arrays: np.abs(_difference(arrays)),
}
"""Of log π - log π_ref at a sampled token (http://joschu.net/blog/kl-approx.html), as :mod:`rlhf_studio.ppo.kl` has them for tensors."""


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _token_mean(responses: Sequence[Response], name: str) -> float:
    arrays = [response.arrays[name] for response in responses if name in response.arrays]
    return _mean(np.concatenate(arrays).astype(np.float64)) if arrays else math.nan


def _ratio(responses: Sequence[Response]) -> float:
    pairs = [response.arrays for response in responses if {"logprobs", "new_logprobs"} <= response.arrays.keys()]
    return _mean(np.concatenate([np.exp(np.clip(own["new_logprobs"] - own["logprobs"], -80, 80)) for own in pairs])) if pairs else math.nan
