"""How the engine divides a CPU's work, and when sampling prepacks weights: the estimate of memory counts on the same numbers."""

from __future__ import annotations

MOST_LANES = 4  # threads of an engine on a CPU that take episodes of their own: they take turns for Python's own lock
LEAST_ROWS = 8  # episodes that are worth such a lane of their own
LEAST_NUMBERS = 1 << 19  # in a matrix that sampling on a CPU lays out anew: smaller ones are multiplied as fast as they lie
LEAST_TOKENS = 16  # of a response: before that, laying out costs more than it saves
MEMORY_SHARE = 8  # at most this part of the machine's memory is spent on it


def prepacks_weights(needed: int, total: int | None, tokens: int) -> bool:
    """Whether sampling on a CPU makes a second layout of the weights, for responses of ``tokens``.

    ``needed`` and ``total``: bytes of that layout and of the machine's memory.
    """
    return tokens >= LEAST_TOKENS and (total is None or needed <= total // MEMORY_SHARE)
