"""How much visitors and students may have at once: checked in the transaction that queues a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs import liveness, paths, people, studio
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import StartMode
from rlhf_studio.runs.studio import Studio
from rlhf_studio.runs.visitors.starters import NOBODY, Starter, read_starters, set_starter

OPEN = ("waiting", "claimed")


class OwnRunFirst(StoreError):
    """This person has a run that waits or is at work.

    Attributes:
        run: its id.
    """

    def __init__(self, message: str, run: str):
        super().__init__(message, "limit")
        self.run = run


@dataclass(frozen=True)
class Limits:
    """Limits of what people who are no operators may have.

    Attributes:
        own: runs of one person that wait or are at work.
        of_address: the same, of all people behind one network address.
        waiting: runs that wait, of all of them together.
        seconds: for which a run may be at work; then it is stopped, with a checkpoint.
        hours: for which a run is kept after its end.
        disk: bytes of all their runs together; the oldest go first.
    """

    own: int = 1
    of_address: int = 6
    waiting: int = 20
    seconds: float = 600.0
    hours: float = 6.0
    disk: int = 2_000_000_000


def admit(limits: Limits, known: Studio, starter: Starter, is_alive: Callable[[str], bool]) -> None:
    """Raises StoreError (reason ``limit``), with a sentence for the person, when this one may not queue a run now.

    The person's own runs come first (OwnRunFirst): they know what to do about those. Operators have no limits.
    """
    if not starter.plays:
        return
    entries = known.entries
    theirs = {run: other for run, other in known.starters.items() if (run in entries and entries[run].state in OPEN) or is_alive(run)}
    own = [run for run, other in theirs.items() if other.key == starter.key]
    if len(own) >= limits.own:
        position = known.queue_position(own[0])
        where = S_(f"is number {position} in the queue") if position else "is at work"
        raise OwnRunFirst(f"Your run {where}. Wait for its end, or stop it, before you start another.", own[0])
    if starter.address and sum(other.address == starter.address for other in theirs.values()) >= limits.of_address:
        raise StoreError(f"{limits.of_address} runs from your network address wait or are at work. Try again when one has ended.", "limit")
    if sum(other.plays and known.queue_position(run) is not None for run, other in theirs.items()) >= limits.waiting:
        raise StoreError(f"The queue is full: {limits.waiting} runs wait. Try again in some minutes.", "limit")


@dataclass(frozen=True)
class Admission:
    """Who queues a run, and what this person may have. Without ``limits`` there is no limit.

    Attributes:
        again: asks who the person is at the moment when the run is queued, because the class may have ended or names may have been turned
            off. Raises StoreError for a person who may no longer start runs. None where this cannot change.
    """

    starter: Starter = NOBODY
    limits: Limits | None = None
    again: Callable[[], Starter] | None = field(default=None, compare=False)

    def queue(self, connection: sqlite3.Connection, folder: Path, mode: StartMode) -> None:
        """Put a new run at the end of the queue, in a transaction of ``studio.db``. Raises StoreError as :meth:`check`."""
        self.check(connection, folder)
        starter = self._now()
        if starter.role:
            with people.change(folder.parents[1]) as known:  # first: no run waits of which nobody knows whose it is
                set_starter(known, folder.name, starter)
        studio.append(connection, folder.name, mode, seq=0)

    def _now(self) -> Starter:
        return self.starter if self.again is None else self.again()

    def ask(self, workspace: Path) -> None:
        """The same as :meth:`check` as things are now, without a transaction: before a check of settings that costs more."""
        if self.limits is not None:
            admit(self.limits, studio.read(workspace), self.starter, lambda run: liveness.is_alive(workspace / paths.RUNS / run))

    def check(self, connection: sqlite3.Connection, folder: Path) -> None:
        """Whether one more run may wait now, in the transaction that will queue it. Raises StoreError as :func:`admit`, and for whoever
        may not start any more."""
        self._now()
        if self.limits is not None:
            starters = read_starters(folder.parents[1])
            starters.pop(folder.name, None)  # a run that is resumed is at work no more, also where its claim is not settled yet
            known = Studio(studio.load_entries(connection), {}, starters=starters)
            admit(self.limits, known, self.starter, lambda run: liveness.is_alive(folder.parent / run))


FREE = Admission()
