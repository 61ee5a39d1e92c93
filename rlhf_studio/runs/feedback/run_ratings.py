"""What a run asks people in one of its steps. Each function runs inside one transaction of the engine.

An answer is kept by run, step and the texts of prompt and response: a step that is trained again after a resume, with the same random
numbers, finds what was answered before, and asks only for what is missing. What was answered on another scale is no such answer:
each scale has a task of its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from rlhf_studio.runs.feedback import rows, tasks
from rlhf_studio.runs.feedback.records import Asked, NewItem, NewTask, Task


def ask(connection: sqlite3.Connection, task_id: str, run: str, settings: NewTask, items: Sequence[NewItem], deadline: float) -> Asked:
    """Open the run's task with these items, of one step, and with no others.

    ``task_id`` is where a run with one scale asks; after a resume with another scale it asks in a new task, and the old one is closed.
    """
    task = _task_of_scale(connection, task_id, run, settings)
    if task.settings != settings:  # a resume may have changed the words or the number of annotators
        tasks.change_settings(connection, task, settings)
        task = replace(task, settings=settings)
    task_id = task.id
    problems = tasks.insert_items(connection, task, list(enumerate(items, start=1))).problems
    if problems:
        raise ValueError(problems[0])
    keys = {rows.item_key(item) for item in items}
    step = items[0].step
    found = connection.execute("SELECT key, id FROM items WHERE task = ? AND step = ?", (task_id, step)).fetchall()
    wanted = {key: item for key, item in found if key in keys}
    connection.execute("UPDATE items SET open = 0 WHERE task = ?", (task_id,))
    connection.executemany(
        "UPDATE items SET open = votes < ?, used = 0 WHERE id = ?", [(settings.annotators, item) for item in wanted.values()]
    )
    connection.execute("UPDATE tasks SET open = 1, deadline = ? WHERE id = ?", (deadline, task_id))
    return Asked(task_id, wanted)


def _task_of_scale(connection: sqlite3.Connection, task_id: str, run: str, settings: NewTask) -> Task:
    """The task for this scale, made where there is none; those of other scales are closed."""
    other = f"{task_id}-to-"
    known = [row[0] for row in connection.execute("SELECT id FROM tasks WHERE run = ?", (run,))]
    known = [one for one in known if one == task_id or one.startswith(other)]
    connection.executemany("UPDATE tasks SET open = 0, deadline = NULL WHERE id = ?", [(one,) for one in known])
    first = rows.find_task(connection, task_id)
    if first is not None and first.settings.points != settings.points:
        task_id = f"{other}{settings.points}"
    return rows.find_task(connection, task_id) or tasks.insert_task(connection, settings, task_id=task_id, run=run)


def given(connection: sqlite3.Connection, task_id: str, step: int, annotators: int) -> dict[int, list[int]]:
    """The ratings of a step's items by item, in the order in which they came, at most as many as were asked for."""
    found = connection.execute(
        """SELECT votes.item, value FROM votes JOIN items ON items.id = votes.item
           WHERE items.task = ? AND items.step = ? AND undone_at IS NULL AND verdict = 'rating' ORDER BY votes.number""",
        (task_id, step),
    )
    ratings: dict[int, list[int]] = {}
    for item, value in found:
        ratings.setdefault(item, []).append(json.loads(value))
    return {item: values[:annotators] for item, values in ratings.items()}


def set_deadline(connection: sqlite3.Connection, task_id: str, deadline: float) -> None:
    """Say until when the run waits, in seconds since 1970."""
    connection.execute("UPDATE tasks SET deadline = ? WHERE id = ?", (deadline, task_id))


def end(connection: sqlite3.Connection, task_id: str, step: int, *, used: bool) -> None:
    """The run waits no more. ``used``: it has gone on, so that nothing of this step can be taken back."""
    connection.execute("UPDATE tasks SET open = 0, deadline = NULL WHERE id = ?", (task_id,))
    if used:
        connection.execute("UPDATE items SET open = 0, used = 1 WHERE task = ? AND step = ?", (task_id, step))


def waiting(connection: sqlite3.Connection) -> list[Task]:
    """The tasks that runs wait for, or waited for when they were killed."""
    found = connection.execute(f"SELECT {rows.TASK_COLUMNS} FROM tasks WHERE run != '' AND open")
    return [rows.read_task(row) for row in found]
