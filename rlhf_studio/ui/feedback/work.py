"""What operators do with tasks: make them, fill them from JSON Lines, change, close and delete them, and take the answers home."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.feedback.exchange import agreed_rows, as_lines, export_rows, read_lines, with_calibration
from rlhf_studio.runs.feedback.from_answers import items_of
from rlhf_studio.runs.feedback.records import MOST_ITEMS, Added, Task
from rlhf_studio.runs.feedback.store import Feedback, Refused
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback import sent
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.sent import member, run_id

LONGEST_PASTED = 900_000  # characters in one request; the page sends more in several
LARGEST_FILE = 500_000_000  # bytes that are read of a file of this machine
AT_ONCE = 5000  # lines in one transaction, so that a long file does not keep the people who vote waiting
MOST_PROBLEMS = 20
Json = dict[str, Any]


class TaskWork:
    """Answers for operators; who may ask is checked before."""

    def __init__(self, feedback: Feedback, workspace: Workspace) -> None:
        self._feedback, self._workspace = feedback, workspace
        self._once = Once(lambda answer: "task" in answer)

    def manage(self, data: Any) -> Json:
        """``op``: create (once for each ``nonce``), change, close, open or delete. Raises Refused."""
        op = sent.text(data, "op", 20)
        if op == "create":
            return self._once.answer(data, lambda: {"task": self._feedback.create(sent.new_task(data))[0].id})
        task = sent.task_id(data)
        if op == "change":
            self._feedback.change(task, sent.new_task(data))
        elif op in ("close", "open"):
            self._feedback.set_open(task, op == "open")
        elif op == "delete":
            self._feedback.delete(task)
        else:
            raise Refused("There is no such thing to do with a task.")
        return {"task": task}

    def add(self, data: Any) -> Json:
        """Items from pasted ``lines``, of which the first is row ``first``, from a file of this machine at ``path``, or from the answers
        of the evaluation ``run``.

        ``calibration``: so many of the first rows become the round with known answers, with the chosen response as the answer.
        """
        task = self._feedback.task(sent.task_id(data))
        if task.run:
            raise Refused("This task belongs to a run, which fills it itself.")
        known = sent.whole(data, "calibration", 0)
        path = sent.text(data, "path", 4096).strip()
        if sent.text(data, "run", 200):
            added = self._from_evaluation(task, data, known)
        elif path:
            added = self._from_file(task, Path(path).expanduser(), known)
        else:
            lines = sent.text(data, "lines", LONGEST_PASTED).split("\n")
            first = max(1, sent.whole(data, "first", 1))
            added = self._add(task, lines, first, known)
        return {"added": added.added, "repeated": added.repeated, "problems": added.problems}

    def _add(self, task: Task, lines: list[str], first: int, known: int) -> Added:
        items, problems = read_lines(lines, task.settings.kind, first)
        places = range(max(0, min(len(items), known - (first - 1))))
        try:
            items = with_calibration(items, task.settings, places)
        except ValueError as error:
            raise Refused(f"The round with known answers: {error}.") from error
        stored = self._feedback.add_items(task.id, items, first)
        return Added(stored.added, stored.repeated, (problems + stored.problems)[:MOST_PROBLEMS])

    def _from_evaluation(self, task: Task, data: Any, known: int) -> Added:
        if known:
            raise Refused("Answers of an evaluation have no known answer: take 0 first rows with a known answer.")
        reader = self._workspace.reader(run_id(data))
        items, left_out = items_of(reader.answers(), task.settings.kind)
        if not items:
            several = "" if task.settings.kind == "rating" else " It needs several policies, or several answers per prompt."
            raise Refused(f"There is nothing to rate in {reader.status().name or 'this evaluation'}.{several}")
        stored = self._feedback.add_items(task.id, items)
        left = [f"{left_out:,} left out: responses are empty or equal."] if left_out else []
        return Added(stored.added, stored.repeated, (left + stored.problems)[:MOST_PROBLEMS])

    def _from_file(self, task: Task, path: Path, known: int) -> Added:
        total = Added(0, 0, [])
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise Refused(f"{path} has more than {LARGEST_FILE // 1_000_000} MB; split it.")
            with _opened(path) as file:
                lines = islice(file, MOST_ITEMS + 1)
                for first, part in _parts(lines):
                    added = self._add(task, part, first, known)
                    problems = (total.problems + added.problems)[:MOST_PROBLEMS]
                    total = Added(total.added + added.added, total.repeated + added.repeated, problems)
        except (FileNotFoundError, IsADirectoryError):
            raise Refused(f"There is no file {path} on the app's machine.") from None
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
            raise Refused(f"{path} is not a file of JSON Lines in UTF-8: {error}.") from error
        except OSError as error:
            raise store_error(error, path) from error
        return total

    def export(self, data: Any) -> Json:
        """The answers as JSON Lines: ``each`` for a row per answer, ``agreed`` for a row per item."""
        task = self._feedback.task(sent.task_id(data))
        items, votes = self._feedback.items(task.id), self._feedback.votes(task.id)
        make = agreed_rows if member(data, "rows") == "agreed" else export_rows
        return {"name": _file_name(task), "lines": as_lines(make(task, items, votes))}


def _opened(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix not in (".jsonl", ".json", ".txt", ".ndjson"):
        raise StoreError(f"{path} is not JSON Lines; its name must end in .jsonl or .jsonl.gz.", "state")
    return open(path, encoding="utf-8")


def _parts(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    first = 1
    while part := list(islice(lines, AT_ONCE)):
        yield first, part
        first += len(part)


def _file_name(task: Task) -> str:
    plain = "".join(character if character.isascii() and character.isalnum() else "-" for character in task.settings.name)
    return f"{plain.strip('-')[:60] or 'feedback'}.jsonl"
