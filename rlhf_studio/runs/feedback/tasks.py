"""Making tasks, filling them, and who the annotators are. Each function runs inside one transaction."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rlhf_studio.runs.feedback import rows
from rlhf_studio.runs.feedback.database import Refused
from rlhf_studio.runs.feedback.records import LONGEST_NAME, MOST_ITEMS, Added, NewItem, NewTask, Task, check_item
from rlhf_studio.visible import refuse_hidden

MOST_PROBLEMS = 20  # that are told one by one
RATING_LINK = "rating link"
MOST_ANNOTATORS = 10_000  # names that browsers may have taken; anybody may invent some where anybody may vote


def new_id() -> str:
    """An id for a task."""
    return f"task-{secrets.token_hex(6)}"


def insert_task(connection: sqlite3.Connection, settings: NewTask, *, task_id: str = "", run: str = "") -> Task:
    """Make a task without items."""
    task = Task(task_id or new_id(), settings, run, True, None, time.time())
    connection.execute(f"INSERT INTO tasks ({rows.TASK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows.task_row(task))
    return task


def list_tasks(connection: sqlite3.Connection) -> list[Task]:
    """All tasks: those that a run waits for first, then the newest."""
    found = connection.execute(f"SELECT {rows.TASK_COLUMNS} FROM tasks ORDER BY run != '' AND open DESC, created_at DESC, id")
    return [rows.read_task(row) for row in found]


def usable(settings: NewTask, items: Iterable[tuple[int, NewItem]]) -> tuple[list[tuple[int, NewItem]], list[str]]:
    """The items that a task can take, each with its row, and what is wrong with the others. Is asked before a transaction begins."""
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
            problems.append(f"Row {row}: a task has at most {MOST_ITEMS:,} items.")
            break
        values = rows.item_row(task.settings, last + added + 1, item)
        stored = connection.execute(
            """INSERT OR IGNORE INTO items (task, number, key, prompt, responses, sources, uncertainty, answer, why, step, priority,
                 votes, open) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (task.id, *values),
        ).rowcount
        added, repeated = added + stored, repeated + 1 - stored
    return Added(added, repeated, problems)


def told(problems: Sequence[str], more: int = 0) -> list[str]:
    """The first :data:`MOST_PROBLEMS`, and how many more there are; ``more`` are not in the list."""
    rest = len(problems) - MOST_PROBLEMS + more
    return [*problems[:MOST_PROBLEMS], *([f"And {rest:,} more rows."] if rest > 0 else [])]


def change_settings(connection: sqlite3.Connection, task: Task, settings: NewTask) -> None:
    """Other words, another number of annotators, another order. Raises Refused for another kind or scale."""
    before = task.settings
    if (settings.kind, settings.points) != (before.kind, before.points):
        raise Refused("A task keeps its kind and its scale; make a new task for another one.")
    row = rows.task_row(replace(task, settings=settings))
    connection.execute("UPDATE tasks SET settings = ? WHERE id = ?", (row[1], task.id))
    if settings.annotators != before.annotators:
        connection.execute(
            "UPDATE items SET open = votes < ? WHERE task = ? AND answer IS NULL AND NOT used", (settings.annotators, task.id)
        )
    if settings.order != before.order:
        for item, key, uncertainty in connection.execute("SELECT id, key, uncertainty FROM items WHERE task = ?", (task.id,)).fetchall():
            connection.execute("UPDATE items SET priority = ? WHERE id = ?", (rows.priority(settings, key, uncertainty), item))


def set_uncertainties(connection: sqlite3.Connection, task: Task, values: Mapping[int, float]) -> None:
    """Say how unsure a model is of items, by their ids; a task by uncertainty gives the largest out first."""
    for item, value in values.items():
        row = connection.execute("SELECT key FROM items WHERE id = ? AND task = ?", (item, task.id)).fetchone()
        if row is not None:
            connection.execute(
                "UPDATE items SET uncertainty = ?, priority = ? WHERE id = ?", (value, rows.priority(task.settings, row[0], value), item)
            )


def set_open(connection: sqlite3.Connection, task: Task, is_open: bool) -> None:
    """Close a task for annotators, or open it again. What was answered stays."""
    connection.execute("UPDATE tasks SET open = ? WHERE id = ?", (int(is_open), task.id))


def delete(connection: sqlite3.Connection, task: Task) -> None:
    """Remove a task with its items and all answers."""
    for table in ("votes", "leases", "items", "calibrations"):
        connection.execute(f"DELETE FROM {table} WHERE task = ?", (task.id,))
    connection.execute("DELETE FROM tasks WHERE id = ?", (task.id,))


def checked_name(name: str) -> str:
    """An annotator's name without blanks around it. Raises Refused for one that cannot be used."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME:
        raise Refused(f"Give a name of at most {LONGEST_NAME} characters.")
    try:
        refuse_hidden(name, "A name")
    except ValueError as error:
        raise Refused(f"{error}.") from error
    return name


def sign_in(connection: sqlite3.Connection, name: str, secret: str, *, trusted: bool = False) -> str:
    """The annotator's name as it was first written. A name belongs to the browser that used it first, which shows a secret of its own.

    ``trusted`` people, operators, may use any name. Raises Refused when somebody else has the name.
    """
    name = checked_name(name)
    digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
    row = connection.execute("SELECT name, secret FROM annotators WHERE name = ?", (name,)).fetchone()
    if row is None:
        if len(secret) < 8 and not trusted:
            raise Refused("This browser gave no key of its own. Reload the page.")
        if not trusted and connection.execute("SELECT count(*) FROM annotators").fetchone()[0] >= MOST_ANNOTATORS:
            raise Refused("Too many people have rated here already: no new name can be taken.")
        connection.execute("INSERT INTO annotators VALUES (?, ?, ?)", (name, digest, time.time()))
        return name
    if not trusted and not hmac.compare_digest(row[1], digest):
        raise Refused("Somebody else uses this name here. If it is you, on another device, add a letter to it.")
    return str(row[0])


def rating_link(connection: sqlite3.Connection, *, renew: bool = False) -> str:
    """The token of the link for people who rate; made when it is asked for first. ``renew``: a new one, so that the old link ends."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (RATING_LINK,)).fetchone()
    if row is not None and not renew:
        return str(row[0])
    token = secrets.token_urlsafe(18)
    connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (RATING_LINK, token))
    return token


def known_rating_link(connection: sqlite3.Connection) -> str:
    """The token; empty when there is none."""
    row = connection.execute("SELECT value FROM notes WHERE name = ?", (RATING_LINK,)).fetchone()
    return "" if row is None else str(row[0])
