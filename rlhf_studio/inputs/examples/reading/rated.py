"""Responses with ratings, one a row, become pairs: of two responses to one prompt the one with the higher rating is preferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.examples.reading.table import Cells, ExampleTable, weight_of
from rlhf_studio.inputs.examples.rows import Pair, memory_of
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import Message, key_of
from rlhf_studio.language import S_

BLOCK = 8
"""Most responses of which every two are compared. More responses to one prompt are dealt at random into blocks of so many."""


@dataclass(frozen=True, slots=True)
class _Rated:
    number: int
    prompt: str
    messages: tuple[Message, ...] | None
    response: str
    rating: float
    weight: float
    group: str
    annotator: str

    def memory(self) -> int:
        """Bytes that it takes, about."""
        return memory_of((self.prompt, self.response, self.group, self.annotator), self.messages)


def rated_pairs(rows: Iterator[Cells], table: ExampleTable, data: PairsConfig) -> Iterator[Pair]:
    """The pairs of all rows, prompt by prompt in the order in which prompts come first.

    Where the rows name annotators, the responses that one of them rated are compared with one another: people use a scale differently.

    Raises :class:`PromptsError` when no two ratings differ, or no prompt has two responses.
    """
    prompts: dict[tuple[object, ...], list[_Rated]] = {}
    for rated in _rated(rows, table):
        prompts.setdefault((rated.prompt, key_of(rated.messages)), []).append(rated)
    compared = [group for responses in prompts.values() for group in _by_annotator(responses)]
    if not table.partial:
        _check(compared)
    dealt = 0
    for responses in compared:
        if len(responses) == 1:
            table.left_out["alone"] += 1
            continue
        if len({response.rating for response in responses}) == 1:
            table.left_out["same_rating"] += len(responses)
            continue
        if len(responses) > BLOCK:
            responses = Random(0).sample(responses, len(responses))
        for first in range(0, len(responses), BLOCK):
            dealt += 1
            yield from _compared(responses[first : first + BLOCK], 0 if responses[0].prompt else dealt, table, data)


def _by_annotator(responses: list[_Rated]) -> list[list[_Rated]]:
    """The responses to one prompt, apart for each annotator who rated several of them; those of all others are together."""
    several = {name for name, count in Counter(response.annotator for response in responses).items() if count > 1}
    groups: dict[str, list[_Rated]] = {}
    for response in responses:
        groups.setdefault(response.annotator if response.annotator in several else "", []).append(response)
    return list(groups.values())


def _rated(rows: Iterator[Cells], table: ExampleTable) -> Iterator[_Rated]:
    """The rated responses; all of them are held before the first pair is made, so they are bounded here. Raises :class:`PromptsError`."""
    size = 0
    for cells in rows:
        response, rating = cells.text("response"), cells.number_in("rating")
        if not response.strip():
            table.left_out["empty_response"] += 1
        elif rating is None:
            table.left_out["no_rating"] += 1
        else:
            prompt, messages = cells.prompt()
            group, annotator = cells.text_or_number("group"), cells.annotator()
            rated = _Rated(cells.number, prompt, messages, response, rating, weight_of(cells), group, annotator)
            size += rated.memory()
            table.require_room(size)
            yield rated


def _compared(responses: list[_Rated], block: int, table: ExampleTable, data: PairsConfig) -> Iterator[Pair]:
    """Every two responses with unlike ratings; people were as sure of a pair as of the response of which they were less sure."""
    assert table.layout is not None
    for first, second in combinations(responses, 2):
        better, worse = (first, second) if first.rating > second.rating else (second, first)
        if better.rating > worse.rating:
            margin = None
            if data.margin_from_ratings:
                cells = Cells(better.number, {}, table.layout, data)
                margin = cells.margin("rating", better.rating - worse.rating, S_(f" over row {worse.number}"))
            weight = min(first.weight, second.weight)
            texts = (better.prompt, better.response, worse.response, better.messages)
            annotator = better.annotator if better.annotator == worse.annotator else f"{better.annotator}, {worse.annotator}"
            yield Pair(better.number, *texts, margin, weight, False, better.group, block, annotator)


def _check(compared: list[list[_Rated]]) -> None:
    """Say plainly why no pair can come of these rows."""
    ratings = {response.rating for responses in compared for response in responses}
    if len(ratings) == 1:
        message = S_(
            f"every rating is {ratings.pop():g}, so nothing tells which responses are better; pairs need at least two unlike ratings"
        )
        raise PromptsError("data.rating_column", message)
    if compared and all(len(responses) == 1 for responses in compared):
        message = "no prompt has two responses, so there is nothing to compare; pairs need two or more rated responses to the same prompt"
        raise PromptsError("data.prompt_column", message)
    if compared and all(len({response.rating for response in responses}) == 1 for responses in compared):
        by = S_(", by each annotator") if any(response.annotator for responses in compared for response in responses) else ""
        message = S_(f"the responses to each prompt are all rated alike{by}, so nothing tells which are better")
        raise PromptsError("data.rating_column", message)
