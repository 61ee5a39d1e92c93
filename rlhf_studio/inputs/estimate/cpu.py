"""Numbers that the engine on a CPU and the estimate of its memory must agree on: how work is divided, when weights are prepacked."""

from __future__ import annotations

MOST_LANES = 4  # threads that take episodes of their own; more of them would mostly wait for Python's one lock
LEAST_ROWS = 8  # episodes that are worth such a lane of their own
LARGE_MODEL = 50_000_000  # weights: from here on a few episodes keep a lane busy
LEAST_ROWS_OF_LARGE = 2
LARGEST_SHARE = 0.1  # of a large model's weights that may learn where lanes get so few episodes: each lane holds their gradients
LEAST_NUMBERS = 1 << 19  # in a matrix that sampling prepacks: smaller ones are multiplied as fast without it
LEAST_TOKENS = 16  # of a response: for shorter ones prepacking costs more time than it saves
MEMORY_DIVISOR = 8  # prepacked weights may take this part of the machine's memory: one eighth


def least_rows(weights: int, learning: int = 0) -> int:
    """Episodes that are worth a lane of their own in a pass over whole texts.

    Threads that divide every operation among them wait for each other after each, and for long beside another program. So lanes of a
    large model get few episodes, which are work enough for one thread. But each lane of an update holds gradients of its own.

    Args:
        weights: of the model.
        learning: those of them for which gradients are computed in this pass.
    """
    return LEAST_ROWS_OF_LARGE if weights >= LARGE_MODEL and learning <= LARGEST_SHARE * weights else LEAST_ROWS


def prepacks_weights(needed: int, total: int | None, tokens: int) -> bool:
    """Whether sampling on a CPU prepacks the weights: makes a second copy of them in a layout that multiplies faster.

    Args:
        needed: bytes of that copy.
        total: bytes of the machine's memory; None when unknown.
        tokens: length of the responses.
    """
    return tokens >= LEAST_TOKENS and (total is None or needed <= total // MEMORY_DIVISOR)
