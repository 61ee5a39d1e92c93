"""Making tasks, filling them, what runs ask, and who the annotators are. Each function runs inside one transaction."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.runs.feedback.records import (
    ITEMS,
    LONGEST_NAME,
    MOST_ITEMS,
    OF_ITEM,
    TASKS,
    Added,
    AskedItems,
    Item,
    NewItem,
    NewTask,
    Task,
    check_item,
    item_key,
    priority,
)
from rlhf_studio.runs.people import NotPossible
from rlhf_studio.visible import refuse_hidden

MOST_PROBLEMS = 20  # that are named one by one
MOST_ANNOTATORS = 10_000  # names that browsers may have taken; anybody may invent some where anybody may vote


def new_id() -> str:
    """An id for a task."""
    return f"task-{secrets.token_hex(6)}"


def insert_task(connection: sqlite3.Connection, settings: NewTask, *, task_id: str = "", run: str = "") -> Task:
    """Make a task without items."""
    task = Task(task_id or new_id(), settings, run, True, None, time.time())
    TASKS.insert(connection, [task])
    return task


def find_task(connection: sqlite3.Connection, task_id: str) -> Task | None:
    """A task by its id."""
    return TASKS.first(connection, "WHERE id = ?", (task_id,))


def find_items(connection: sqlite3.Connection, rest: str, parameters: Sequence[Any]) -> list[Item]:
    """Items; ``rest`` is what follows the name of the table in SQL."""
    return [
        Item(**dict(zip(OF_ITEM, keys, strict=True)), **values) for keys, values in ITEMS.select(connection, rest, parameters, keys=OF_ITEM)
    ]


def find_item(connection: sqlite3.Connection, item: int) -> Item | None:
    """An item by its id."""
    return next(iter(find_items(connection, "WHERE id = ?", (item,))), None)


def usable(settings: NewTask, items: Iterable[tuple[int, NewItem]]) -> tuple[list[tuple[int, NewItem]], list[str]]:
    """The items that a task can take, each with its row number, and one sentence for each of the others.

    Call it before the transaction begins.
    """
    good: list[tuple[int, NewItem]] = []
    problems: list[str] = []
    for row, item in items:
        try:
            check_item(settings, item)
        except ValueError as error:
            problems.append(f"Row {row}: {error}.")
        else:
            good.append((row, item))
    return good, problems


def insert_items(connection: sqlite3.Connection, task: Task, items: Iterable[tuple[int, NewItem]]) -> Added:
    """Add items that are :func:`usable`, each with its row; those that the task has already are counted."""
    last, real = connection.execute("SELECT coalesce(max(number), 0), count(*) FROM items WHERE task = ?", (task.id,)).fetchone()
    added = repeated = 0
    problems: list[str] = []
    for row, item in items:
        if real + added >= MOST_ITEMS:
            problems.append(S_(f"Row {row}: a task has at most {MOST_ITEMS:,} items."))
            break
        key, is_real = item_key(item), item.answer is None
        at = priority(task.settings, key, item.uncertainty)
        keys = {"task": task.id, "number": last + added + 1, "key": key, "priority": at, "votes": 0, "open": int(is_real)}
        stored = ITEMS.insert(connection, [item], or_else="IGNORE", **keys)  # a calibration item is open to nobody's turn
        added, repeated = added + stored, repeated + 1 - stored
    return Added(added, repeated, problems)


def shortened(problems: Sequence[str], more: int = 0) -> list[str]:
    """The first :data:`MOST_PROBLEMS` of the problems, and how many follow. ``more`` counts problems that are not in the list."""
    rest = len(problems) - MOST_PROBLEMS + more
    return [*problems[:MOST_PROBLEMS], *([S_(f"And {rest:,} more rows.")] if rest > 0 else [])]


def change_settings(connection: sqlite3.Connection, task: Task, settings: NewTask) -> None:
    """Other words, another number of annotators, another order. Raises NotPossible for another kind or scale."""
    before = task.settings
    if (settings.kind, settings.points) != (before.kind, before.points):
        raise NotPossible("A task keeps its kind and its scale; make a new task for another one.")
    TASKS.insert(connection, [replace(task, settings=settings)], or_else="REPLACE")
    if settings.annotators != before.annotators:
        connection.execute(
            "UPDATE items SET open = votes < ? WHERE task = ? AND answer IS NULL AND NOT used", (settings.annotators, task.id)
        )
    if settings.order != before.order:
        for item, key, uncertainty in connection.execute("SELECT id, key, uncertainty FROM items WHERE task = ?", (task.id,)).fetchall():
            connection.execute("UPDATE items SET priority = ? WHERE id = ?", (priority(settings, key, uncertainty), item))


# --- what a run asks people in one of its steps --------------------------------------------------------------------------------
#
# An answer is kept by run, step and the texts of prompt and response: a step that is trained again after a resume, with the same random
# numbers, finds what was answered before, and asks only for what is missing. What was answered on another scale is no such answer:
# each scale has a task of its own.


def ask(connection: sqlite3.Connection, task_id: str, run: str, settings: NewTask, items: Sequence[NewItem], deadline: float) -> AskedItems:
    """Open the run's task with these items of one step, and with no others.

    ``task_id`` is the task of a run with one scale. After a resume with another scale, the run asks in a new task, and the old one is
    closed.
    """
    task = _task_of_scale(connection, task_id, run, settings)
    if task.settings != settings:  # a resume may have changed the words or the number of annotators
        change_settings(connection, task, settings)
        task = replace(task, settings=settings)
    task_id = task.id
    problems = insert_items(connection, task, list(enumerate(items, start=1))).problems
    if problems:
        raise ValueError(problems[0])
    keys = {item_key(item) for item in items}
    step = items[0].step
    known = connection.execute("SELECT key, id FROM items WHERE task = ? AND step = ?", (task_id, step)).fetchall()
    item_ids = {key: item for key, item in known if key in keys}
    connection.execute("UPDATE items SET open = 0 WHERE task = ?", (task_id,))
    connection.executemany(
        "UPDATE items SET open = votes < ?, used = 0 WHERE id = ?", [(settings.annotators, item) for item in item_ids.values()]
    )
    connection.execute("UPDATE tasks SET open = 1, deadline = ? WHERE id = ?", (deadline, task_id))
    return AskedItems(task_id, item_ids)


def _task_of_scale(connection: sqlite3.Connection, task_id: str, run: str, settings: NewTask) -> Task:
    """The task for this scale, made where there is none; those of other scales are closed."""
    other = f"{task_id}-to-"
    known = [row[0] for row in connection.execute("SELECT id FROM tasks WHERE run = ?", (run,))]
    known = [name for name in known if name == task_id or name.startswith(other)]
    connection.executemany("UPDATE tasks SET open = 0, deadline = NULL WHERE id = ?", [(name,) for name in known])
    first = find_task(connection, task_id)
    if first is not None and first.settings.points != settings.points:
        task_id = f"{other}{settings.points}"
    return find_task(connection, task_id) or insert_task(connection, settings, task_id=task_id, run=run)


def given(connection: sqlite3.Connection, task_id: str, step: int, annotators: int) -> dict[int, list[int]]:
    """The ratings of a step by item id, in the order in which they came, at most ``annotators`` for each item."""
    rows = connection.execute(
        """SELECT votes.item, value FROM votes JOIN items ON items.id = votes.item
           WHERE items.task = ? AND items.step = ? AND undone_at IS NULL AND verdict = 'rating' ORDER BY votes.number""",
        (task_id, step),
    )
    ratings: dict[int, list[int]] = {}
    for item, value in rows:
        ratings.setdefault(item, []).append(json.loads(value))
    return {item: values[:annotators] for item, values in ratings.items()}


def end_asking(connection: sqlite3.Connection, task_id: str, step: int, *, used: bool) -> None:
    """Note that the run no longer waits. ``used``: the run has gone on, so no rating of this step can be taken back."""
    connection.execute("UPDATE tasks SET open = 0, deadline = NULL WHERE id = ?", (task_id,))
    if used:
        connection.execute("UPDATE items SET open = 0, used = 1 WHERE task = ? AND step = ?", (task_id, step))


# --- annotators ------------------------------------------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """An annotator's name without blanks around it. Raises NotPossible for one that cannot be used."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME:
        raise NotPossible(f"Give a name of at most {LONGEST_NAME} characters.")
    try:
        refuse_hidden(name, S_("A name"))
    except ValueError as error:
        raise NotPossible(f"{error}.") from error
    return name


def sign_in(connection: sqlite3.Connection, name: str, secret: str, *, trusted: bool = False) -> str:
    """The annotator's name as it was first written. A name belongs to the browser that first used it; that browser has a secret.

    ``trusted`` people (operators) may use any name. Raises NotPossible when the name belongs to somebody else.
    """
    name = checked_name(name)
    digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
    row = connection.execute("SELECT name, secret FROM annotators WHERE name = ?", (name,)).fetchone()
    if row is None:
        if len(secret) < 8 and not trusted:
            raise NotPossible("This browser gave no key of its own. Reload the page.")
        if not trusted and connection.execute("SELECT count(*) FROM annotators").fetchone()[0] >= MOST_ANNOTATORS:
            raise NotPossible("Too many people have rated here already: no new name can be taken.")
        connection.execute("INSERT INTO annotators VALUES (?, ?, ?)", (name, digest, time.time()))
        return name
    if not trusted and not hmac.compare_digest(row[1], digest):
        raise NotPossible("Somebody else uses this name here. If it is you, on another device, add a letter to it.")
    return str(row[0])
