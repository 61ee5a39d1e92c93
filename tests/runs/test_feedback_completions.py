"""Rows with single completions, as the command generate writes them, become items of a feedback task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.feedback.exchange import read_lines
from rlhf_studio.runs.feedback.records import Kind, NewTask
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback.work import TaskWork

Found = tuple[list[tuple[str, ...]], list[str]]


def row(prompt: str, completion: str, draw: int = 0) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "draw": draw, "length": 3, "stopped": True}


def put_together(rows: Sequence[dict[str, Any]], kind: Kind, **options: int) -> Found:
    """((prompt, each response) of the items, what is told)."""
    read = list(read_lines([json.dumps(one) for one in rows], NewTask("t", kind=kind), **options))
    return [(item.prompt, *item.responses) for one in read for item in one.items], [one.problem for one in read if one.problem]


DRAWN = [row("p", "a"), row("p", "b", 1), row("q", "c"), row("p", "d", 2), row("q", "e", 1), row("p", "f", 3), row("q", "g", 2)]
ALONE = "1 completion left out: nothing with the same prompt is left to compare with."


def test_completions_of_one_prompt_are_put_together_wherever_they_stand() -> None:
    assert put_together(DRAWN, "pair") == ([("p", "a", "b"), ("q", "c", "e"), ("p", "d", "f")], [ALONE])
    assert put_together(DRAWN[:-1], "ranking") == ([("p", "a", "b", "d", "f"), ("q", "c", "e")], [])
    assert put_together(DRAWN[:2], "rating") == ([("p", "a"), ("p", "b")], [])
    lists = [{"prompt": "p", "completions": ["a", "b", "d"]}, {"prompt": "p", "completions": ["f"]}]
    assert put_together(lists, "pair") == ([("p", "a", "b"), ("p", "d", "f")], [])


def test_what_becomes_no_item_is_counted() -> None:
    rows = [row("p", "a"), row("p", "a"), row("p", "b"), row("p", " "), row("p", "c"), row("q", "d")]
    alike = "4 completions left out: empty, or the same as the one beside it."
    assert put_together(rows, "pair") == ([], [ALONE.replace("1 completion", "2 completions"), alike])
    assert put_together(rows, "ranking") == ([("p", "a", "b", "c")], [ALONE, alike.replace("4", "2")])
    many, told = put_together([row("p", str(number)) for number in range(11)], "ranking")
    assert many == [("p", *map(str, range(9)))] and told == ["2 completions left out: a ranking has at most 9 responses."]


@pytest.mark.parametrize(
    ("rows", "options", "wrong"),
    [
        ([{"completion": "a"}], {}, "Row 1: a completion needs its prompt"),
        ([{"prompt": "p", "completion": 3}], {}, "Row 1: completion must be a text"),
        ([{"prompt": "p", "completion": "a", "completions": ["b"]}], {}, "Row 1: has completion and completions"),
        ([{"prompt": "p", "completions": ["a", "b"], "answer": 0}], {}, "Row 1: completions have no known answer"),
        ([{"prompt": "p", "completions": ["a", "b"]}], {"known": 1}, "Row 1: it is one of the first rows with a known answer, but"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(rows: list[dict[str, Any]], options: dict[str, int], wrong: str) -> None:
    items, (problem,) = put_together(rows, "pair", **options)
    assert items == [] and problem.startswith(wrong)


def test_the_file_of_generate_becomes_a_task(tmp_path: Path) -> None:
    file = tmp_path / "responses.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in DRAWN), encoding="utf-8")
    feedback = Feedback(tmp_path)
    work = TaskWork(feedback, Workspace(tmp_path))
    for kind, count, problems in (("pair", 3, [ALONE]), ("ranking", 2, []), ("rating", 7, [])):
        task, _ = feedback.create(NewTask("t", kind=kind))  # type: ignore[arg-type]
        assert work.add({"task": task.id, "path": str(file)}) == {"added": count, "repeated": 0, "problems": problems}
        assert feedback.progress(task.id).items == count
