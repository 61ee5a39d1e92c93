"""Items to rate from the answers of an evaluation run: of one policy, of two of its checkpoints, of several runs, or of a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from rlhf_studio.runs.evaluation.answers import Answer, disagreement
from rlhf_studio.runs.feedback.records import MOST_RESPONSES, Kind, NewItem

LONGEST_SOURCE = 200  # characters of a policy's name


def items_of(answers: Sequence[Answer], kind: Kind) -> tuple[list[NewItem], int]:
    """The items, prompt by prompt, and how many there would be beside them but for empty or equal responses.

    A pair is two policies' answers of the same draw, or, where one policy answered, each two of its draws that follow each other. A
    ranking has all answers to a prompt, at most :data:`MOST_RESPONSES`. ``uncertainty`` decides where a task asks the most uncertain first.
    With an ensemble it is how far the models lie apart over the difference of the best and the worst answer, or over the one answer; else
    minus the distance of the highest from the lowest score, so that responses which the reward model can hardly tell apart come first.
    """
    by_prompt: dict[int, list[Answer]] = {}
    for answer in sorted(answers, key=lambda answer: answer.place):
        by_prompt.setdefault(answer.place, []).append(answer)
    items, left_out = [], 0
    for own in by_prompt.values():
        for group in _groups(own, kind):
            if len({answer.response for answer in group}) < len(group) or not all(answer.response.strip() for answer in group):
                left_out += 1
            else:
                items.append(_item(group))
    return items, left_out


def _groups(answers: list[Answer], kind: Kind) -> Iterator[list[Answer]]:
    """The answers to one prompt that are shown together."""
    if kind == "rating":
        yield from ([answer] for answer in answers)
    elif kind == "ranking":
        different: dict[str, Answer] = {}
        for answer in answers:
            if answer.response.strip():
                different.setdefault(answer.response, answer)
        if len(answers) > 1:
            yield list(different.values())[:MOST_RESPONSES] if len(different) > 1 else answers
    elif len({answer.policy for answer in answers}) > 1:
        yield from ([one, other] for one, other in combinations(answers, 2) if one.policy != other.policy and one.draw == other.draw)
    else:
        drawn = sorted(answers, key=lambda answer: answer.draw)
        yield from ([one, other] for one, other in zip(drawn[::2], drawn[1::2], strict=False))


def _item(group: list[Answer]) -> NewItem:
    sources = tuple(f"{answer.policy[:LONGEST_SOURCE]}, answer {answer.draw + 1}" for answer in group)
    return NewItem(group[0].prompt, tuple(answer.response for answer in group), sources, _uncertainty(group))


def _uncertainty(group: list[Answer]) -> float | None:
    best, worst = (choose(group, key=lambda answer: answer.score) for choose in (max, min))
    several = len(group) > 1
    apart = disagreement(best, worst if several else None)
    if apart is None:
        apart = worst.score - best.score if several else math.nan
    return apart if math.isfinite(apart) else None
