"""The rounds of one workspace, and who is in its class, in ``people.db``."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.runs.classroom.records import (
    MOST_CHANGES,
    MOST_PEOPLE,
    MOST_ROUNDS,
    POINTS,
    STATES,
    AnswerValue,
    Round,
    RoundQuestion,
    State,
    StudentAnswer,
    read_answer,
)
from rlhf_studio.runs.codec import RecordTable, as_json, choice, integer, plain, real, text
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import FileLock
from rlhf_studio.runs.people import Database, NotPossible
from rlhf_studio.runs.values import decode_text, encode_text

CLOSED = S_("This round is closed.")
GONE = S_("This round is not there any more.")


def _read_question(values: Any) -> RoundQuestion:
    return RoundQuestion(**{**values, "options": tuple(values["options"])})


ROUNDS = RecordTable(
    "rounds",
    Round,
    plain("id"),
    as_json("question", read=_read_question, write=asdict),
    choice("state", STATES),
    plain("run"),
    real("asked_at"),
)
"""``answered`` is counted."""
ANSWERS = RecordTable("answers", StudentAnswer, plain("person"), text("name"), as_json("answer"), integer("changes"), real("at"))


class ClassStore:
    """Rounds and answers below ``root``. Safe for several threads.

    Every method is one transaction: what it returns is on the disk. All raise StoreError when the database cannot be used, and NotPossible,
    with one sentence for people, for what cannot be done.
    """

    def __init__(self, root: Path, now: Callable[[], float] = time.time):
        self._database = Database(Path(root))
        self._now = now

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # --- the class ----------------------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, str]:
        """What was noted of a class that has not ended, by name."""
        with self._database.read() as connection:
            rows = [] if connection is None else connection.execute("SELECT name, value FROM class_notes").fetchall()
            return {decode_text(name): decode_text(value) for name, value in rows}

    def note(self, **values: str) -> None:
        """Note something of the present class, in place of what was noted under the same name."""
        with self._database.change() as connection:
            rows = [(name, encode_text(value), self._now()) for name, value in values.items()]
            connection.executemany("INSERT OR REPLACE INTO class_notes VALUES (?, ?, ?)", rows)

    # --- rounds -------------------------------------------------------------------------------------------------------------

    def ask(self, question: RoundQuestion, run: str = "") -> Round:
        """Begin a round. The round before it is over."""
        made = Round(secrets.token_hex(6), question, "open", run, self._now(), 0)
        with self._database.change() as connection:
            if connection.execute("SELECT count(*) FROM rounds").fetchone()[0] >= MOST_ROUNDS:
                raise NotPossible(f"A workspace keeps {MOST_ROUNDS} rounds. Save and delete earlier ones first.")
            connection.execute("UPDATE rounds SET state = 'over'")
            ROUNDS.insert(connection, [made])
        return made

    def rounds(self) -> list[Round]:
        """All rounds, the newest first."""
        with self._database.read() as connection:
            return [] if connection is None else _rounds(connection)

    def round(self, round_id: str) -> Round:
        """One round."""
        with self._database.read() as connection:
            rounds = [] if connection is None else _rounds(connection, round_id)
        if not rounds:
            raise NotPossible(GONE)
        return rounds[0]

    def move(self, round_id: str, state: State) -> Round:
        """Move a round on to a later state. Moving it to an earlier state changes nothing.

        One step back is possible: a closed round, whose answers nobody has seen yet, can be opened again.
        """
        with self._database.change() as connection:
            known = _round(connection, round_id)
            if STATES.index(state) > STATES.index(known.state) or (known.state, state) == ("closed", "open"):
                connection.execute("UPDATE rounds SET state = ? WHERE id = ?", (state, round_id))
            return _round(connection, round_id)

    def show_again(self, round_id: str) -> Round:
        """Show the answers of a round that is over. Raises NotPossible while another round is going on."""
        with self._database.change() as connection:
            _round(connection, round_id)
            if connection.execute("SELECT count(*) FROM rounds WHERE state <> 'over' AND id <> ?", (round_id,)).fetchone()[0]:
                raise NotPossible("Put the present round away first.")
            connection.execute("UPDATE rounds SET state = 'shown' WHERE id = ? AND state = 'over'", (round_id,))
            return _round(connection, round_id)

    def set_run(self, round_id: str, run: str) -> Round:
        """Say whose curve answers the question."""
        with self._database.change() as connection:
            connection.execute("UPDATE rounds SET run = ? WHERE id = ?", (run, round_id))
            return _round(connection, round_id)

    def delete(self, round_id: str) -> None:
        """Remove a round with its answers."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM rounds WHERE id = ?", (round_id,))
            connection.execute("DELETE FROM answers WHERE round = ?", (round_id,))

    # --- answers ------------------------------------------------------------------------------------------------------------

    def answer(self, round_id: str, person: str, name: str, answer: AnswerValue, most: int = MOST_PEOPLE) -> int:
        """Store a student's answer in place of an earlier one. Returns how many students have answered; at most ``most`` may."""
        stored = json.dumps(answer)
        with self._database.change() as connection:
            if _round(connection, round_id).state != "open":
                raise NotPossible(CLOSED)
            where = "round = ? AND person = ?"
            known = connection.execute(f"SELECT changes, answer FROM answers WHERE {where}", (round_id, person)).fetchone()
            if known is None:
                if _answered(connection, round_id) >= most:
                    raise NotPossible(f"{most} people have answered, and the class has no more places. Tell your teacher.")
                ANSWERS.insert(connection, [StudentAnswer(person, name, answer, 0, self._now())], round=round_id)
            elif known[1] != stored:
                if known[0] >= MOST_CHANGES:
                    raise NotPossible(f"You have changed your answer {MOST_CHANGES} times. The last one counts.")
                values = (encode_text(name), stored, self._now(), round_id, person)
                connection.execute(f"UPDATE answers SET name = ?, answer = ?, changes = changes + 1, at = ? WHERE {where}", values)
            return _answered(connection, round_id)

    def answers(self, round_id: str) -> list[StudentAnswer]:
        """The answers of a round, in the order in which they came."""
        with self._database.read() as connection:
            rounds = [] if connection is None else _rounds(connection, round_id)
            if connection is None or not rounds:
                return []
            question = rounds[0].question
            answers = ANSWERS.records(connection, "WHERE round = ? ORDER BY at", (round_id,))
            return [replace(given, answer=_answer(question, given.answer)) for given in answers]

    # --- people -------------------------------------------------------------------------------------------------------------

    def come(self, person: str) -> float:
        """Note that a student has opened the class link. Returns when that was for the first time, in seconds since 1970."""
        with self._database.change() as connection:
            connection.execute("INSERT OR IGNORE INTO students (person, at) VALUES (?, ?)", (person, self._now()))
            return float(connection.execute("SELECT at FROM students WHERE person = ?", (person,)).fetchone()[0])

    def students(self) -> dict[str, float]:
        """When each student came, the first one first."""
        with self._database.read() as connection:
            return dict([] if connection is None else connection.execute("SELECT person, at FROM students ORDER BY number").fetchall())

    def strike(self, people: Sequence[str]) -> None:
        """Forget these students and all their answers."""
        with self._database.forget() as connection:
            for table in ("students", "answers", "class_names"):
                connection.executemany(f"DELETE FROM {table} WHERE person = ?", [(person,) for person in people])

    def begin_again(self) -> None:
        """Forget who has come, as for a new link. The answers stay."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM students")

    def names(self) -> dict[str, str]:
        """What the students of the present class have typed, by the keys of their cookies."""
        with self._database.read() as connection:
            rows = [] if connection is None else connection.execute("SELECT person, name FROM class_names").fetchall()
            return {person: decode_text(name) for person, name in rows}

    def set_name(self, person: str, name: str) -> None:
        """Keep the name that a student typed; an empty one is forgotten."""
        with self._database.change() as connection:
            connection.execute("DELETE FROM class_names WHERE person = ?", (person,))
            if name:
                if connection.execute("SELECT count(*) FROM class_names").fetchone()[0] >= MOST_PEOPLE:
                    raise NotPossible(f"{MOST_PEOPLE} people have said their names, and more are not kept.")
                connection.execute("INSERT INTO class_names VALUES (?, ?, ?)", (person, encode_text(name), self._now()))
            connection.execute("UPDATE answers SET name = ? WHERE person = ?", (encode_text(name), person))

    def remove_names(self) -> None:
        """Forget all names of the present class."""
        with self._database.forget() as connection:
            connection.execute("UPDATE answers SET name = '' WHERE person NOT LIKE 'ended-%'")
            connection.execute("DELETE FROM class_names")

    def end_class(self) -> None:
        """Forget who the students were. An answer keeps only the name that was typed, if any. Open rounds are over."""
        if not self._database.exists():
            return
        with self._database.forget() as connection:
            connection.execute("UPDATE rounds SET state = 'over'")
            connection.execute("UPDATE answers SET person = 'ended-' || hex(randomblob(8)) WHERE person NOT LIKE 'ended-%'")
            for table in ("class_names", "class_notes", "students"):
                connection.execute(f"DELETE FROM {table}")

    def end_older(self, seconds: float) -> None:
        """End the class when nothing has happened in it for so many seconds, for instance after a power cut."""
        with self._database.read() as connection:
            newest = None if connection is None else _newest(connection)
        if newest is not None and self._now() - newest > seconds:
            self.end_class()


def _newest(connection: sqlite3.Connection) -> float | None:
    """When something last happened in a class that has not ended; None where there is none."""
    newest = connection.execute(
        """SELECT max(at) FROM (SELECT at FROM class_names UNION ALL SELECT at FROM class_notes UNION ALL SELECT at FROM students
        UNION ALL SELECT at FROM answers WHERE person NOT LIKE 'ended-%' UNION ALL SELECT asked_at FROM rounds WHERE state <> 'over')"""
    ).fetchone()[0]
    return None if newest is None else float(newest)


def _rounds(connection: sqlite3.Connection, round_id: str | None = None) -> list[Round]:
    answered = "(SELECT count(*) FROM answers WHERE round = id)"
    rows = ROUNDS.select(connection, "WHERE ?1 IS NULL OR id = ?1 ORDER BY number DESC", (round_id,), keys=(answered,))
    return [Round(**values, answered=count) for (count,), values in rows]


def _round(connection: sqlite3.Connection, round_id: str) -> Round:
    rounds = _rounds(connection, round_id)
    if not rounds:
        raise NotPossible(GONE)
    return rounds[0]


def _answer(question: RoundQuestion, value: Any) -> AnswerValue:
    """An answer as it was kept. Raises ValueError for what nobody can have answered to this question."""
    if question.kind == "options":
        return read_answer(question, value)
    if len(value) != POINTS or not all(isinstance(height, float) and math.isfinite(height) for height in value):
        raise ValueError("this is no curve of the round")
    return tuple(value)


def _answered(connection: sqlite3.Connection, round_id: str) -> int:
    return int(connection.execute("SELECT count(*) FROM answers WHERE round = ?", (round_id,)).fetchone()[0])


# --- which app has the class -------------------------------------------------------------------------------------------------

HELD = S_(
    "Another app that was started with --classroom holds the class of {root}. Its students and answers are in it: go on there, or end that "
    "app first, or start this one with another --workspace."
)


class Holding(FileLock):
    """One app's claim on the class below ``root``: one at a time, and an app that was killed holds nothing."""

    def __init__(self, root: Path):
        super().__init__(Path(root) / "class.lock", StoreError(HELD.format(root=root), "alive"))

    @property
    def held(self) -> bool:
        """Whether this app has it."""
        return self.descriptor is not None
