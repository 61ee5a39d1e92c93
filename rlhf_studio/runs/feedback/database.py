"""``feedback.db``: its tables, and one connection for each process that writes. A class's rounds are kept by the same means.

The journal is a write-ahead log where the disk allows it, so that readers never wait for the people who vote; every commit is on the
disk before it is answered.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rlhf_studio.runs import schema
from rlhf_studio.runs.errors import StoreError, store_error, with_remedy
from rlhf_studio.runs.heartbeat import Place
from rlhf_studio.runs.values import DAMAGE

DATABASE = "feedback.db"

# One entry per version, as in schema.py. ``items.open`` says whether an item may still be given to somebody; ``priority`` is its place in
# the task's order, smallest first; ``votes`` counts the answers that are in force, without skips; ``used`` says that the run which asked
# has gone on with them.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE tasks (
            id TEXT PRIMARY KEY, settings TEXT NOT NULL, run TEXT NOT NULL, open INTEGER NOT NULL, deadline REAL,
            created_at REAL NOT NULL)""",
        """CREATE TABLE items (
            id INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, prompt TEXT NOT NULL,
            responses TEXT NOT NULL, sources TEXT NOT NULL, uncertainty REAL, answer TEXT, why TEXT NOT NULL, step INTEGER,
            priority REAL NOT NULL, votes INTEGER NOT NULL, open INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0, UNIQUE (task, key))""",
        "CREATE INDEX items_next ON items (task, open, priority, id)",
        "CREATE INDEX items_progress ON items (task, votes) WHERE answer IS NULL",
        "CREATE INDEX items_known ON items (task, number) WHERE answer IS NOT NULL",
        "CREATE TABLE annotators (name TEXT PRIMARY KEY COLLATE NOCASE, secret TEXT NOT NULL, created_at REAL NOT NULL)",
        """CREATE TABLE leases (
            item INTEGER NOT NULL, annotator TEXT NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, shown TEXT NOT NULL,
            until REAL NOT NULL, PRIMARY KEY (item, annotator)) WITHOUT ROWID""",
        """CREATE TABLE votes (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, item INTEGER NOT NULL,
            annotator TEXT NOT NULL, attempt INTEGER NOT NULL, verdict TEXT NOT NULL, value TEXT NOT NULL, confidence REAL NOT NULL,
            seconds REAL NOT NULL, shown TEXT NOT NULL, at REAL NOT NULL, undone_at REAL)""",
        "CREATE UNIQUE INDEX votes_once ON votes (item, annotator, attempt) WHERE undone_at IS NULL",
        "CREATE INDEX votes_of ON votes (task, annotator, number)",
        "CREATE TABLE calibrations (task TEXT NOT NULL, annotator TEXT NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY (task, annotator))",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ),
    (  # votes.confidence may be empty: nobody said how sure they were
        """CREATE TABLE new_votes (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, item INTEGER NOT NULL,
            annotator TEXT NOT NULL, attempt INTEGER NOT NULL, verdict TEXT NOT NULL, value TEXT NOT NULL, confidence REAL,
            seconds REAL NOT NULL, shown TEXT NOT NULL, at REAL NOT NULL, undone_at REAL)""",
        "INSERT INTO new_votes SELECT * FROM votes",
        "DROP TABLE votes",
        "ALTER TABLE new_votes RENAME TO votes",
        "CREATE UNIQUE INDEX votes_once ON votes (item, annotator, attempt) WHERE undone_at IS NULL",
        "CREATE INDEX votes_of ON votes (task, annotator, number)",
    ),
)


class Database:
    """The database below ``root``; made when something is written for the first time.

    Args:
        name: of the file.
        migrations: its tables, one entry per version.
        holds: what is in it, for people.
        forgets: whether nothing of what is deleted may be left in the file.
    """

    def __init__(
        self,
        root: Path,
        name: str = DATABASE,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
        holds: str = "feedback",
        *,
        forgets: bool = False,
    ):
        self.path = Path(root) / name
        self._migrations, self._holds, self._forgets = migrations, holds, forgets
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._place: Place | None = None

    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self.path.is_file()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction, committed when the block ends. Raises StoreError."""
        with self._lock, self._damage(), schema.transaction(self._open(), self.path) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection | None]:
        """A reader's connection, which sees one moment; None when nothing was ever written. Raises StoreError."""
        if not self.exists():
            yield None
            return
        with self._remedy():
            connection = schema.connect(self.path, read_only=True)
        try:
            with self._remedy():
                version = schema.check_version(connection, self.path, len(self._migrations), may_be_empty=True)
            if version == 0:
                yield None  # another process is making it just now
                return
            with self._damage():
                connection.execute("BEGIN")
                yield connection
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._place = None

    def tidy(self) -> None:
        """Empty the journal, which still holds what was deleted just now; while somebody reads, the next call does it."""
        with self._lock, self._damage():
            try:
                self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise store_error(error, self.path) from error

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Rows that no version of ours wrote. What people send is checked before a transaction begins, so it is never told as damage."""
        try:
            yield
        except Refused:
            raise
        except DAMAGE as error:
            with self._remedy():
                raise StoreError(f"{self.path} is damaged: {error}.", "damaged") from error

    def _remedy(self) -> AbstractContextManager[None]:
        return with_remedy(f"Restore it from a copy, or move it away to begin with no {self._holds}.")

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._place is not None and self._place.is_ours():
            return self._connection
        self.close()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, self.path.parent) from error
        with self._remedy():
            connection = schema.connect(self.path, create=True)
        try:
            schema.set_journal(connection, "wal", 1.0)
            connection.execute("PRAGMA synchronous = FULL")
            with self._remedy():
                schema.migrate(connection, self.path, self._migrations)
            if self._forgets:
                connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
        self._connection, self._place = connection, Place(self.path)
        return connection


class Refused(Exception):
    """What somebody asked for cannot be done; one sentence that says why."""
