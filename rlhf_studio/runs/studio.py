"""``studio.db`` at the workspace's root: the queue, and the names, tags and notes of runs.

Whoever starts runs writes it (the app, a road, a sweep), never an engine.

Each call opens its own short connection. The database keeps a rollback journal: it is written a few times per run, and a
single file is easy to copy and works on every disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from rlhf_studio.language import S_
from rlhf_studio.runs import paths, people, schema
from rlhf_studio.runs.codec import FieldCodec, RecordTable, converted, integer, plain, text, truth
from rlhf_studio.runs.errors import StoreError, store_error, with_remedy
from rlhf_studio.runs.records import Marks, StartMode
from rlhf_studio.runs.values import DAMAGE, decode_pieces, decode_text, encode_pieces, encode_text
from rlhf_studio.runs.visitors.starters import Starter, load_starters, read_starters

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE queue (
            run_id TEXT PRIMARY KEY, position INTEGER NOT NULL, state TEXT NOT NULL, resume INTEGER NOT NULL, seq INTEGER NOT NULL,
            pid INTEGER, attempts INTEGER NOT NULL, exit_code INTEGER, cause TEXT NOT NULL, changed_at REAL NOT NULL)""",
        "CREATE TABLE names (run_id TEXT PRIMARY KEY, name TEXT NOT NULL)",
    ),
    # Tags and notes that people give to runs; archived runs are left out of the table unless they are asked for.
    ("CREATE TABLE marks (run_id TEXT PRIMARY KEY, tags TEXT NOT NULL, note TEXT NOT NULL, archived INTEGER NOT NULL)",),
    (),  # the tables stay; the column ``resume`` may hold one more number, which earlier versions do not know
    # Who started a run; version 5 has that in people.db.
    ("CREATE TABLE starters (run_id TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, address TEXT NOT NULL)",),
    ("DROP TABLE starters",),
)
STUDIO_VERSION = len(MIGRATIONS)
MARKS_SINCE = 2  # the version that has the table of marks
HAS_STARTERS = 4  # the one version that has the table of starters

_MODES: tuple[StartMode, ...] = ("train", "resume", "from-start")
"""The column ``resume`` holds the place in this list, or :data:`_REPLACED`."""
_REPLACED = 3  # "resume", with settings that were replaced when the run was queued

MAX_TAGS, MAX_TAG = 20, 40

REMEDY = S_("Move it away to go on; the runs stay, the queue, names and notes are lost.")

EntryState = Literal["waiting", "claimed", "done", "lost", "cancelled"]


@dataclass(frozen=True)
class QueueEntry:
    """What the app knows about starting a run; one per run that was ever queued.

    Attributes:
        position: order in the queue, smallest first.
        state: waiting; claimed (being started or running); done (the engine came to work and ended); lost (it ended before
            it could begin); cancelled.
        mode: how the engine is to be started; ``from-start`` only because a person said so.
        seq: the run's ``seq`` when this state was set. When the run's ``seq`` has grown since, an engine has written
            something newer, and the run's own row counts, not this entry.
        pid: the engine started by the app; None while claimed means that none was started yet.
        attempts: how often a claim was given back because the app ended between claiming and starting.
        exit_code: the engine's, where the app that started it saw it; negative for a signal.
        cause: why it is lost.
        replaced: whether the run got other settings when it was queued, which leaving the queue takes back.
    """

    run_id: str
    position: int
    state: EntryState
    mode: StartMode
    seq: int
    pid: int | None
    attempts: int
    exit_code: int | None
    cause: str
    replaced: bool = False


@dataclass(frozen=True)
class Studio:
    """All entries, names and marks at one moment, and who started the runs."""

    entries: dict[str, QueueEntry]
    names: dict[str, str]
    marks: dict[str, Marks] = field(default_factory=dict)
    starters: dict[str, Starter] = field(default_factory=dict)

    def waiting(self) -> list[QueueEntry]:
        """Queued runs, the next one first."""
        return sorted((entry for entry in self.entries.values() if entry.state == "waiting"), key=lambda entry: entry.position)

    def queue_position(self, run_id: str) -> int | None:
        """1 for the next to start, None when not queued."""
        return self._positions.get(run_id)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {entry.run_id: position for position, entry in enumerate(self.waiting(), start=1)}


EMPTY = Studio({}, {})


def read(workspace: Path, run_id: str | None = None) -> Studio:
    """Everything, or what matters for one run (itself and what waits), in one short read.

    A workspace without a database has an empty queue. Raises StoreError.
    """
    path = Path(workspace) / paths.STUDIO_DATABASE
    if not path.is_file():
        return Studio({}, {}, starters=read_starters(workspace, run_id))
    with with_remedy(REMEDY):
        connection = schema.connect(path, read_only=True)
    try:
        with with_remedy(REMEDY):
            version = schema.check_version(connection, path, STUDIO_VERSION, may_be_empty=True)
        if version == 0:
            return EMPTY  # another process is creating it just now
        connection.execute("BEGIN")
        named = connection.execute("SELECT run_id, name FROM names WHERE ?1 IS NULL OR run_id = ?1", (run_id,))
        names = {run: decode_text(name) for run, name in named}
        marks = load_marks(connection, run_id) if version >= MARKS_SINCE else {}
        entries = load_entries(connection, run_id)  # before the starters: a run that is queued has its starter already
        starters = load_starters(connection, run_id) if version == HAS_STARTERS else read_starters(workspace, run_id)
        return Studio(entries, names, marks, starters)
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except DAMAGE as error:
        raise StoreError(f"{path} is damaged: {error}. {REMEDY}", "damaged") from error
    finally:
        connection.close()


@contextmanager
def change(workspace: Path) -> Iterator[sqlite3.Connection]:
    """One exclusive transaction; the database is created on first use. Raises StoreError."""
    path = Path(workspace) / paths.STUDIO_DATABASE
    try:
        (Path(workspace) / paths.RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, Path(workspace)) from error
    with with_remedy(REMEDY):
        connection = schema.connect(path, create=True)
    try:
        with with_remedy(REMEDY):
            if schema.check_version(connection, path, STUDIO_VERSION, may_be_empty=True) == HAS_STARTERS:
                people.take_over(workspace)  # before they are dropped here, and overwritten
                connection.execute("PRAGMA secure_delete = ON")
            schema.migrate(connection, path, MIGRATIONS)
        with schema.transaction(connection, path):
            yield connection
    finally:
        connection.close()


def _encode_mode(mode: StartMode, replaced: bool) -> tuple[int]:
    return (_REPLACED if replaced else _MODES.index(mode),)


def _decode_mode(stored: int) -> tuple[StartMode, bool]:
    if stored == _REPLACED:
        return "resume", True
    if stored not in range(len(_MODES)):
        raise ValueError(f"unknown way to start a run: {stored!r}")
    return _MODES[stored], False


QUEUE = RecordTable(
    "queue",
    QueueEntry,
    plain("run_id"),
    integer("position"),
    plain("state"),
    FieldCodec(("mode", "replaced"), ("resume",), _encode_mode, _decode_mode),
    *map(integer, ("seq", "pid", "attempts", "exit_code")),
    text("cause"),
)
MARKS = RecordTable(
    "marks", Marks, converted("tags", encode_pieces, lambda stored: tuple(decode_pieces(stored))), text("note"), truth("archived")
)


def load_entries(connection: sqlite3.Connection, run_id: str | None = None) -> dict[str, QueueEntry]:
    """Entries by run id: all, or this run's and the waiting ones."""
    rest = "WHERE ?1 IS NULL OR run_id = ?1 OR state = 'waiting' ORDER BY position"
    return {entry.run_id: entry for entry in QUEUE.records(connection, rest, (run_id,))}


def append(connection: sqlite3.Connection, run_id: str, mode: StartMode, *, seq: int, replaced: bool = False) -> None:
    """Put a run at the end of the queue; forgets what was known of earlier starts. ``replaced`` as in :class:`QueueEntry`, for a resume."""
    connection.execute("DELETE FROM queue WHERE run_id = ?", (run_id,))
    last = connection.execute("SELECT coalesce(max(position), 0) FROM queue").fetchone()[0]
    entry = QueueEntry(run_id, last + 1, "waiting", mode, seq, None, 0, None, "", replaced)
    QUEUE.insert(connection, [entry], changed_at=time.time())


def queue_position(connection: sqlite3.Connection, run_id: str) -> int:
    """The position of a waiting run in the queue: 1 for the next to start."""
    position = Studio(load_entries(connection), {}).queue_position(run_id)
    assert position is not None
    return position


def set_entry(connection: sqlite3.Connection, run_id: str, state: EntryState, *, seq: int, cause: str = "") -> None:
    """Move an entry to another state; ``seq`` is the run's at this moment."""
    connection.execute(
        "UPDATE queue SET state = ?, seq = ?, cause = ?, changed_at = ? WHERE run_id = ?",
        (state, seq, encode_text(cause), time.time(), run_id),
    )


def give_back(connection: sqlite3.Connection, run_id: str) -> None:
    """A claim that came to nothing: the run waits again, at its old place."""
    connection.execute(
        "UPDATE queue SET state = 'waiting', attempts = attempts + 1, changed_at = ? WHERE run_id = ?", (time.time(), run_id)
    )


def set_pid(connection: sqlite3.Connection, run_id: str, pid: int) -> None:
    """Note which process was started for a claimed run."""
    connection.execute("UPDATE queue SET pid = ? WHERE run_id = ?", (pid, run_id))


def set_exit_code(connection: sqlite3.Connection, run_id: str, pid: int, code: int) -> None:
    """Note how the process ended, unless the run was queued anew meanwhile."""
    connection.execute("UPDATE queue SET exit_code = ? WHERE run_id = ? AND pid = ?", (code, run_id, pid))


def forget(connection: sqlite3.Connection, run_id: str) -> None:
    """Remove all that is known about a run."""
    connection.execute("DELETE FROM queue WHERE run_id = ?", (run_id,))
    connection.execute("DELETE FROM names WHERE run_id = ?", (run_id,))
    connection.execute("DELETE FROM marks WHERE run_id = ?", (run_id,))


def set_name(connection: sqlite3.Connection, run_id: str, name: str) -> None:
    """Give a run a name of its own; an empty one goes back to the name it was created with."""
    connection.execute("DELETE FROM names WHERE run_id = ?", (run_id,))
    if name:
        connection.execute("INSERT INTO names VALUES (?, ?)", (run_id, encode_text(name)))


def load_marks(connection: sqlite3.Connection, run_id: str | None = None) -> dict[str, Marks]:
    """What people noted, by run id: of all runs, or of this one."""
    rows = MARKS.select(connection, "WHERE ?1 IS NULL OR run_id = ?1", (run_id,), keys=("run_id",))
    return {run: Marks(**values) for (run,), values in rows}


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags without blanks around them, each once and none empty. Raises ValueError for too many, or a long one."""
    different = tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if len(different) > MAX_TAGS:
        raise ValueError(f"a run has at most {MAX_TAGS} tags, not {len(different)}")
    if long := next((tag for tag in different if len(tag) > MAX_TAG), None):
        raise ValueError(f"a tag has at most {MAX_TAG} characters, not {len(long)}")
    return different


def set_marks(connection: sqlite3.Connection, run_id: str, marks: Marks) -> None:
    """Note something about a run, instead of what was noted before."""
    connection.execute("DELETE FROM marks WHERE run_id = ?", (run_id,))
    if marks != Marks():
        MARKS.insert(connection, [marks], run_id=run_id)


def move(connection: sqlite3.Connection, run_id: str, position: int) -> None:
    """Give a waiting run another position among the waiting runs: 1 is the next to start; a number that is too large means the last."""
    waiting = Studio(load_entries(connection), {}).waiting()
    order = [entry.run_id for entry in waiting if entry.run_id != run_id]
    order.insert(position - 1, run_id)
    positions = [entry.position for entry in waiting]
    for new_position, run in zip(positions, order, strict=True):
        connection.execute("UPDATE queue SET position = ?, changed_at = ? WHERE run_id = ?", (new_position, time.time(), run))
