"""Records of feedback as rows and back."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlhf_studio.runs.feedback.records import Item, NewItem, NewTask, Task, Vote
from rlhf_studio.runs.values import decode_json, decode_pieces, decode_text, encode_json, encode_pieces, encode_text

TASK_COLUMNS = "id, settings, run, open, deadline, created_at"
ITEM_COLUMNS = "id, number, prompt, responses, sources, uncertainty, answer, why, step, votes"
LAST = 1e300  # the priority of items of which no model has said how unsure it is
VOTE_COLUMNS = "id, item, annotator, attempt, verdict, value, confidence, seconds, shown, at"


def task_row(task: Task) -> tuple[Any, ...]:
    """Values of :data:`TASK_COLUMNS`."""
    return task.id, encode_json(asdict(task.settings))[0], task.run, int(task.open), task.deadline, task.created_at


def read_task(row: Sequence[Any]) -> Task:
    """A row of :data:`TASK_COLUMNS`."""
    name, settings, run, is_open, deadline, created_at = row
    return Task(name, NewTask(**decode_json(settings, None)), run, bool(is_open), deadline, created_at)


def item_key(item: NewItem) -> str:
    """The same for the same texts, asked for in the same step of a run."""
    texts = json.dumps([item.step, item.prompt, *item.responses]).encode()
    return hashlib.sha256(texts).hexdigest()


def item_row(task: NewTask, number: int, item: NewItem) -> tuple[Any, ...]:
    """Values of an item's columns but ``id`` and ``task``, in the order of the table. A calibration item is open to nobody's turn."""
    key = item_key(item)
    real = item.answer is None
    return (
        number,
        key,
        encode_text(item.prompt),
        encode_pieces(item.responses),
        encode_pieces(item.sources),
        None if item.uncertainty is None else float(item.uncertainty),
        None if real else json.dumps(item.answer),
        encode_text(item.why),
        item.step,
        priority(task, key, item.uncertainty),
        0,
        int(real),
    )


def priority(task: NewTask, key: str, uncertainty: float | None) -> float:
    """An item's place in the task's order, smallest first. At random it is the same for all, so that items are completed early."""
    if task.order == "uncertainty":
        return LAST if uncertainty is None else -uncertainty
    return int(key[:12], 16) / 16.0**12


def read_item(row: Sequence[Any]) -> Item:
    """A row of :data:`ITEM_COLUMNS`."""
    number_id, number, prompt, responses, sources, uncertainty, answer, why, step, votes = row
    return Item(
        id=number_id,
        number=number,
        prompt=decode_text(prompt),
        responses=tuple(decode_pieces(responses)),
        sources=tuple(decode_pieces(sources)),
        uncertainty=uncertainty,
        answer=None if answer is None else json.loads(answer),
        why=decode_text(why),
        step=step,
        votes=votes,
    )


def read_vote(row: Sequence[Any]) -> Vote:
    """A row of :data:`VOTE_COLUMNS`."""
    name, item, annotator, attempt, verdict, value, confidence, seconds, shown, at = row
    order = tuple(json.loads(shown))
    return Vote(name, item, annotator, attempt, verdict, json.loads(value), confidence, seconds, order, at)


def find_task(connection: sqlite3.Connection, task: str) -> Task | None:
    """A task by its id."""
    row = connection.execute(f"SELECT {TASK_COLUMNS} FROM tasks WHERE id = ?", (task,)).fetchone()
    return None if row is None else read_task(row)


def find_item(connection: sqlite3.Connection, item: int) -> Item | None:
    """An item by its id."""
    row = connection.execute(f"SELECT {ITEM_COLUMNS} FROM items WHERE id = ?", (item,)).fetchone()
    return None if row is None else read_item(row)


def order_for(item: Item, annotator: str, attempt: int) -> tuple[int, ...]:
    """In which order an annotator sees the responses: drawn from names, so that it is the same again, and nobody can choose it."""
    order = list(range(len(item.responses)))
    seed = hashlib.sha256(f"{item.id}\0{annotator.casefold()}\0{attempt}".encode()).digest()
    random.Random(seed).shuffle(order)
    return tuple(order)
