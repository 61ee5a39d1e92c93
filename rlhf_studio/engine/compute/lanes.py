"""Lanes: threads of a CPU that each take whole episodes through the model.

torch's own threads divide every single operation among them and wait for each other after each, thousands of times per training step.
Where operations are short, or where another program needs a core for a moment, they wait more than they work. Lanes wait for each other
only once per pass over a batch. What a lane computes depends on its episodes alone, so with the same number of lanes every run gives the
same result.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from rlhf_studio.inputs.estimate.cpu import LARGE_MODEL, LEAST_ROWS, MOST_LANES, least_rows

ONE_THREAD_BELOW = LARGE_MODEL  # weights

Item = TypeVar("Item")
Result = TypeVar("Result")


def better_with_one_thread(model: torch.nn.Module) -> bool:
    """Whether a few rows go faster through a model with one thread of a CPU: in a small one threads wait more than they work."""
    return sum(weights.numel() for weights in model.parameters()) < ONE_THREAD_BELOW


def rows_worth_a_lane(model: torch.nn.Module, learning: Sequence[torch.nn.Parameter] = ()) -> int:
    """:func:`least_rows` for a pass through ``model``, of which ``learning`` gets gradients."""
    return least_rows(sum(weights.numel() for weights in model.parameters()), sum(weights.numel() for weights in learning))


def balanced_parts(items: Sequence[Item], count: int) -> list[list[Item]]:
    """``items``, ascending in size, in ``count`` parts of about the same number and total size; fewer parts when there are fewer items.

    They are distributed back and forth over the parts: of five items and two parts, the first gets items 1, 4 and 5, the second 2 and 3.
    """
    order = [*range(count), *reversed(range(count))]
    parts: list[list[Item]] = [[] for _ in range(count)]
    for index, item in enumerate(items):
        parts[order[index % (2 * count)]].append(item)
    return [part for part in parts if part]


class Lanes:
    """``count`` lanes. The lanes at work divide torch's threads among them; a single lane is the calling thread, with all of them."""

    def __init__(self, count: int):
        self.count, self._most_rows_needed = count, math.inf
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="lane") if count > 1 else None

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``work(item)`` for every item, each in a lane; the results in the order of the items.

        Gradient mode is the caller's; autocast must be entered inside ``work``. When calls fail, the first failure in the order of the
        items is raised after all calls have ended.
        """
        if self._pool is None or len(items) < 2:
            return [work(item) for item in items]
        with_gradients, threads = torch.is_grad_enabled(), torch.get_num_threads()
        threads_per_lane = max(threads // min(self.count, len(items)), 1)

        def run(item: Item) -> Result:
            torch.set_num_threads(threads_per_lane)  # the setting belongs to the calling thread
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

    def with_one_row_each(self) -> Lanes:
        """The same lanes, but :meth:`rows_per_part` uses all of them even where each gets one row: to test few rows in every lane."""
        lanes = copy.copy(self)
        lanes._most_rows_needed = 1
        return lanes

    def rows_per_part(self, rows: int, most: int, least: int = LEAST_ROWS) -> int:
        """How many of ``rows`` episodes go into one part, so that each part is computed in a lane.

        All parts under way at one time together hold at most ``most`` episodes (a micro-batch), but each at least one. Fewer lanes are
        used when a lane would get fewer than ``least`` episodes.
        """
        if most < rows:  # more parts than are under way at one time: every lane has one
            return max(most // self.count, 1)
        return max(math.ceil(rows / max(min(self.count, rows // min(least, self._most_rows_needed)), 1)), 1)


ONE_LANE = Lanes(1)


def lanes_for_this_cpu() -> Lanes:
    """As many lanes as torch has threads, up to :data:`MOST_LANES`."""
    return Lanes(min(torch.get_num_threads(), MOST_LANES))
