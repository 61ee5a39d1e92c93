"""Three numbers to choose from, for a question whose answer is a number."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.lessons.kit.scene import Numbers, Word

PLACES = ("first", "second", "third")


def options(right: float, wrong: Sequence[float], place: int, digits: int = 2) -> Numbers:
    """``first``, ``second`` and ``third`` are the right number and two wrong ones; ``answer`` is the word of the right one's place.

    ``place`` says where the right one stands; take it from a control, so that it differs from question to question. ``digits`` are the
    decimals that the text shows. No two numbers are shown alike: a wrong one that would be is moved up, by one in its last digit.
    Raises ValueError when there are not two wrong numbers.
    """
    if len(wrong) != len(PLACES) - 1:
        raise ValueError(f"there are {len(PLACES) - 1} wrong numbers beside the right one, got {len(wrong)}")
    kept, unit = [right], 10.0**-digits
    for one in wrong:
        while any(round(one, digits) == round(other, digits) for other in kept):
            one += unit
        kept.append(one)
    numbers = kept[1:]
    numbers.insert(place % len(PLACES), right)
    return {**dict(zip(PLACES, numbers, strict=True)), "answer": Word(PLACES[place % len(PLACES)])}
