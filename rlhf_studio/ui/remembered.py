"""Facts that are read once for each run, and again only when the run has changed: people open pages with hundreds of runs again and
again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from rlhf_studio.runs.records import RunStatus

MOST = 1000
T = TypeVar("T")


class OfRuns(Generic[T]):
    """Answers of ``read`` by run. May be used from several threads.

    A change without a step, such as a checkpoint that somebody deletes by hand, is noticed when the run changes next.
    """

    def __init__(self, read: Callable[[RunStatus], T]) -> None:
        self._read = read
        self._known: OrderedDict[str, tuple[tuple[int, int, str], T]] = OrderedDict()

    def of(self, run: RunStatus) -> T:
        """What ``read`` gives for the run as it is now. Raises what ``read`` raises."""
        version = (run.epoch, run.seq, run.state)
        known = self._known.get(run.run_id)
        if known is not None and known[0] == version:
            return known[1]
        answer = self._read(run)
        self._known[run.run_id] = (version, answer)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return answer
