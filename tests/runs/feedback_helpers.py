"""Tasks of feedback and answers to them, for the tests of the store and of what goes in and out of it."""

from __future__ import annotations

from typing import Any

from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote, Turn
from rlhf_studio.runs.feedback.store import Feedback

PAIRS = [NewItem(f"prompt {number}", (f"first of {number}", f"second of {number}")) for number in range(6)]


def task_with(feedback: Feedback, items: list[NewItem] | None = None, **settings: Any) -> str:
    task, added = feedback.create(NewTask("A task", **settings), PAIRS if items is None else items)
    assert not added.problems
    return task.id


def answer(feedback: Feedback, task: str, name: str, turn: Turn, verdict: Any = "chosen", value: Any = 0, key: str = "") -> Turn:
    assert turn.shown is not None
    key = key or f"{name} {turn.shown.item.id} {turn.shown.attempt}"
    return feedback.vote(task, name, NewVote(key, turn.shown.item.id, verdict, value))
