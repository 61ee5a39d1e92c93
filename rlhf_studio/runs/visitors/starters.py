"""Who started a run: a table of ``people.db``."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from rlhf_studio.runs.codec import RecordTable, plain, text
from rlhf_studio.runs.people import Database

ROLES = ("", "operator", "visitor", "student")
LONGEST_KEY = 64  # characters of a key or an address


@dataclass(frozen=True)
class Starter:
    """Who started a run, where the app knows.

    Attributes:
        role: ``operator``, ``visitor`` (of a Space) or ``student`` (of a class); empty for a run that was started without the app, or by
            whoever sits at this computer.
        name: what a student typed; empty otherwise.
        key: tells visitors and students apart, so that they may stop what they started; it is never shown.
        address: a hash of the network address, by which visitors without cookies are told apart; it is never shown.
    """

    role: str = ""
    name: str = ""
    key: str = field(default="", repr=False)
    address: str = field(default="", repr=False)

    @property
    def plays(self) -> bool:
        """Whether this is somebody to whom the limits of visitors and students apply."""
        return self.role in ("visitor", "student")


NOBODY = Starter()
_STARTERS = RecordTable("starters", Starter, plain("role"), text("name"), plain("key"), plain("address"))


def read_starters(workspace: Path, run_id: str | None = None) -> dict[str, Starter]:
    """Who started each run, by run id: of all runs, or of this one. A run that is not there was started without the app."""
    with Database(workspace).read(old_too=False) as connection:
        return {} if connection is None else load_starters(connection, run_id)


def load_starters(connection: sqlite3.Connection, run_id: str | None = None) -> dict[str, Starter]:
    """The same over a connection."""
    rows = _STARTERS.select(connection, "WHERE ?1 IS NULL OR run_id = ?1", (run_id,), keys=("run_id",))
    return {run: Starter(**values) for (run,), values in rows}


def set_starter(connection: sqlite3.Connection, run_id: str, starter: Starter) -> None:
    """Note who started a run; nothing for a starter of no role."""
    if starter.role:
        _STARTERS.insert(connection, [starter], or_else="REPLACE", run_id=run_id)


def forget_starter(connection: sqlite3.Connection, run_id: str) -> None:
    """The run is gone."""
    connection.execute("DELETE FROM starters WHERE run_id = ?", (run_id,))


def forget_students(connection: sqlite3.Connection) -> None:
    """The class is over: nothing tells who a student was but the name they typed."""
    connection.execute("UPDATE starters SET key = '', address = '' WHERE role = 'student'")


def forget_names(connection: sqlite3.Connection) -> None:
    """The teacher has turned names off."""
    connection.execute("UPDATE starters SET name = '' WHERE role = 'student'")
