"""Scores of the steps inside a response: which token earns which."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError


def early_scores(scores: Sequence[float | list[float]], episodes: Episodes) -> Tensor | None:
    """(B, T) what each token before the last one earns; 0 elsewhere. The rest of a response's sum is left for its last token.

    A list has one number for each token of the response, or one for each of its lines: the token that ends the line earns it.

    Args:
        scores: for each response one number, or one for each step.
        episodes: with the pieces of the responses; where they are not known nothing can be told apart, and None is returned.

    Raises:
        ComponentError: a list has another length.
    """
    if episodes.pieces is None:
        return None
    early = torch.zeros(len(scores), max(map(len, episodes.pieces), default=0))
    for row, (given, pieces) in enumerate(zip(scores, episodes.pieces, strict=True)):
        if isinstance(given, list):
            for score, token in zip(given, _ends_of_steps(len(given), pieces, row), strict=True):
                early[row, token] += score if token < len(pieces) - 1 else 0.0
    return early


def _ends_of_steps(count: int, pieces: list[str], row: int) -> list[int]:
    """The token that ends each of ``count`` steps."""
    if count == len(pieces):
        return list(range(count))
    newlines = [token for token, piece in enumerate(pieces) for _ in range(piece.count("\n"))]
    lines = [*newlines, len(pieces) - 1]
    if count == len(newlines) and newlines[-1] == len(pieces) - 1:  # the last line is ended, and nothing follows
        return newlines
    if count != len(lines):
        raise ComponentError(f"it gave {count} scores for a response of {len(pieces)} tokens and {len(lines)} lines", row)
    return lines
