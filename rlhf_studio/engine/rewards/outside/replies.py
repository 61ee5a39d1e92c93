"""Checks of the scores that a person's function or a scoring server returns: nothing in them is trusted before."""

from __future__ import annotations

import math
import sys
from typing import Any

from rlhf_studio.engine.rewards.errors import ComponentError

BYTES_PER_SCORE, SPARE_BYTES = 64, 20_000


def most_bytes(count: int) -> int:
    """How long the answer with ``count`` scores may be."""
    return SPARE_BYTES + BYTES_PER_SCORE * count


def checked_scores(answer: dict[str, Any], count: int) -> list[float]:
    """``answer["scores"]`` as ``count`` finite floats. Raises :class:`ComponentError`."""
    return [checked_number(score, row) for row, score in enumerate(_list_of_scores(answer, count))]


def checked_steps(answer: dict[str, Any], count: int) -> list[float | list[float]]:
    """As :func:`checked_scores`, where each may also be a list of floats: one for each step of a response."""
    return [
        [checked_number(each, row) for each in score] if isinstance(score, list) and score else checked_number(score, row)
        for row, score in enumerate(_list_of_scores(answer, count))
    ]


def _list_of_scores(answer: dict[str, Any], count: int) -> list[Any]:
    if "error" in answer:
        row = answer.get("row")
        raise ComponentError(str(answer["error"])[:1000], row if isinstance(row, int) and 0 <= row < count else None)
    scores = answer.get("scores")
    if not isinstance(scores, list):
        raise ComponentError('its answer holds no list "scores"')
    if len(scores) != count:
        raise ComponentError(f"it gave {len(scores)} scores for {count} responses")
    return scores


def checked_number(score: Any, row: int) -> float:
    """The score of a row as a finite float. Raises :class:`ComponentError`."""
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ComponentError(f"it gave {str(score)[:100]!r}, which is not a number", row)
    if abs(score) > sys.float_info.max or not math.isfinite(score):
        raise ComponentError(f"it gave {str(score)[:100]}, which is not a finite number", row)
    return float(score)
