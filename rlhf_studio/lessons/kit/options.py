"""Three numbers to choose from, for a question whose answer is a number."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.lessons.kit.scene import Numbers, Word

PLACES = ("first", "second", "third")


def options(right: float, wrong: Sequence[float], place: int) -> Numbers:
    """``first``, ``second`` and ``third`` are the right number and two wrong ones; ``answer`` is the word of the right one's place.

    ``place`` says where the right one stands; take it from a control, so that it differs from question to question.
    """
    if len(wrong) != len(PLACES) - 1:
        raise ValueError(f"there are {len(PLACES) - 1} wrong numbers beside the right one, got {len(wrong)}")
    numbers = list(wrong)
    numbers.insert(place % len(PLACES), right)
    return {**dict(zip(PLACES, numbers, strict=True)), "answer": Word(PLACES[place % len(PLACES)])}
