"""The responses in which phrases are counted: all episodes of a step where they are recorded, else some responses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlhf_studio.analysis.doctor.phrases import CountedResponse, Rising, counted_response, rising
from rlhf_studio.analysis.learned.responses import PARTIAL, side_of, thinned, without_stop_tokens
from rlhf_studio.runs.reader import RunReader

MOST_RESPONSES = 64  # of a step; shares do not become much surer with more
FEWEST_RESPONSES = 8  # on each side; below these, shares say nothing
MOST_PARTIAL = 0.01  # share of tokens that end inside a character; with more of them, the texts of single tokens do not give the text


class PhraseCounts:
    """At each step that is looked at, the phrase that rose most since the start. Every step is counted once.

    The same steps are compared as in "what did it learn": the first and the last tenth, at least three each, and of a long run every
    second, fourth ... of them (:func:`~rlhf_studio.analysis.learned.responses.thinned`). So the two say the same figures.
    """

    def __init__(self, reader: RunReader):
        self._reader = reader
        self._from_tokens: bool | None = None
        self._pieces: dict[int, str] = {}
        self._responses: dict[int, list[CountedResponse]] = {}
        self._phrases: dict[int, Rising | None] = {}

    def read(self, steps: Sequence[int], recorded: Sequence[int], looked: Sequence[int]) -> dict[int, Rising | None]:
        """The phrase that rose most, by step, for every step of ``looked`` that has enough responses.

        Args:
            steps: all steps, in order.
            recorded: those that have recorded responses, in order.
        """
        if self._from_tokens is None and recorded:  # the first recorded step: a step that failed has neither tokens nor responses
            self._from_tokens = self._legible(recorded[0])
        elif self._from_tokens is None and steps:
            self._from_tokens = self._legible(steps[0]) or None
        countable = steps if self._from_tokens else recorded
        new = [step for step in looked if step not in self._phrases and step in set(countable)]
        sides = {step: _sides([earlier for earlier in countable if earlier <= step]) for step in new}
        if self._from_tokens and new:
            self._pieces |= {token: piece for token, piece in self._reader.pieces().items() if token not in self._pieces}
        needed = sorted({compared for first, last in sides.values() for compared in (*first, *last)})
        for step in needed:
            if step not in self._responses:
                self._responses[step] = self._read(step)
        for step, (first, last) in sides.items():
            before, after = ([response for at in side for response in self._responses[at]] for side in (first, last))
            if last and min(len(before), len(after)) >= FEWEST_RESPONSES:
                self._phrases[step] = rising(before, after)
        if new:  # the next call needs only these, and new ones
            first, last = sides[new[-1]]
            self._responses = {step: self._responses[step] for step in (*first, *last)}
        return {step: phrase for step, phrase in self._phrases.items() if step in set(looked)}

    def _legible(self, step: int) -> bool:
        """Whether all episodes are recorded, and responses can be put together from the texts of their tokens."""
        ids, pieces = self._reader.episode_arrays(step, ["response_ids"]).get("response_ids"), self._reader.pieces()
        if ids is None or not len(ids) or not pieces:
            return False
        return sum(PARTIAL in pieces.get(token, PARTIAL) for token in ids.tolist()) <= MOST_PARTIAL * len(ids)

    def _read(self, step: int) -> list[CountedResponse]:
        arrays = self._reader.episode_arrays(step, ["lengths", "response_ids", "stopped"]) if self._from_tokens else {}
        if not arrays:
            return [counted_response(row.response, row.stopped is not False) for row in self._reader.rollouts(step)[:MOST_RESPONSES]]
        for response in self._reader.response_tokens(step, MOST_RESPONSES):
            if response.ids is not None:
                # The text of a single token may lack the space that stands before it in a response.
                pairs = zip(response.ids.tolist(), response.pieces, strict=False)
                self._pieces |= {token: piece for token, piece in pairs if piece[:1].isspace()}
        stopped = arrays["stopped"].astype(bool)
        ids, lengths = without_stop_tokens(arrays["response_ids"].astype(np.int64), arrays["lengths"].astype(np.int64), stopped)
        ends = np.cumsum(lengths)[:MOST_RESPONSES].tolist()
        pieces = [self._pieces.get(token, PARTIAL) for token in ids[: ends[-1]].tolist()] if ends else []
        texts = ["".join(pieces[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
        return [counted_response(text, bool(ended)) for text, ended in zip(texts, stopped, strict=False)]


def _sides(steps: list[int]) -> tuple[list[int], list[int]]:
    """The first and the last steps that are compared; empty where there is only one step."""
    compared = thinned(steps)
    side = side_of(len(compared))
    return (compared[:side], compared[-side:]) if len(compared) > 1 else ([], [])
