"""Which run may start now: claims on queued runs, and what became of earlier claims.

All decisions are taken inside one exclusive transaction on ``studio.db``, and all facts come from the kernel's locks and from the
runs themselves, so that it does not matter which app asks, how many there are, or whether one of them was killed.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlhf_studio.runs import liveness, status, studio
from rlhf_studio.runs.errors import AlreadyRunning, StoreError
from rlhf_studio.runs.lab.longer import waits_for_more_steps
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.start import StartMode
from rlhf_studio.runs.workspace import Workspace

MAX_ATTEMPTS = 3
FREE = status.Locks(starting=False, alive=False)


@dataclass(frozen=True)
class Claim:
    """A run that this process, and no other, may start now. Whoever gets it closes the ticket once the engine has its copy."""

    run_id: str
    run_dir: Path
    mode: StartMode
    ticket: liveness.StartTicket


def has_work(workspace: Workspace) -> bool:
    """Whether a run waits or a claim is open. A cheap read that creates nothing. Raises StoreError."""
    return any(entry.state in ("waiting", "claimed") for entry in studio.read(workspace.root).entries.values())


def claim_next(workspace: Workspace) -> Claim | None:
    """The next queued run if no run of the workspace is alive, now claimed for the caller; else None. Raises StoreError.

    A run counts as alive whoever started it, and from the moment it is being started. Claims whose engine has ended are settled first.
    """
    with studio.change(workspace.root) as connection:
        if settle(workspace, connection) or any(status.look_at_locks(folder) != FREE for folder in workspace.folders()):
            return None
        for entry in studio.Studio(studio.load_entries(connection), {}).waiting():
            claim = _claim(workspace, connection, entry)
            if claim is not None:
                return claim
    return None


def _claim(workspace: Workspace, connection: sqlite3.Connection, entry: studio.Entry) -> Claim | None:
    try:
        folder = workspace.run_dir(entry.run_id)
        reader = RunReader(folder)
        state, seq = reader.stored()
        if (state == "finished" and seq != entry.seq) or (state != "queued" and entry.mode == "train"):
            studio.set_entry(connection, entry.run_id, "done", seq=seq)  # somebody ran it from a shell meanwhile
            return None
        ticket = liveness.StartTicket(folder)
        ticket.take()
        if state == "finished" and not _has_more_steps(reader, seq, ticket):
            studio.set_entry(connection, entry.run_id, "done", seq=seq)  # an app was killed before it changed the settings, or after it
            return None
    except AlreadyRunning:  # at this moment deleted, or started by hand: it keeps its place
        return None
    except StoreError as error:  # one damaged run must not hold up the others
        studio.set_entry(connection, entry.run_id, "lost", seq=entry.seq, cause=str(error))
        return None
    studio.set_entry(connection, entry.run_id, "claimed", seq=seq)
    return Claim(entry.run_id, folder, entry.mode, ticket)


def _has_more_steps(reader: RunReader, seq: int, ticket: liveness.StartTicket) -> bool:
    """Asked with the ticket in hand: until then the settings may still be changed. It is given back unless there are more."""
    more = False
    try:
        more = waits_for_more_steps(reader, seq)
    finally:
        if not more:
            ticket.close()
    return more


def note_started(workspace: Workspace, run_id: str, pid: int) -> None:
    """Note which process works on a claimed run. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        studio.set_pid(connection, run_id, pid)


def note_not_started(workspace: Workspace, run_id: str, cause: str) -> None:
    """Note that no process could be started for a claimed run, and why. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        entry = studio.load_entries(connection)[run_id]
        studio.set_entry(connection, run_id, "lost", seq=entry.seq, cause=cause)


def note_ended(workspace: Workspace, run_id: str, pid: int, exit_code: int) -> None:
    """Note how a process that the caller had started ended. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        studio.set_exit_code(connection, run_id, pid, exit_code)
        settle(workspace, connection)


def settle(workspace: Workspace, connection: sqlite3.Connection) -> bool:
    """Close every claim whose engine has ended. Returns whether one is still open."""
    busy = False
    for entry in studio.load_entries(connection).values():
        if entry.state == "claimed":
            busy = _settle_one(workspace, connection, entry) or busy
    return busy


def _settle_one(workspace: Workspace, connection: sqlite3.Connection, entry: studio.Entry) -> bool:
    try:
        folder = workspace.run_dir(entry.run_id)
        what, seq = outcome(folder, entry)
        if what == "busy":
            return True
        if what == "never-started" and entry.attempts + 1 < MAX_ATTEMPTS:
            studio.give_back(connection, entry.run_id)
        elif what == "never-started":
            cause = f"The app ended {MAX_ATTEMPTS} times while it was starting the engine. Resume tries again."
            studio.set_entry(connection, entry.run_id, "lost", seq=seq, cause=cause)
        elif what == "ended-early":
            studio.set_entry(connection, entry.run_id, "lost", seq=seq, cause=status.early_end(folder, entry.exit_code))
        else:
            studio.set_entry(connection, entry.run_id, "done", seq=seq)
    except StoreError as error:  # removed or damaged behind our back
        studio.set_entry(connection, entry.run_id, "lost", seq=entry.seq, cause=str(error))
    return False


def outcome(run_dir: Path, entry: studio.Entry) -> tuple[Literal["busy", "ended", "ended-early", "never-started"], int]:
    """What became of a claim, and the run's ``seq``, which grows with every change, as it is now.

    busy: the engine works or is being started. ended: it had begun to work. ended-early: it ended before it wrote anything.
    never-started: the app ended between claiming the run and starting its engine. Raises StoreError when the run cannot be read.
    """
    locks = status.look_at_locks(run_dir)
    seq = RunReader(run_dir).stored()[1]  # after the locks: what an engine wrote before it let go is in it
    if locks.alive:
        return "busy", seq
    if seq > entry.seq:
        return "ended", seq
    if locks.starting:
        return "busy", seq
    return ("never-started" if entry.pid is None else "ended-early"), seq
