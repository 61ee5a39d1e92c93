"""Human feedback of one workspace, for the app, the engine and programs."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlhf_studio.runs.feedback import tasks, turns
from rlhf_studio.runs.feedback.records import (
    TASKS,
    VOTES,
    Added,
    AskedItems,
    Item,
    NewItem,
    NewTask,
    NewVote,
    Task,
    TaskProgress,
    Turn,
    Vote,
    check_item,
)
from rlhf_studio.runs.people import Database, NotPossible

__all__ = ["Feedback", "NotPossible"]

RATING_LINK = "rating link"


class Feedback:
    """Tasks, items and answers below ``root``. Safe for several threads, and several processes may use one workspace.

    Every method is one transaction: what it returns is on the disk. All raise StoreError when the database cannot be used, and NotPossible,
    with one sentence for people, for what cannot be done.
    """

    def __init__(self, root: Path):
        self._database = Database(Path(root))

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # --- tasks -----------------------------------------------------------------------------------------------------------

    def create(self, settings: NewTask, items: Sequence[NewItem] = ()) -> tuple[Task, Added]:
        """Make a task with its first items."""
        good, problems = tasks.usable(settings, enumerate(items, start=1))
        with self._database.change() as connection:
            task = tasks.insert_task(connection, settings)
            added = tasks.insert_items(connection, task, good)
        return task, replace(added, problems=tasks.shortened([*problems, *added.problems]))

    def add_items(self, task_id: str, items: Sequence[NewItem], rows: Sequence[int] | None = None) -> Added:
        """Add items to a task. An item that it has already, text for text, is counted and not added again.

        ``rows`` are the numbers of the rows that a person gave the items in, which problems name; None where each item is a row.
        """
        numbers = range(1, len(items) + 1) if rows is None else rows
        good, problems = tasks.usable(self.task(task_id).settings, zip(numbers, items, strict=True))
        with self._database.change() as connection:
            added = tasks.insert_items(connection, turns.existing_task(connection, task_id), good)
        return replace(added, problems=tasks.shortened([*problems, *added.problems]))

    def tasks(self) -> list[Task]:
        """All tasks: those that runs wait for first, then the newest."""
        with self._database.read() as connection:
            return [] if connection is None else TASKS.records(connection, "ORDER BY run != '' AND open DESC, created_at DESC, id")

    def task(self, task_id: str) -> Task:
        """One task."""
        with self._database.read() as connection:
            task = None if connection is None else tasks.find_task(connection, task_id)
        if task is None:
            raise NotPossible(turns.GONE)
        return task

    def change(self, task_id: str, settings: NewTask) -> None:
        """Other guidelines, another number of annotators, another order ... but no other kind or scale."""
        with self._database.change() as connection:
            tasks.change_settings(connection, turns.existing_task(connection, task_id), settings)

    def set_open(self, task_id: str, is_open: bool) -> None:
        """Close a task for annotators, or open it again."""
        with self._database.change() as connection:
            turns.existing_task(connection, task_id)
            connection.execute("UPDATE tasks SET open = ? WHERE id = ?", (int(is_open), task_id))

    def delete(self, task_id: str) -> None:
        """Remove a task with its items and all answers."""
        with self._database.change() as connection:
            turns.existing_task(connection, task_id)
            for table in ("votes", "leases", "items", "calibrations"):
                connection.execute(f"DELETE FROM {table} WHERE task = ?", (task_id,))
            connection.execute("DELETE FROM tasks WHERE id = ?", (task_id,))

    # --- annotators ------------------------------------------------------------------------------------------------------

    def sign_in(self, name: str, secret: str, *, trusted: bool = False) -> str:
        """The annotator's name as it is written in the votes: see :func:`rlhf_studio.runs.feedback.tasks.sign_in`."""
        with self._database.change() as connection:
            return tasks.sign_in(connection, name, secret, trusted=trusted)

    def turn(self, task_id: str, annotator: str) -> Turn:
        """What the annotator does now."""
        with self._database.change() as connection:
            return turns.turn(connection, turns.existing_task(connection, task_id), annotator)

    def vote(self, task_id: str, annotator: str, vote: NewVote) -> Turn:
        """Store an answer, once, and say what comes next. It is on the disk when this returns."""
        if not (0 < len(vote.id) <= 80 and vote.id.isprintable()):
            raise NotPossible("This answer has no name of its own. Reload the page.")
        with self._database.change() as connection:
            task = turns.existing_task(connection, task_id)
            expected = turns.vote(connection, task, annotator, vote)
            return turns.turn(connection, task, annotator, expected)

    def undo(self, task_id: str, annotator: str, vote_id: str) -> Turn:
        """Take back the annotator's last answer; its item is shown again."""
        with self._database.change() as connection:
            task = turns.existing_task(connection, task_id)
            turns.undo(connection, task, annotator, vote_id)
            return turns.turn(connection, task, annotator)

    def begin_again(self, task_id: str, annotator: str) -> Turn:
        """Another round with the known answers."""
        with self._database.change() as connection:
            task = turns.existing_task(connection, task_id)
            turns.begin_again(connection, task, annotator)
            return turns.turn(connection, task, annotator)

    def rating_link(self, *, renew: bool = False) -> str:
        """The token of the link that makes people raters; it stays the same when the app starts again."""
        with self._database.change() as connection:
            known = _rating_link(connection)
            if renew or not known:
                known = secrets.token_urlsafe(18)
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (RATING_LINK, known))
            return known

    def known_rating_link(self) -> str:
        """The same without making one: empty when nobody has asked for it yet."""
        with self._database.read() as connection:
            return "" if connection is None else _rating_link(connection)

    # --- what was answered -----------------------------------------------------------------------------------------------

    def progress(self, task_id: str) -> TaskProgress:
        """How far a task is."""
        with self._database.read() as connection:
            task = None if connection is None else tasks.find_task(connection, task_id)
            if connection is None or task is None:
                raise NotPossible(turns.GONE)
            return turns.progress(connection, task)

    def items(self, task_id: str, *, calibration: bool = False) -> list[Item]:
        """The task's real items in the order in which they were added, or its calibration items."""
        known = "NOT NULL" if calibration else "NULL"
        with self._database.read() as connection:
            if connection is None:
                return []
            return tasks.find_items(connection, f"WHERE task = ? AND answer IS {known} ORDER BY number", (task_id,))

    def votes(self, task_id: str, *, calibration: bool = False) -> list[Vote]:
        """The answers that are in force, in the order in which they came: of real items, or of all calibration rounds."""
        with self._database.read() as connection:
            if connection is None:
                return []
            which = "WHERE task = ? AND (attempt > 0) = ? AND undone_at IS NULL ORDER BY number"
            return VOTES.records(connection, which, (task_id, int(calibration)))

    # --- a run that asks -------------------------------------------------------------------------------------------------

    def ask(self, task_id: str, run: str, settings: NewTask, items: Sequence[NewItem], deadline: float) -> AskedItems:
        """Ask for ratings of the items of one step: see :func:`rlhf_studio.runs.feedback.tasks.ask`.

        Raises ValueError for an item that nobody can be asked.
        """
        for item in items:
            check_item(settings, item)
        with self._database.change() as connection:
            return tasks.ask(connection, task_id, run, settings, items, deadline)

    def ratings(self, task_id: str, step: int, annotators: int) -> dict[int, list[int]]:
        """What people have answered so far, by item."""
        with self._database.read() as connection:
            return {} if connection is None else tasks.given(connection, task_id, step, annotators)

    def take_ratings(
        self, task_id: str, step: int, annotators: int, items: Sequence[int], *, all_of_them: bool
    ) -> dict[int, list[int]] | None:
        """The ratings with which the run goes on. From now on none of them can be taken back.

        With ``all_of_them``, returns None and changes nothing while one of ``items`` has fewer than ``annotators`` ratings.
        """
        with self._database.change() as connection:
            ratings = tasks.given(connection, task_id, step, annotators)
            if all_of_them and any(len(ratings.get(item, ())) < annotators for item in items):
                return None
            tasks.end_asking(connection, task_id, step, used=True)
            return ratings

    def set_deadline(self, task_id: str, deadline: float) -> None:
        """Say until when the run waits, in seconds since 1970."""
        with self._database.change() as connection:
            connection.execute("UPDATE tasks SET deadline = ? WHERE id = ?", (deadline, task_id))

    def stop_asking(self, task_id: str, step: int) -> None:
        """The run has stopped: nobody is asked any more, and what was answered waits for its resume."""
        with self._database.change() as connection:
            tasks.end_asking(connection, task_id, step, used=False)

    def waiting(self) -> list[Task]:
        """The open tasks of runs. A run that was killed has left its task open: whether it waits, the run's own state says."""
        with self._database.read() as connection:
            return [] if connection is None else TASKS.records(connection, "WHERE run != '' AND open")


def _rating_link(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (RATING_LINK,)).fetchone()
    return "" if row is None else str(row[0])
