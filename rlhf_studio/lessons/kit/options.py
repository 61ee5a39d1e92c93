"""Three numbers to choose from, for a question whose answer is a number."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.lessons.kit.scene import Numbers, Word

POSITIONS = ("first", "second", "third")


def options(right: float, wrong: Sequence[float], position: int, digits: int = 2) -> Numbers:
    """``first``, ``second`` and ``third`` are the right number and two wrong ones; ``answer`` is the word of the right one.

    ``position`` says where the right one stands; take it from a control, so that it differs from question to question. ``digits`` are the
    decimals that the text shows. No two numbers look alike: a wrong number that would is raised by one in its last digit.
    Raises ValueError when there are not two wrong numbers.
    """
    if len(wrong) != len(POSITIONS) - 1:
        raise ValueError(f"there are {len(POSITIONS) - 1} wrong numbers beside the right one, got {len(wrong)}")
    numbers_apart, unit = [right], 10.0**-digits
    for number in wrong:
        while any(round(number, digits) == round(other, digits) for other in numbers_apart):
            number += unit
        numbers_apart.append(number)
    numbers = numbers_apart[1:]
    numbers.insert(position % len(POSITIONS), right)
    return {**dict(zip(POSITIONS, numbers, strict=True)), "answer": Word(POSITIONS[position % len(POSITIONS)])}
