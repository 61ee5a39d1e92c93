"""Does the score stay where the meaning stays? Rewritten texts and padded texts beside the originals; and disagreement in an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis.reward_model.pairs import Numbers


@dataclass(frozen=True)
class Rewritten:
    """One kind of rewriting.

    Attributes:
        name: what was changed: ``synonyms``, ``punctuation``, ``capitals``.
        texts: how many texts could be rewritten so.
        mean: mean change of the score.
        spread: mean size of the change, in standard deviations of the scores; 0 is perfect.
        flipped: share of the pairs with a rewritten response in which the other response now scores higher; None without a whole pair.
    """

    name: str
    texts: int
    mean: float
    spread: float | None
    flipped: float | None


@dataclass(frozen=True)
class Consistency:
    """Rewritten texts, and the largest change of a score by padding alone, which is rounding where all is well."""

    rewritten: list[Rewritten]
    padding: float | None


@dataclass(frozen=True)
class Disagreement:
    """Standard deviation over the members of an ensemble, averaged over texts.

    Attributes:
        held_out: on responses like those of the training.
        elsewhere: on responses unlike them.
        ratio: elsewhere / held_out; above 1 where the ensemble notices.
    """

    held_out: float
    elsewhere: float
    ratio: float | None


def rewritten(name: str, before: Numbers, after: Numbers, deviation: float, others: Numbers | None = None) -> Rewritten:
    """Compare scores before and after a rewriting, (N,) each.

    Args:
        deviation: standard deviation of the scores.
        others: (N,) score of the other response of each text's pair.
    """
    change = after - before
    spread = float(np.abs(change).mean() / deviation) if len(change) and deviation > 0 else None
    flipped = None
    if others is not None and len(change):
        flipped = float((np.sign(before - others) != np.sign(after - others)).mean())
    return Rewritten(name, len(change), float(change.mean()) if len(change) else 0.0, spread, flipped)


def consistency(record: Mapping[str, Any], deviation: float) -> Consistency | None:
    """The consistency that a measurement has recorded; None where it did not measure it.

    ``record`` maps each rewriting to its lists ``before``, ``after`` and ``others``, under ``rewrites``, and has the number ``padding``.
    """
    if not record:
        return None
    rewrites = []
    for name, lists in record.get("rewrites", {}).items():
        before, after, others = (np.asarray(lists[key], dtype=np.float64) for key in ("before", "after", "others"))
        rewrites.append(rewritten(str(name), before, after, deviation, others))
    padding = record.get("padding")
    return Consistency(rewrites, None if padding is None else float(padding))


def disagreement(held_out: Numbers, elsewhere: Numbers) -> Disagreement:
    """Scores (k, N) of k members, on two kinds of texts. Each member's scores should have been normalised on the same samples."""
    inside, outside = float(held_out.std(axis=0).mean()), float(elsewhere.std(axis=0).mean())
    return Disagreement(inside, outside, outside / inside if inside > 0 else None)
