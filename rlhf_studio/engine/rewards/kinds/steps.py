"""Scores of the steps inside a response: which token earns which."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError


def early_scores(scores: Sequence[float | list[float]], episodes: Episodes) -> Tensor | None:
    """(B, T) what each token before the last one earns; 0 elsewhere. The rest of a response's sum is left for its last token.

    The lists have one number for each token of their response, or, where that is not so for all of them, one for each line: the token that
    ends the line earns it. The end token belongs to the last line. A line break at the very end may begin an empty line or not.

    Args:
        scores: for each response one number, or one for each step.
        episodes: with the pieces of the responses; where they are not known nothing can be told apart, and None is returned.

    Raises:
        ComponentError: a list has another length.
    """
    if episodes.pieces is None:
        return None
    early = torch.zeros(len(scores), max(map(len, episodes.pieces), default=0))
    by_tokens = all(len(given) == len(pieces) for given, pieces in zip(scores, episodes.pieces, strict=True) if isinstance(given, list))
    for row, (given, pieces) in enumerate(zip(scores, episodes.pieces, strict=True)):
        if isinstance(given, list):
            ends = list(range(len(pieces))) if by_tokens else _ends_of_lines(len(given), pieces, episodes.stopped[row], row)
            for score, token in zip(given, ends, strict=True):
                early[row, token] += score if token < len(pieces) - 1 else 0.0
    return early


def _ends_of_lines(count: int, pieces: list[str], stopped: bool, row: int) -> list[int]:
    """The token that ends each of ``count`` lines; with ``stopped`` the last token is an end token, whose text is no text."""
    text = pieces[: len(pieces) - stopped]
    newlines = [token for token, piece in enumerate(text) for _ in range(piece.count("\n"))]
    ended = bool(newlines) and "".join(text).endswith("\n")
    if count == len(newlines) and ended:
        return newlines
    if count != len(newlines) + 1:
        lines = len(newlines) + (not ended)
        raise ComponentError(f"it gave {count} scores for a response of {len(pieces)} tokens and {lines} lines", row)
    return [*newlines, len(pieces) - 1]
