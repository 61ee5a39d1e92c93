"""The rounds of one workspace, in ``class.db``."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rlhf_studio.runs.classroom.records import (
    MOST_CHANGES,
    MOST_PEOPLE,
    MOST_ROUNDS,
    POINTS,
    STATES,
    Answer,
    Given,
    Question,
    Round,
    State,
    read_answer,
)
from rlhf_studio.runs.feedback.database import Database, Refused
from rlhf_studio.runs.values import decode_text, encode_text

DATABASE = "class.db"
CLOSED = "This round is closed."
GONE = "This round is not there any more."

# One entry per version, as in schema.py. ``person`` is the key of a student's cookie as long as the class lasts, then a random text.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE rounds (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, state TEXT NOT NULL,
            run TEXT NOT NULL, asked_at REAL NOT NULL)""",
        """CREATE TABLE answers (
            round TEXT NOT NULL, person TEXT NOT NULL, name TEXT NOT NULL, answer TEXT NOT NULL, changes INTEGER NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (round, person)) WITHOUT ROWID""",
        "CREATE TABLE people (person TEXT PRIMARY KEY, name TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
    ),
    (  # what the next app goes on with when this one was killed
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
    ),
    (  # who has opened the class link; the first of them have the places
        "CREATE TABLE students (number INTEGER PRIMARY KEY AUTOINCREMENT, person TEXT NOT NULL UNIQUE, at REAL NOT NULL)",
    ),
)


class ClassStore:
    """Rounds and answers below ``root``. Safe for several threads.

    Every method is one transaction: what it returns is on the disk. All raise StoreError when the database cannot be used, and Refused,
    with one sentence for people, for what cannot be done.
    """

    def __init__(self, root: Path, now: Callable[[], float] = time.time):
        self._database = Database(Path(root), DATABASE, MIGRATIONS, "rounds", forgets=True)
        self._now = now

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # --- the class ----------------------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, str]:
        """What was noted of a class that has not ended, by name."""
        with self._database.read() as connection:
            found = [] if connection is None else connection.execute("SELECT name, value FROM notes").fetchall()
            return {decode_text(name): decode_text(value) for name, value in found}

    def note(self, **values: str) -> None:
        """Note something of the present class, in place of what was noted under the same name."""
        with self._database.change() as connection:
            rows = [(name, encode_text(value), self._now()) for name, value in values.items()]
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", rows)

    # --- rounds -------------------------------------------------------------------------------------------------------------

    def ask(self, question: Question, run: str = "") -> Round:
        """Begin a round; the one before is put away."""
        made = Round(secrets.token_hex(6), question, "open", run, self._now(), 0)
        with self._database.change() as connection:
            if connection.execute("SELECT count(*) FROM rounds").fetchone()[0] >= MOST_ROUNDS:
                raise Refused(f"A workspace keeps {MOST_ROUNDS} rounds. Save and delete earlier ones first.")
            connection.execute("UPDATE rounds SET state = 'over'")
            row = (made.id, encode_text(json.dumps(asdict(question))), made.state, run, made.asked_at)
            connection.execute("INSERT INTO rounds (id, question, state, run, asked_at) VALUES (?, ?, ?, ?, ?)", row)
        return made

    def rounds(self) -> list[Round]:
        """All rounds, the newest first."""
        with self._database.read() as connection:
            return [] if connection is None else _rounds(connection)

    def round(self, round_id: str) -> Round:
        """One round."""
        with self._database.read() as connection:
            found = [] if connection is None else _rounds(connection, round_id)
        if not found:
            raise Refused(GONE)
        return found[0]

    def move(self, round_id: str, state: State) -> Round:
        """Take a round on to a later state; asking for a state that it has passed changes nothing. Only a closed round, of which nobody has
        seen anything yet, can be opened again."""
        with self._database.change() as connection:
            known = _found(connection, round_id)
            if STATES.index(state) > STATES.index(known.state) or (known.state, state) == ("closed", "open"):
                connection.execute("UPDATE rounds SET state = ? WHERE id = ?", (state, round_id))
            return _found(connection, round_id)

    def show_again(self, round_id: str) -> Round:
        """What the class answered to a round that was put away is shown again; while another round is there, it is not."""
        with self._database.change() as connection:
            _found(connection, round_id)
            if connection.execute("SELECT count(*) FROM rounds WHERE state <> 'over' AND id <> ?", (round_id,)).fetchone()[0]:
                raise Refused("Put the present round away first.")
            connection.execute("UPDATE rounds SET state = 'shown' WHERE id = ? AND state = 'over'", (round_id,))
            return _found(connection, round_id)

    def set_run(self, round_id: str, run: str) -> Round:
        """Say whose curve answers the question."""
        with self._database.change() as connection:
            connection.execute("UPDATE rounds SET run = ? WHERE id = ?", (run, round_id))
            return _found(connection, round_id)

    def delete(self, round_id: str) -> None:
        """Remove a round with its answers."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM rounds WHERE id = ?", (round_id,))
            connection.execute("DELETE FROM answers WHERE round = ?", (round_id,))

    # --- answers ------------------------------------------------------------------------------------------------------------

    def answer(self, round_id: str, person: str, name: str, answer: Answer, most: int = MOST_PEOPLE) -> int:
        """Keep a student's answer, in place of an earlier one; gives how many have answered. ``most`` of them are counted."""
        text = json.dumps(answer)
        with self._database.change() as connection:
            if _found(connection, round_id).state != "open":
                raise Refused(CLOSED)
            where = "round = ? AND person = ?"
            known = connection.execute(f"SELECT changes, answer FROM answers WHERE {where}", (round_id, person)).fetchone()
            if known is None:
                if _answered(connection, round_id) >= most:
                    raise Refused(f"{most} people have answered, and the class has no more places. Tell your teacher.")
                row = (round_id, person, encode_text(name), text, 0, self._now())
                connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)
            elif known[1] != text:
                if known[0] >= MOST_CHANGES:
                    raise Refused(f"You have changed your answer {MOST_CHANGES} times. The last one counts.")
                values = (encode_text(name), text, self._now(), round_id, person)
                connection.execute(f"UPDATE answers SET name = ?, answer = ?, changes = changes + 1, at = ? WHERE {where}", values)
            return _answered(connection, round_id)

    def answers(self, round_id: str) -> list[Given]:
        """The answers of a round, in the order in which they came."""
        with self._database.read() as connection:
            rounds = [] if connection is None else _rounds(connection, round_id)
            if connection is None or not rounds:
                return []
            asked = rounds[0].question
            found = connection.execute("SELECT person, name, answer, changes, at FROM answers WHERE round = ? ORDER BY at", (round_id,))
            return [Given(person, decode_text(name), _answer(asked, text), changes, at) for person, name, text, changes, at in found]

    # --- people -------------------------------------------------------------------------------------------------------------

    def come(self, person: str) -> float:
        """A student has opened the class link, for the first time since it was made; gives when."""
        with self._database.change() as connection:
            connection.execute("INSERT OR IGNORE INTO students (person, at) VALUES (?, ?)", (person, self._now()))
            return float(connection.execute("SELECT at FROM students WHERE person = ?", (person,)).fetchone()[0])

    def students(self) -> dict[str, float]:
        """When each student came, the first one first."""
        with self._database.read() as connection:
            return dict([] if connection is None else connection.execute("SELECT person, at FROM students ORDER BY number").fetchall())

    def strike(self, people: Sequence[str]) -> None:
        """Forget these students, with all that they have answered."""
        with self._database.change() as connection:
            for table in ("students", "answers", "people"):
                connection.executemany(f"DELETE FROM {table} WHERE person = ?", [(person,) for person in people])
        self._database.tidy()

    def begin_again(self) -> None:
        """Nobody has come yet, as with a new link. What was answered stays."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM students")

    def names(self) -> dict[str, str]:
        """What the students of the present class have typed, by the keys of their cookies."""
        with self._database.read() as connection:
            found = [] if connection is None else connection.execute("SELECT person, name FROM people").fetchall()
            return {person: decode_text(name) for person, name in found}

    def set_name(self, person: str, name: str) -> None:
        """Keep the name that a student typed; an empty one is forgotten."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM people WHERE person = ?", (person,))
            if name:
                if connection.execute("SELECT count(*) FROM people").fetchone()[0] >= MOST_PEOPLE:
                    raise Refused(f"{MOST_PEOPLE} people have said their names, and more are not kept.")
                connection.execute("INSERT INTO people VALUES (?, ?, ?)", (person, encode_text(name), self._now()))
            connection.execute("UPDATE answers SET name = ? WHERE person = ?", (encode_text(name), person))

    def remove_names(self) -> None:
        """Forget all names of the present class."""
        with self._database.change() as connection:
            connection.execute("UPDATE answers SET name = '' WHERE person NOT LIKE 'ended-%'")
            connection.execute("DELETE FROM people")
        self._database.tidy()

    def end_class(self) -> None:
        """Forget who the students were: of an answer its name is left, where one was typed. Open rounds are put away."""
        if not self._database.exists():
            return
        with self._database.change() as connection:
            connection.execute("UPDATE rounds SET state = 'over'")
            connection.execute("UPDATE answers SET person = 'ended-' || hex(randomblob(8)) WHERE person NOT LIKE 'ended-%'")
            for table in ("people", "notes", "students"):
                connection.execute(f"DELETE FROM {table}")
        self._database.tidy()

    def end_older(self, seconds: float) -> None:
        """The same for a class that nobody has ended, such as after a power cut, if nothing has happened in it for so long."""
        with self._database.read() as connection:
            newest = None if connection is None else _newest(connection)
        if newest is not None and self._now() - newest > seconds:
            self.end_class()


def _newest(connection: sqlite3.Connection) -> float | None:
    """When something last happened in a class that has not ended; None where there is none."""
    found = connection.execute(
        """SELECT max(at) FROM (SELECT at FROM people UNION ALL SELECT at FROM notes UNION ALL SELECT at FROM students
        UNION ALL SELECT at FROM answers WHERE person NOT LIKE 'ended-%' UNION ALL SELECT asked_at FROM rounds WHERE state <> 'over')"""
    ).fetchone()[0]
    return None if found is None else float(found)


def _rounds(connection: sqlite3.Connection, round_id: str | None = None) -> list[Round]:
    rows = connection.execute(
        """SELECT id, question, state, run, asked_at, (SELECT count(*) FROM answers WHERE round = id) FROM rounds
        WHERE ?1 IS NULL OR id = ?1 ORDER BY number DESC""",
        (round_id,),
    )
    return [Round(name, _question(question), _state(state), run, at, answered) for name, question, state, run, at, answered in rows]


def _found(connection: sqlite3.Connection, round_id: str) -> Round:
    found = _rounds(connection, round_id)
    if not found:
        raise Refused(GONE)
    return found[0]


def _question(text: str) -> Question:
    values = json.loads(decode_text(text))
    return Question(**{**values, "options": tuple(values["options"])})


def _state(text: str) -> State:
    return STATES[STATES.index(text)]  # ValueError, which is damage, for what is no state


def _answer(question: Question, text: str) -> Answer:
    """An answer as it was kept. Raises ValueError for what nobody can have answered to this question."""
    value = json.loads(text)
    if question.kind == "options":
        return read_answer(question, value)
    if len(value) != POINTS or not all(isinstance(height, float) and math.isfinite(height) for height in value):
        raise ValueError("this is no curve of the round")
    return tuple(value)


def _answered(connection: sqlite3.Connection, round_id: str) -> int:
    return int(connection.execute("SELECT count(*) FROM answers WHERE round = ?", (round_id,)).fetchone()[0])
