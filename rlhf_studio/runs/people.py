"""``people.db``, beside ``studio.db``: what people leave behind. Tasks and votes, the rounds of a class, and who started which run.

It is apart from the queue, so that thirty people who vote all the time never make the queue wait, and a damaged queue can be moved away
without losing anybody's work. The journal is a write-ahead log where the disk allows it, so that readers never wait for whoever writes;
every commit is on the disk before it is answered; and what is deleted is overwritten.

Version 0.2 kept the same in three files (:data:`OLD`). Whoever opens a workspace first takes their rows over, in one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs import paths, schema
from rlhf_studio.runs.codec import columns_of
from rlhf_studio.runs.errors import StoreError, store_error, with_remedy
from rlhf_studio.runs.liveness import FileLock
from rlhf_studio.runs.values import DAMAGE

DATABASE = "people.db"

# One entry per version, as in schema.py.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # Feedback. ``items.open`` says whether an item may still be given to somebody; ``priority`` is its place in the task's order,
        # smallest first; ``votes`` counts the answers that are in force, without skips; ``used`` says that the run which asked has gone on
        # with them. ``votes.confidence`` is empty where nobody said how sure they were.
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
            annotator TEXT NOT NULL, attempt INTEGER NOT NULL, verdict TEXT NOT NULL, value TEXT NOT NULL, confidence REAL,
            seconds REAL NOT NULL, shown TEXT NOT NULL, at REAL NOT NULL, undone_at REAL)""",
        "CREATE UNIQUE INDEX votes_once ON votes (item, annotator, attempt) WHERE undone_at IS NULL",
        "CREATE INDEX votes_of ON votes (task, annotator, number)",
        "CREATE TABLE calibrations (task TEXT NOT NULL, annotator TEXT NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY (task, annotator))",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        # A class. ``person`` is the key of a student's cookie as long as the class lasts, then a random text. ``students`` have opened the
        # class link; the first of them have the places. ``class_notes`` are what the next app goes on with when this one was killed.
        """CREATE TABLE rounds (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, state TEXT NOT NULL,
            run TEXT NOT NULL, asked_at REAL NOT NULL)""",
        """CREATE TABLE answers (
            round TEXT NOT NULL, person TEXT NOT NULL, name TEXT NOT NULL, answer TEXT NOT NULL, changes INTEGER NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (round, person)) WITHOUT ROWID""",
        "CREATE TABLE students (number INTEGER PRIMARY KEY AUTOINCREMENT, person TEXT NOT NULL UNIQUE, at REAL NOT NULL)",
        "CREATE TABLE class_names (person TEXT PRIMARY KEY, name TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE class_notes (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
        # Who started a run, where the app knows.
        """CREATE TABLE starters (
            run_id TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, address TEXT NOT NULL)""",
        "CREATE TABLE taken_over (file TEXT PRIMARY KEY, at REAL NOT NULL)",
    ),
)

OLD: dict[str, dict[str, str]] = {
    "feedback.db": {name: name for name in ("tasks", "items", "annotators", "leases", "votes", "calibrations", "notes")},
    "class.db": {"rounds": "rounds", "answers": "answers", "students": "students", "people": "class_names", "notes": "class_notes"},
    paths.STUDIO_DATABASE: {"starters": "starters"},
}
"""The files of version 0.2 that had what is here now, with the new name of each table. ``studio.db`` has dropped its own since."""
LOCK, WAIT_SECONDS = "people.lock", 60.0  # held while rows are taken over
SET_ASIDE = "{name}.taken-over"
"""What an old file is called when its rows are here. That of a class goes when something of the class is to be forgotten."""
IN_USE = S_("{path} is in use by an app of an earlier version. End that app first, so that what is in it can be taken over into {new}.")
NEWER = S_(
    "{path} was written by an app of an earlier version after its contents had been taken over into {new}. Move one of the two away."
)


class NotPossible(Exception):
    """A request that cannot be carried out. The message is one sentence for people that says why."""


class Database:
    """``people.db`` below ``root``, with one connection for writing. The file is made at the first write."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self.path = self.root / DATABASE
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._database_file: schema.FileIdentity | None = None

    def exists(self) -> bool:
        """Whether anything was ever written, here or in one of the old files beside it."""
        return self.path.is_file() or bool(self._waiting())

    def _waiting(self) -> list[str]:
        """The old files that are still in their place, ``studio.db`` aside."""
        return [name for name in OLD if name != paths.STUDIO_DATABASE and (self.root / name).is_file()]

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction, committed when the block ends. Raises StoreError."""
        with self._lock, self._damage(), schema.transaction(self._open(), self.path) as connection:
            yield connection

    @contextmanager
    def forget(self) -> Iterator[sqlite3.Connection]:
        """Like :meth:`change`, for removing what must not stay on the disk: also not in the journal, nor in the old file of a class."""
        with self.change() as connection:
            yield connection
        with self._lock, self._damage():
            try:
                self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")  # while somebody reads, the next call does it
                _erase(self.root / SET_ASIDE.format(name="class.db"))
            except (sqlite3.Error, OSError) as error:
                raise store_error(error, self.path) from error

    @contextmanager
    def read(self, *, old_too: bool = True) -> Iterator[sqlite3.Connection | None]:
        """A reader's connection, which sees one moment; None when nothing was ever written. Raises StoreError.

        ``old_too``: what is in the old files is taken over first, for which the folder is written.
        """
        if old_too and self._waiting():
            with self._lock:
                self._open()
        if not self.path.is_file():
            yield None
            return
        with self._remedy():
            connection = schema.connect(self.path, read_only=True)
        try:
            with self._remedy():
                version = schema.check_version(connection, self.path, len(MIGRATIONS), may_be_empty=True)
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
            self._connection = self._database_file = None

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Rows that no version of ours wrote. What people send is checked before a transaction begins, so it is never told as damage."""
        try:
            yield
        except NotPossible:
            raise
        except DAMAGE as error:
            with self._remedy():
                raise StoreError(f"{self.path} is damaged: {error}.", "damaged") from error

    def _remedy(self) -> AbstractContextManager[None]:
        return with_remedy(S_("Restore it from a copy, or move it away to begin with no votes, no rounds and no visitors."))

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._database_file is not None and self._database_file.is_ours():
            return self._connection
        self.close()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, self.root) from error
        with self._remedy():
            connection = schema.connect(self.path, create=True)
        try:
            schema.set_journal(connection, "wal", 1.0)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            with self._remedy():
                schema.migrate(connection, self.path, MIGRATIONS)
                _take_over(connection, self.root)
        except BaseException:
            connection.close()
            raise
        self._connection, self._database_file = connection, schema.FileIdentity(self.path)
        return connection


@contextmanager
def change(root: Path) -> Iterator[sqlite3.Connection]:
    """One transaction over its own connection, for code that writes seldom. Raises StoreError."""
    database = Database(root)
    with closing(database), database.change() as connection:
        yield connection


def take_over(root: Path) -> None:
    """Copy the rows of the old files into ``people.db`` before one of the old files changes. Raises StoreError."""
    with change(root):
        pass


# --- what version 0.2 has left ---------------------------------------------------------------------------------------------------


def _take_over(connection: sqlite3.Connection, root: Path) -> None:
    """Copy what is in the old files, all in one transaction, and set these aside. Killed anywhere, the next opening goes on with it.

    One process at a time: an old file cannot be closed, nor be given another name, while another process reads it.
    """
    if not any(_is_old(root / name) for name in OLD):
        return
    busy = StoreError(f"Another app takes over what version 0.2 has left in {root}. Try again in a moment.", "busy")
    lock = FileLock(root / LOCK, busy, WAIT_SECONDS)
    lock.take()
    try:
        known = {name for (name,) in connection.execute("SELECT file FROM taken_over")}
        old = [root / name for name in OLD if _is_old(root / name)]  # the one before may have done it
        new = [path for path in old if path.name not in known]
        for path in new:
            _close_journal(path)
            connection.execute("ATTACH ? AS ?", (f"{path.absolute().as_uri()}?mode=rw", _alias(path)))
        try:
            with schema.transaction(connection, root / DATABASE):
                for path in new:
                    _copy_tables(connection, _alias(path), OLD[path.name])
                    connection.execute("INSERT INTO taken_over VALUES (?, ?)", (path.name, time.time()))
        finally:
            for _, name, _ in connection.execute("PRAGMA database_list").fetchall():
                if name.startswith("old_"):
                    connection.execute(f"DETACH {name}")
        for path in old:
            _set_aside(path)
        lock.path.unlink(missing_ok=True)
    finally:
        lock.release()


def _alias(path: Path) -> str:
    return f"old_{path.stem}"


def _is_old(path: Path) -> bool:
    """Whether the file of an earlier version is there, with rows to copy."""
    if path.name != paths.STUDIO_DATABASE or not path.is_file():
        return path.is_file()
    try:
        with closing(schema.connect(path, read_only=True)) as connection:
            return bool(columns_of(connection, "starters"))
    except StoreError:  # a damaged queue keeps nobody from voting; whoever opens it is told
        return False


def _close_journal(path: Path) -> None:
    """Bring what a killed app has left in the write-ahead log into the file, and see that it is whole and ours. Raises StoreError."""
    with with_remedy(S_("Restore it from a copy, or move it away.")), closing(schema.connect(path)) as connection:
        try:
            if schema.set_journal(connection, "delete", 1.0) == "wal":
                raise StoreError(IN_USE.format(path=path, new=DATABASE), "busy")
            report = connection.execute("PRAGMA quick_check").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            ours = not tables or connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
        except sqlite3.Error as error:
            raise store_error(error, path) from error
        if report != "ok" or not ours:
            raise StoreError(f"{path} is damaged: {report if ours else 'it was not written by RLHF Studio'}.", "damaged")


def _copy_tables(connection: sqlite3.Connection, alias: str, tables: dict[str, str]) -> None:
    there = {name for (name,) in connection.execute(f"SELECT name FROM {alias}.sqlite_master WHERE type = 'table'")}
    for old, new in tables.items():
        if old not in there:
            continue
        ours = [row[1] for row in connection.execute(f"PRAGMA main.table_info({new})")]
        theirs = {row[1] for row in connection.execute(f"PRAGMA {alias}.table_info({old})")}
        columns = ", ".join(column for column in ours if column in theirs)
        connection.execute(f"INSERT INTO main.{new} ({columns}) SELECT {columns} FROM {alias}.{old}")
        if "sqlite_sequence" in there:  # the number of a deleted row is not given again
            connection.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (new,))
            connection.execute(f"INSERT INTO main.sqlite_sequence SELECT ?, seq FROM {alias}.sqlite_sequence WHERE name = ?", (new, old))


def _set_aside(path: Path) -> None:
    """Rename an old file. ``studio.db`` keeps its name: it drops its own table."""
    if path.name == paths.STUDIO_DATABASE:
        return
    aside = path.with_name(SET_ASIDE.format(name=path.name))
    if aside.exists() and path.exists():
        raise StoreError(NEWER.format(path=path, new=DATABASE), "in-the-way")
    try:
        os.rename(path, aside)
    except OSError as error:
        raise store_error(error, path) from error


def _erase(path: Path) -> None:
    """Overwrite and remove a file. Raises OSError."""
    if path.is_file() and not path.is_symlink():
        with path.open("r+b") as file:
            file.write(b"\0" * path.stat().st_size)
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
