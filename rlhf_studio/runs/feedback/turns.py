"""Whose turn it is: which item an annotator gets next, and what an answer changes. Each function runs inside one transaction.

An item that is on somebody's screen is leased to that person: no more people get it at the same time than it needs answers. A lease that
runs out lets others have the item; an answer that comes later still counts, because a person has worked for it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.runs.feedback.records import (
    VOTES,
    CalibrationState,
    Item,
    NewVote,
    Shown,
    Task,
    TaskProgress,
    Turn,
    Vote,
    as_expected,
    order_for,
    stored_answer,
)
from rlhf_studio.runs.feedback.tasks import find_item, find_items, find_task
from rlhf_studio.runs.people import NotPossible

LEASE_SECONDS = 600.0
MOST_UNDONE, MOST_ROUNDS = 50, 20  # of an answer, and with known answers: programs could go on for ever, and each keeps a row
GONE = S_("This task is no longer here.")


def existing_task(connection: sqlite3.Connection, task_id: str) -> Task:
    """The task with this id. Raises NotPossible when there is none."""
    task = find_task(connection, task_id)
    if task is None:
        raise NotPossible(GONE)
    return task


def progress(connection: sqlite3.Connection, task: Task, annotator: str | None = None) -> TaskProgress:
    """How far the task is."""
    items, done, votes = connection.execute(
        "SELECT count(*), coalesce(sum(votes >= ?), 0), coalesce(sum(votes), 0) FROM items WHERE task = ? AND answer IS NULL",
        (task.settings.annotators, task.id),
    ).fetchone()
    mine = 0
    if annotator is not None:
        mine = connection.execute(
            "SELECT count(*) FROM votes WHERE task = ? AND annotator = ? AND attempt = 0 AND undone_at IS NULL AND verdict != 'skip'",
            (task.id, annotator),
        ).fetchone()[0]
    return TaskProgress(items, done, votes, mine)


def calibration(connection: sqlite3.Connection, task: Task, annotator: str) -> CalibrationState:
    """How the annotator stands in the present round of items with known answers. A task without such items counts as passed."""
    total = connection.execute("SELECT count(*) FROM items WHERE task = ? AND answer IS NOT NULL", (task.id,)).fetchone()[0]
    row = connection.execute("SELECT attempt FROM calibrations WHERE task = ? AND annotator = ?", (task.id, annotator)).fetchone()
    attempt = row[0] if row else 1
    given = connection.execute(
        """SELECT verdict, value, answer FROM votes JOIN items ON items.id = votes.item
           WHERE votes.task = ? AND annotator = ? AND attempt = ? AND undone_at IS NULL""",
        (task.id, annotator, attempt),
    ).fetchall()
    correct = sum(as_expected(verdict, json.loads(value), json.loads(answer)) for verdict, value, answer in given)
    passed = len(given) >= total and correct >= task.settings.pass_mark * total - 1e-9
    return CalibrationState(attempt, len(given), correct, total, passed)


def turn(connection: sqlite3.Connection, task: Task, annotator: str, expected: dict[str, Any] | None = None) -> Turn:
    """What the annotator does now; an item is leased to them."""
    stand = calibration(connection, task, annotator)
    leased = None
    if task.open and not stand.failed:
        item = _next_item(connection, task, annotator) if stand.passed else _next_known(connection, task, annotator, stand.attempt)
        attempt = 0 if stand.passed else stand.attempt
        leased = None if item is None else _lease(connection, task, item, annotator, attempt)
    state = "item" if leased else "closed" if not task.open else "failed" if stand.failed else "done"
    far = progress(connection, task, annotator)
    return Turn(state, leased, stand, far, expected, _last_vote(connection, task, annotator))  # type: ignore[arg-type]


def _next_known(connection: sqlite3.Connection, task: Task, annotator: str, attempt: int) -> Item | None:
    unanswered = "NOT EXISTS (SELECT 1 FROM votes WHERE item = items.id AND annotator = ?2 AND attempt = ?3 AND undone_at IS NULL)"
    rest = f"WHERE task = ?1 AND answer IS NOT NULL AND {unanswered} ORDER BY number LIMIT 1"
    return next(iter(find_items(connection, rest, (task.id, annotator, attempt))), None)


def _next_item(connection: sqlite3.Connection, task: Task, annotator: str) -> Item | None:
    """The item that the annotator had on the screen before; else the first that needs more answers than it has people at work on it."""
    unanswered = "NOT EXISTS (SELECT 1 FROM votes WHERE item = items.id AND annotator = ?2 AND attempt = 0 AND undone_at IS NULL)"
    leased = f"""WHERE open AND {unanswered} AND id IN (
        SELECT item FROM leases WHERE task = ?1 AND annotator = ?2 AND attempt = 0 AND until > ?3) LIMIT 1"""
    waiting = f"""WHERE task = ?1 AND open = 1 AND {unanswered}
        AND votes + (SELECT count(*) FROM leases WHERE item = items.id AND annotator != ?2 AND until > ?3) < ?4
        ORDER BY priority, id LIMIT 1"""
    now = (task.id, annotator, time.time())
    items = find_items(connection, leased, now) or find_items(connection, waiting, (*now, task.settings.annotators))
    return next(iter(items), None)


def _lease(connection: sqlite3.Connection, task: Task, item: Item, annotator: str, attempt: int) -> Shown:
    order = order_for(item, annotator, attempt)
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)",
        (item.id, annotator, task.id, attempt, json.dumps(order), time.time() + LEASE_SECONDS),
    )
    return Shown(item, order, attempt)


def vote(connection: sqlite3.Connection, task: Task, annotator: str, sent: NewVote) -> dict[str, Any] | None:
    """Store an answer once. Returns, for an item with a known answer, what was expected.

    Raises NotPossible, and ValueError for something that is not an answer.
    """
    known = connection.execute("SELECT item, annotator, attempt, verdict, value FROM votes WHERE id = ?", (sent.id,)).fetchone()
    if known is not None:  # sent again, because no answer came
        if known[:2] != (sent.item, annotator):
            raise NotPossible("This answer has the name of another one. Reload the page.")
        return _expected(connection, sent.item, known[2], known[3], json.loads(known[4]))
    lease = connection.execute(
        "SELECT attempt, shown FROM leases WHERE item = ? AND annotator = ? AND task = ?", (sent.item, annotator, task.id)
    ).fetchone()
    item = find_item(connection, sent.item)
    if lease is None or item is None:
        raise NotPossible("You have answered this one already, or it is not yours. Here is the next one.")
    attempt, order = lease[0], json.loads(lease[1])
    try:
        value = stored_answer(task.settings, order, sent)
    except ValueError as error:
        raise NotPossible(f"This answer cannot be stored: {error}.") from error
    if attempt and sent.verdict == "skip":
        raise NotPossible("The round with known answers has no skipping.")
    given = Vote(sent.id, item.id, annotator, attempt, sent.verdict, value, sent.confidence, sent.seconds, tuple(order), time.time())
    VOTES.insert(connection, [given], task=task.id)
    connection.execute("DELETE FROM leases WHERE item = ? AND annotator = ?", (item.id, annotator))
    if not attempt and sent.verdict != "skip":
        connection.execute(
            "UPDATE items SET votes = votes + 1, open = open AND votes + 1 < ? WHERE id = ?", (task.settings.annotators, item.id)
        )
    return _expected(connection, item.id, attempt, sent.verdict, value)


def _expected(connection: sqlite3.Connection, item_id: int, attempt: int, verdict: Any, value: Any) -> dict[str, Any] | None:
    item = find_item(connection, item_id)
    if not attempt or item is None or item.answer is None:
        return None
    return {"right": as_expected(verdict, value, item.answer), "why": item.why, "answer": item.answer, "item": item.id}


def _last_vote(connection: sqlite3.Connection, task: Task, annotator: str) -> str:
    """The annotator's last answer, when it may be taken back: that of a real item that no run has used yet."""
    row = connection.execute(
        """SELECT votes.id, attempt, used FROM votes JOIN items ON items.id = votes.item
           WHERE votes.task = ? AND annotator = ? AND undone_at IS NULL ORDER BY votes.number DESC LIMIT 1""",
        (task.id, annotator),
    ).fetchone()
    return "" if row is None or row[1] or row[2] else str(row[0])


def undo(connection: sqlite3.Connection, task: Task, annotator: str, vote_id: str) -> None:
    """Take back the annotator's last answer; the annotator gets its item again. A second call changes nothing. Raises NotPossible."""
    row = connection.execute(
        "SELECT item, annotator, verdict, undone_at FROM votes WHERE id = ? AND task = ?", (vote_id, task.id)
    ).fetchone()
    if row is None or row[1].casefold() != annotator.casefold():
        raise NotPossible("There is no such answer of yours.")
    if row[3] is not None:
        return
    if _last_vote(connection, task, annotator) != vote_id:
        raise NotPossible("Only your last answer can be taken back, and not once a run has used it.")
    before = "SELECT count(*) FROM votes WHERE item = ? AND annotator = ? AND undone_at IS NOT NULL"
    if connection.execute(before, (row[0], annotator)).fetchone()[0] >= MOST_UNDONE:
        raise NotPossible(f"This answer was taken back {MOST_UNDONE} times already.")
    item = find_item(connection, row[0])
    assert item is not None  # its vote was found
    connection.execute("UPDATE votes SET undone_at = ? WHERE id = ?", (time.time(), vote_id))
    if row[2] != "skip":
        connection.execute("UPDATE items SET votes = votes - 1, open = votes - 1 < ? WHERE id = ?", (task.settings.annotators, item.id))
    connection.execute("UPDATE leases SET until = 0 WHERE task = ? AND annotator = ?", (task.id, annotator))  # what was shown meanwhile
    _lease(connection, task, item, annotator, 0)


def begin_again(connection: sqlite3.Connection, task: Task, annotator: str) -> None:
    """Another round with the known answers, after one that was not passed. Otherwise nothing changes."""
    stand = calibration(connection, task, annotator)
    if stand.failed and stand.attempt >= MOST_ROUNDS:
        raise NotPossible(f"These were {MOST_ROUNDS} rounds with known answers. Ask whoever made the task.")
    if stand.failed:
        connection.execute("INSERT OR REPLACE INTO calibrations VALUES (?, ?, ?)", (task.id, annotator, stand.attempt + 1))
