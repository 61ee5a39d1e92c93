"""One CPU's work in lanes: each lane is a Python thread that takes its own episodes through the model from end to end.

torch's own threads share every single operation and wait for each other after each of them, thousands of times a step; where an
operation is short, or where another program needs a core for a moment, they wait more than they work. Lanes meet once per pass.
What a lane computes depends on its episodes alone, so the result is the same in every run with the same number of lanes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from rlhf_studio.estimate.cpu import LEAST_ROWS, MOST_LANES

Item = TypeVar("Item")
Result = TypeVar("Result")


def dealt(items: Sequence[Item], hands: int) -> list[list[Item]]:
    """Items that ascend in size dealt back and forth, so that each hand gets as many and about as much; no hand is empty."""
    turns = [*range(hands), *reversed(range(hands))]
    found: list[list[Item]] = [[] for _ in range(hands)]
    for place, item in enumerate(items):
        found[turns[place % (2 * hands)]].append(item)
    return [hand for hand in found if hand]


class Lanes:
    """``count`` lanes that divide torch's threads among those at work; one lane is this very thread, with all of torch's."""

    def __init__(self, count: int):
        self.count, self._most_needed = count, math.inf
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="lane") if count > 1 else None

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``work`` of every item, each in a lane; in the items' order. The first failure is raised when all have ended.

        Gradient mode is that of the caller; autocast is not handed on.
        """
        if self._pool is None or len(items) < 2:
            return [work(item) for item in items]
        with_gradients, threads = torch.is_grad_enabled(), torch.get_num_threads()
        share = max(threads // min(self.count, len(items)), 1)

        def run(item: Item) -> Result:
            torch.set_num_threads(share)  # each thread has a count of its own
            with torch.set_grad_enabled(with_gradients):
                return work(item)

        try:
            futures = [self._pool.submit(run, item) for item in items]
            failures = [future.exception() for future in futures]
        finally:
            torch.set_num_threads(threads)
        for failure in failures:
            if failure is not None:
                raise failure
        return [future.result() for future in futures]

    def deal(self, parts: Sequence[Item]) -> list[list[Item]]:
        """The parts, which ascend in size, one hand for each lane; fewer where there are fewer parts."""
        return dealt(parts, self.count)

    def for_few(self) -> Lanes:
        """The same lanes, for few rows that are to be seen in all of them: each row is worth a lane."""
        few = copy.copy(self)
        few._most_needed = 1
        return few

    def share(self, rows: int, most: int, least: int = LEAST_ROWS) -> int:
        """Episodes per part when at most ``most`` of ``rows`` may be under way at a time, but one in each lane; in fewer lanes where
        they had under ``least``.
        """
        if most < rows:  # there are more parts than fit: every lane has one
            return max(most // self.count, 1)
        return max(math.ceil(rows / max(min(self.count, rows // min(least, self._most_needed)), 1)), 1)


ONE_LANE = Lanes(1)


def lanes_for_this_cpu() -> Lanes:
    """As many lanes as torch has threads, up to :data:`MOST_LANES`."""
    return Lanes(min(torch.get_num_threads(), MOST_LANES))
