"""What is read of each run once, and again only when the run has moved on: pages that list hundreds of runs are opened again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from rlhf_studio.runs.records import RunStatus

MOST = 1000
T = TypeVar("T")


class OfRuns(Generic[T]):
    """Answers of ``read`` by run; it may be asked from several threads.

    What changes without a step, such as a checkpoint that somebody deletes by hand, is seen when the run changes next.
    """

    def __init__(self, read: Callable[[RunStatus], T]) -> None:
        self._read = read
        self._known: OrderedDict[str, tuple[tuple[int, int, str], T]] = OrderedDict()

    def of(self, run: RunStatus) -> T:
        """What ``read`` says of the run as it is now. Raises what ``read`` raises."""
        seen = (run.epoch, run.seq, run.state)
        known = self._known.get(run.run_id)
        if known is not None and known[0] == seen:
            return known[1]
        answer = self._read(run)
        self._known[run.run_id] = (seen, answer)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return answer
