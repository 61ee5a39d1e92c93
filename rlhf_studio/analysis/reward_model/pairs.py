"""Held-out pairs with their scores: what a measurement records, and what all measures here are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
DIGITS = 6  # significant digits that are stored


@dataclass(frozen=True)
class ScoredPairs:
    """N pairs, each with the scores of both responses.

    Attributes:
        chosen, rejected: (N,) scores of the preferred and of the other response.
        chosen_tokens, rejected_tokens: (N,) lengths of the responses in tokens, or of the texts where only these are known.
        numbers: (N,) the row of the data that each pair comes from.
        ties: (N,) bool: people found both equally good; such a pair has no right answer and counts in no accuracy.
        groups: (N,) a group's name for each pair, empty where there is none.
        chosen_gold, rejected_gold: (N,) the gold reward of each response, in a world that has one; None elsewhere.
        scale: what the scores must be multiplied by for the Bradley-Terry model, P(chosen) = sigmoid(scale · (chosen − rejected)). It is 1
            after training; after normalising it is the standard deviation that the scores were divided by.
    """

    chosen: Numbers
    rejected: Numbers
    chosen_tokens: Numbers
    rejected_tokens: Numbers
    numbers: NDArray[np.int64]
    ties: NDArray[np.bool_]
    groups: tuple[str, ...]
    chosen_gold: Numbers | None = None
    rejected_gold: Numbers | None = None
    scale: float = 1.0

    @property
    def margins(self) -> Numbers:
        """(N,) chosen − rejected, on the scale of the Bradley-Terry model."""
        return self.scale * (self.chosen - self.rejected)

    def without_ties(self) -> ScoredPairs:
        """The pairs of which one response was preferred."""
        return self.where(~self.ties)

    def where(self, selected: NDArray[np.bool_]) -> ScoredPairs:
        """The pairs for which ``selected`` (N,) is true."""
        gold = [None if values is None else values[selected] for values in (self.chosen_gold, self.rejected_gold)]
        return ScoredPairs(
            self.chosen[selected],
            self.rejected[selected],
            self.chosen_tokens[selected],
            self.rejected_tokens[selected],
            self.numbers[selected],
            self.ties[selected],
            tuple(group for group, keep in zip(self.groups, selected, strict=True) if keep),
            gold[0],
            gold[1],
            self.scale,
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def record(self) -> dict[str, Any]:
        """As plain data for JSON; numbers keep six digits."""
        optional = {"chosen_gold": self.chosen_gold, "rejected_gold": self.rejected_gold}
        return {
            "chosen": _rounded(self.chosen),
            "rejected": _rounded(self.rejected),
            "chosen_tokens": self.chosen_tokens.astype(int).tolist(),
            "rejected_tokens": self.rejected_tokens.astype(int).tolist(),
            "numbers": self.numbers.tolist(),
            "ties": np.flatnonzero(self.ties).tolist(),
            "groups": list(self.groups) if any(self.groups) else [],
            "scale": self.scale,
            **{name: _rounded(values) for name, values in optional.items() if values is not None},
        }


def _rounded(values: Numbers) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def normalised_record(record: Mapping[str, Any], mean: float, std: float) -> dict[str, Any]:
    """A measurement's record after every score s has become (s − mean) / std. Probabilities do not change."""

    def moved(scores: Sequence[float]) -> list[float]:
        return _rounded((_numbers(scores) - mean) / std)

    pairs = record["pairs"]
    done = {**record, "pairs": {**pairs, **{side: moved(pairs[side]) for side in ("chosen", "rejected")}, "scale": pairs["scale"] * std}}
    if steady := record.get("consistency"):
        rewrites = {name: {side: moved(scores) for side, scores in lists.items()} for name, lists in steady["rewrites"].items()}
        done["consistency"] = {**steady, "rewrites": rewrites, "padding": steady["padding"] / std}
    return done


def scored_pairs(record: Mapping[str, Any]) -> ScoredPairs:
    """What :meth:`ScoredPairs.record` has written. Raises ValueError when it is something else."""
    try:
        count = len(record["chosen"])
        ties = np.zeros(count, dtype=bool)
        ties[[int(index) for index in record.get("ties", [])]] = True
        pairs = ScoredPairs(
            chosen=_numbers(record["chosen"]),
            rejected=_numbers(record["rejected"]),
            chosen_tokens=_numbers(record["chosen_tokens"]),
            rejected_tokens=_numbers(record["rejected_tokens"]),
            numbers=np.asarray(record.get("numbers") or range(count), dtype=np.int64),
            ties=ties,
            groups=tuple(str(group) for group in record.get("groups") or [""] * count),
            chosen_gold=_numbers(record["chosen_gold"]) if "chosen_gold" in record else None,
            rejected_gold=_numbers(record["rejected_gold"]) if "rejected_gold" in record else None,
            scale=float(record.get("scale", 1.0)),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"these are no scored pairs: {error}") from error
    lengths = {
        len(values) for values in (pairs.chosen, pairs.rejected, pairs.chosen_tokens, pairs.rejected_tokens, pairs.numbers, pairs.groups)
    }
    if len(lengths) > 1:
        raise ValueError(f"these are no scored pairs: their columns have unlike lengths ({', '.join(map(str, sorted(lengths)))})")
    return pairs


def _numbers(values: Sequence[Any]) -> Numbers:
    return np.asarray(values, dtype=np.float64)
