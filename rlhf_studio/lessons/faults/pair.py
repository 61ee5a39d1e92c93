"""Two recorded runs beside each other: numbers, curves, and the first token in which they differ. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.lessons.faults.experiment import WHICH, Experiment
from rlhf_studio.lessons.kit import Numbers, Picture, Series, Word, ledger, line
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import TokenRecord

METRICS = {
    "score": "objective/scores",
    "gold": "gold/score",
    "kl": "objective/kl",
    "clip": "policy/clipfrac_avg",
    "moved": "policy/approxkl_avg",
    "first_ratio": "policy/first_log_ratio",
    "value": "val/values_mean",
    "value_loss": "loss/value_avg",
    "explained": "val/explained_variance",
    "length": "tokens/response_length",
    "entropy": "policy/entropy_avg",
    "gradient": "optim/grad_norm",
}
"""The metrics that texts and pictures use, by short name. The page draws any of them as two curves."""

LAST = 5
"""So many steps at the end of a run are averaged."""
BEFORE, BEHIND = 2, 4
"""Tokens that are shown beside the one in which the runs differ."""
DIFFERENT = 1e-3
"""Numbers of one token that differ by less differ by rounding."""
MARGIN = 0.05  # of a picture's height, above and below the curves


@dataclass(frozen=True)
class Difference:
    """A token in which two runs differ, see :func:`first_difference`.

    Attributes:
        step, sample: of the recorded response.
        position: of the token in it, from 0.
        pieces: the response's tokens.
        first, second: the quantity at each token of the response, in the two runs.
    """

    step: int
    sample: int
    position: int
    pieces: list[str]
    first: list[float]
    second: list[float]

    @property
    def size(self) -> float:
        """How far the two numbers are apart."""
        return abs(self.first[self.position] - self.second[self.position])


class Pair:
    """The records of the two runs of an experiment. Both have at least one step.

    Raises StoreError where one of them cannot be read, ValueError where one has no step.
    """

    def __init__(self, experiment: Experiment, first: RunReader, second: RunReader):
        self.experiment, self._readers = experiment, {"first": first, "second": second}
        self._columns = {which: self._readers[which].columns(METRICS.values()) for which in WHICH}
        if any(not len(steps) for steps, _ in self._columns.values()):
            raise ValueError("a run has no step yet")
        self.difference = first_difference(first, second, experiment.token)

    def numbers(self) -> Numbers:
        """All numbers by name.

        For each metric ``gold``: ``gold_first`` and ``gold_second`` are the means over the last steps, ``gold_first_start`` and
        ``gold_second_start`` are of the first step, ``gold_change`` is the second mean minus the first one. Those that a run has not
        recorded are missing. ``answer`` is the word of the question's answer. Where there is a token in which the runs differ, it is
        described by ``token_step``, ``token_number`` (from 1), ``token_text``, ``token_first`` and ``token_second``.
        """
        numbers: Numbers = {"seed": self._readers["first"].config().engine.seed}
        for which in WHICH:
            steps, columns = self._columns[which]
            numbers[f"steps_{which}"] = int(steps[-1])
            for short, metric in METRICS.items():
                values = columns[metric]
                numbers |= _if_finite(f"{short}_{which}", _mean(values[-LAST:]))
                numbers |= _if_finite(f"{short}_{which}_start", float(values[0]))
                numbers |= _if_finite(f"{short}_{which}_largest", float(np.nanmax(values)) if np.isfinite(values).any() else math.nan)
        for short in METRICS:
            if f"{short}_first" in numbers and f"{short}_second" in numbers:
                numbers[f"{short}_change"] = numbers[f"{short}_second"] - numbers[f"{short}_first"]
        numbers["answer"] = Word(self._answer(numbers))
        return numbers | self._token()

    def _answer(self, numbers: Numbers) -> str:
        change = numbers.get(f"{self.experiment.metric}_change")
        if change is None or abs(change) < self.experiment.margin:
            return "same"
        return "higher" if change > 0 else "lower"

    def _token(self) -> Numbers:
        difference = self.difference
        if difference is None:
            return {}
        return {
            "token_step": difference.step,
            "token_sample": difference.sample + 1,
            "token_number": difference.position + 1,
            "token_text": difference.pieces[difference.position].strip() or difference.pieces[difference.position],
            "token_first": difference.first[difference.position],
            "token_second": difference.second[difference.position],
        }

    def picture(self, name: str) -> Picture:
        """``token``, the two runs' numbers around the token in which they differ; or a metric by its short name. Raises KeyError."""
        if name != "token":
            return self._curves(name)
        difference = self.difference
        if difference is None:
            return ledger([], {Word("first"): [], Word("second"): []})
        low = max(difference.position - BEFORE, 0)
        near = slice(low, low + BEFORE + BEHIND + 1)
        rows: dict[str, Sequence[float | int | None | str]] = {
            Word("first"): [*_plain(difference.first[near])],
            Word("second"): [*_plain(difference.second[near])],
        }
        return ledger(difference.pieces[near], rows, at=difference.position - low, digits=3)

    def _curves(self, short: str) -> Picture:
        tones = {"first": "value", "second": "clip"}
        series = []
        for which in WHICH:
            steps, columns = self._columns[which]
            series.append(Series(Word(which), steps.tolist(), _plain(columns[METRICS[short]].tolist()), tones[which]))
        values = [y for curve in series for y in curve.y if y is not None] or [0.0]
        low, high = min(values), max(values)
        edge = (high - low or 1.0) * MARGIN
        last = max(series[0].x[-1], series[1].x[-1])
        return line(series, x=Word("step"), y=Word(short), x_range=(1, max(last, 2)), y_range=(low - edge, high + edge))


def first_difference(first: RunReader, second: RunReader, quantity: str) -> Difference | None:
    """A recorded token at which a quantity of the two runs differs by more than rounding, in the first step where there is one.

    In each response it is the first such token; of the step's responses the one where the difference is largest. Only responses with the
    same tokens up to there are compared, so the search ends where the texts part. None where nothing differs.
    """
    for step in sorted(set(first.rollout_steps()) & set(second.rollout_steps())):
        samples = range(min(len(first.rollouts(step)), len(second.rollouts(step))))
        by_sample = (_difference(first, second, quantity, step, sample) for sample in samples)
        differences = [difference for difference in by_sample if difference is not None]
        if differences:
            return max(differences, key=lambda difference: difference.size)
    return None


def _difference(first: RunReader, second: RunReader, quantity: str, step: int, sample: int) -> Difference | None:
    first_tokens, second_tokens = first.rollout(step, sample).tokens, second.rollout(step, sample).tokens
    if first_tokens is None or second_tokens is None or quantity not in first_tokens.arrays or quantity not in second_tokens.arrays:
        return None
    position = _differs_at(first_tokens, second_tokens, quantity)
    if position is None:
        return None
    rows = [tokens.arrays[quantity].astype(float).tolist() for tokens in (first_tokens, second_tokens)]
    return Difference(step, sample, position, list(first_tokens.response_pieces), rows[0], rows[1])


def _differs_at(first: TokenRecord, second: TokenRecord, quantity: str) -> int | None:
    """The first position where the quantity differs, in responses that are equal before it. A value belongs to the tokens before it."""
    length = min(len(first.response_ids), len(second.response_ids))
    parted = [position for position in range(length) if first.response_ids[position] != second.response_ids[position]]
    end = min(parted[0] + (quantity == "values") if parted else length, length)
    change = np.abs(first.arrays[quantity][:end].astype(float) - second.arrays[quantity][:end].astype(float))
    different = np.flatnonzero(change > DIFFERENT)
    return int(different[0]) if len(different) else None


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def _if_finite(name: str, value: float) -> Numbers:
    return {name: value} if math.isfinite(value) else {}


def _plain(values: Sequence[float]) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
