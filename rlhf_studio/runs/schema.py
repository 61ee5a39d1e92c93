"""The tables of ``run.db``, opening it safely, and bringing older databases to the newest version.

Every connection of the store is made here. Transactions are explicit (``isolation_level=None``): :func:`transaction` is the
only place that says BEGIN and COMMIT.

Never open ``run.db`` with plain ``open()`` inside the engine or the app: closing such a file drops SQLite's own POSIX locks.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlhf_studio import __version__
from rlhf_studio.runs.errors import RunGone, StoreError, sqlite_reason, store_error

APPLICATION_ID = 0x524C4846  # "RLHF": tells our databases from others
BUSY_SECONDS = 10.0

# One entry per version. Only ever append: old runs are carried forward by the entries they have not seen.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, recipe TEXT NOT NULL, model TEXT NOT NULL,
            state TEXT NOT NULL, phase TEXT NOT NULL, fraction REAL, step INTEGER NOT NULL, total_steps INTEGER NOT NULL,
            created_at REAL NOT NULL, started_at REAL, ended_at REAL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
            device TEXT NOT NULL, cause TEXT NOT NULL, pid INTEGER, working_folder TEXT NOT NULL, program TEXT NOT NULL)""",
        "CREATE TABLE heartbeat (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL)",
        "CREATE TABLE steps (step INTEGER PRIMARY KEY, at REAL NOT NULL, recorded INTEGER NOT NULL)",
        "CREATE TABLE metric_names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
        """CREATE TABLE metrics (
            step INTEGER NOT NULL, metric INTEGER NOT NULL, value REAL, flag TEXT, PRIMARY KEY (step, metric)) WITHOUT ROWID""",
        """CREATE TABLE rollouts (
            step INTEGER NOT NULL, sample INTEGER NOT NULL, prompt TEXT NOT NULL, response TEXT NOT NULL, score REAL, gold REAL,
            kl REAL, flags TEXT, parts TEXT NOT NULL, parts_flags TEXT, length INTEGER NOT NULL, stopped INTEGER NOT NULL,
            PRIMARY KEY (step, sample))""",
        """CREATE TABLE token_texts (
            step INTEGER NOT NULL, sample INTEGER NOT NULL, prompt_pieces TEXT NOT NULL, response_pieces TEXT NOT NULL,
            top_pieces TEXT NOT NULL, gamma REAL, lam REAL, kl_coef REAL, flags TEXT, PRIMARY KEY (step, sample))""",
        """CREATE TABLE token_arrays (
            step INTEGER NOT NULL, sample INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, shape TEXT NOT NULL,
            data BLOB NOT NULL, PRIMARY KEY (step, sample, name))""",
        """CREATE TABLE watched (
            step INTEGER NOT NULL, sample INTEGER NOT NULL, prompt TEXT NOT NULL, response TEXT NOT NULL, score REAL, gold REAL,
            flags TEXT, PRIMARY KEY (step, sample))""",
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, step INTEGER NOT NULL, level TEXT NOT NULL,
            kind TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL, data_flags TEXT)""",
        """CREATE TABLE commands (
            id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, payload TEXT NOT NULL, payload_flags TEXT,
            sent_at REAL NOT NULL, early INTEGER NOT NULL, acknowledged_at REAL, outcome TEXT)""",
    ),
    # The memory that was planned. And rows of steps after run.step may wait to be trained again, which an older program would show as news.
    (
        "ALTER TABLE run ADD COLUMN memory_low REAL",
        "ALTER TABLE run ADD COLUMN memory_high REAL",
    ),
    # Where a run comes from; what all episodes of a step were; answers to the watched prompts and probes, token by token; settings that
    # were changed while the run went on; what a step holds while it waits between two of its phases.
    (
        "ALTER TABLE run ADD COLUMN origin TEXT",
        """CREATE TABLE step_arrays (
            step INTEGER NOT NULL, owner TEXT NOT NULL, sample INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
            shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (step, owner, sample, name)) WITHOUT ROWID""",
        "CREATE TABLE pieces (token INTEGER PRIMARY KEY, piece TEXT NOT NULL)",
        "CREATE TABLE probes (probe INTEGER PRIMARY KEY, prompt TEXT NOT NULL, pieces TEXT NOT NULL)",
        "ALTER TABLE watched ADD COLUMN kl REAL",
        "ALTER TABLE watched ADD COLUMN stopped INTEGER",
        "ALTER TABLE watched ADD COLUMN pieces TEXT",
        "CREATE TABLE changes (step INTEGER NOT NULL, at REAL NOT NULL, setting TEXT NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL)",
        "CREATE TABLE scratch (sample INTEGER PRIMARY KEY, step INTEGER NOT NULL, phase TEXT NOT NULL, data BLOB NOT NULL)",
    ),
    # What the run does; NULL is PPO.
    ("ALTER TABLE run ADD COLUMN stage TEXT",),
    # Whose answers the recorded responses of an evaluation are, and what other models say of them.
    (
        """CREATE TABLE answers (
            step INTEGER NOT NULL, sample INTEGER NOT NULL, policy TEXT NOT NULL, place INTEGER NOT NULL, draw INTEGER NOT NULL,
            judge REAL, ref_logprob REAL, ref_length INTEGER NOT NULL, number_flags TEXT, members TEXT NOT NULL, members_flags TEXT,
            PRIMARY KEY (step, sample)) WITHOUT ROWID""",
    ),
)
SCHEMA_VERSION = len(MIGRATIONS)

HISTORY_TABLES = ("steps", "metrics", "rollouts", "token_texts", "token_arrays", "watched", "step_arrays", "changes", "answers")
"""What belongs to a step, and is replaced when the step is trained again.

Rows with a step after ``run.step`` are from before a resume: they stay until they are replaced, and readers leave them out."""


def _is_file_or_nothing(path: Path) -> bool:
    """Asked once: what another connection removes between two questions would look like something else."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True


def connect(path: Path, read_only: bool = False, *, create: bool = False, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a database. A reader never changes data; it copes with a crashed writer's leftovers and with folders it may not write.

    Raises:
        StoreError: missing, damaged, not a database, or not to be opened.
        RunGone: it was to be written, not made, and was replaced while it was opened.
    """
    path = Path(path)
    if path.is_symlink():
        raise StoreError(f"{path} is a link to another file; a run's database must lie in its folder.", "damaged")
    journal = Path(f"{path}-journal")
    if not _is_file_or_nothing(journal):  # SQLite would wait for a pipe
        raise StoreError(f"{journal} is not a file; remove it.", "damaged")
    if not create and not path.is_file():
        raise StoreError(f"There is no run at {path.parent}: {path.name} is missing.", "missing")
    try:
        if read_only:
            return _open_to_read(path, busy_seconds)
        return _open_to_write(path, create, busy_seconds)
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    except UnicodeDecodeError as error:  # sqlite3 fails like this when its own message quotes a damaged table name
        raise StoreError(f"{path} is damaged: its table of contents is not text.", "damaged") from error


def _open(path: Path, mode: str, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # connect alone reads nothing
    except (sqlite3.Error, UnicodeDecodeError):
        connection.close()
        raise
    return connection


def _open_to_write(path: Path, create: bool, busy_seconds: float) -> sqlite3.Connection:
    """SQLite opens the write-ahead log after the database, by its path: what took the place between the two would get ours written into its
    log, over what it had there. A run is gone then; of a workspace, whose databases may be made, what lies there now is meant."""
    while True:
        file = FileIdentity(path)
        connection = _open(path, "mode=rwc" if create else "mode=rw", busy_seconds)
        if file.is_ours() or (create and not file.was_there):
            return connection
        connection.close()
        if not create:
            raise RunGone(path.parent)


def _open_to_read(path: Path, busy_seconds: float) -> sqlite3.Connection:
    try:
        return _open(path, "mode=ro", busy_seconds)
    except sqlite3.OperationalError as error:
        if sqlite_reason(error) == "read-only":
            # A writer was killed in the middle of a transaction and left a rollback journal: SQLite must be allowed to
            # undo that half transaction; query_only forbids everything else.
            connection = _open(path, "mode=rw", busy_seconds)
            connection.execute("PRAGMA query_only = ON")
            return connection
        if "unable to open" in str(error) and not Path(f"{path}-wal").is_file():
            # The folder cannot be written, so WAL's side files cannot be made; without them nobody writes here either.
            return _open(path, "immutable=1", busy_seconds)
        raise


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """Everything in the block is committed together, or nothing is. Takes the write lock at once (BEGIN IMMEDIATE).

    Raises:
        StoreError: for every error of SQLite; the transaction is undone and the connection stays usable.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            commit(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def commit(connection: sqlite3.Connection) -> None:
    """End the transaction. A function of its own so that tests can make exactly this fail."""
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Create the tables, or carry an older database forward, in one transaction. Raises StoreError for a newer one."""
    if check_version(connection, path, len(migrations), may_be_empty=True) == len(migrations):
        return
    with transaction(connection, path):
        # Read again under the lock: another process may have done it meanwhile.
        version = check_version(connection, path, len(migrations), may_be_empty=True)
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def check_version(connection: sqlite3.Connection, path: Path, newest: int = SCHEMA_VERSION, *, may_be_empty: bool = False) -> int:
    """The database's schema version. Raises StoreError when it is newer than ``newest``, or not ours."""
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = connection.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    if version > newest and application == APPLICATION_ID:
        raise StoreError(
            f"Written by a newer RLHF Studio: it has store version {version}, and RLHF Studio {__version__} reads up to version {newest}. "
            f"Update RLHF Studio to open {path}.",
            "version",
        )
    if application != APPLICATION_ID and not (may_be_empty and version == 0 and application == 0):
        raise StoreError(f"{path} was not written by RLHF Studio.", "damaged")
    return version


class FileIdentity:
    """Remembers which file lies at a path, to notice when the run folder is deleted, moved or replaced while its engine works."""

    def __init__(self, path: Path):
        self._path = path
        self._file = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_dev, status.st_ino

    @property
    def was_there(self) -> bool:
        """Whether a file lay at the path at all."""
        return self._file is not None

    def is_ours(self) -> bool:
        """Whether the remembered file still lies at the path."""
        return self._file is not None and self._look() == self._file


def set_journal(connection: sqlite3.Connection, mode: str, seconds: float, only_of: FileIdentity | None = None) -> str:
    """Ask for a journal mode ("wal" or "delete") and return the one in force.

    SQLite refuses the change while any reader is inside a read, without waiting by itself; readers here are short, so
    asking again for a while is enough. On disks that cannot do WAL the old mode stays, which works as well, only slower.
    It also stays where ``only_of`` does not lie at its path any more.
    """
    deadline = time.monotonic() + seconds
    while True:
        if only_of is not None and not only_of.is_ours():
            return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        try:
            return str(connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0])
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
            time.sleep(0.01)
