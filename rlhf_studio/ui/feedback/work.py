"""What operators do with tasks: make them, fill them from JSON Lines, change, close and delete them, and take the answers home."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.feedback.exchange import ReadRow, agreed_rows, as_lines, export_rows, items_of, read_lines
from rlhf_studio.runs.feedback.records import MOST_ITEMS, Added, NewItem, Task
from rlhf_studio.runs.feedback.store import Feedback, NotPossible
from rlhf_studio.runs.feedback.tasks import MOST_PROBLEMS, shortened
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback import files, sent
from rlhf_studio.ui.feedback.from_run import task_of
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.sent import member, run_id

LONGEST_PASTED = 900_000  # characters in one request; the page sends more in several
FOLDER = "feedback"  # of the workspace, with the answers that were handed to the Train page
RECIPE = "own-reward"  # the card of the Train page for one's own data
AT_ONCE = 5000  # rows in one transaction, so that a long file does not keep the people who vote waiting
Json = dict[str, Any]


class TaskWork:
    """Answers for operators; who may ask is checked before."""

    def __init__(self, feedback: Feedback, workspace: Workspace) -> None:
        self._feedback, self._workspace = feedback, workspace
        self._once = Once(lambda answer: "task" in answer)

    def manage(self, data: Any) -> Json:
        """``op``: create (once for each ``nonce``), change, close, open or delete. Raises NotPossible."""
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
            raise NotPossible(_("There is no such thing to do with a task."))
        return {"task": task}

    def from_run(self, data: Any) -> Json:
        """Make a task of the answers of the run ``run``, once for each ``nonce``. Raises NotPossible and StoreError."""

        def make() -> Json:
            settings, items = task_of(self._workspace.reader(run_id(data)))
            return {"task": self._feedback.create(settings, items)[0].id}

        return self._once.answer(data, make)

    def add(self, data: Any) -> Json:
        """Add items to a task: from pasted ``lines``, from a file of this machine at ``path``, or from the answers of the evaluation
        ``run``.

        Of pasted lines, ``first`` is the number of the first one and ``before`` how many rows stand before it.

        ``calibration``: the first so many rows are the round with known answers. One of these rows without an answer is reported as a
        problem.
        """
        task = self._feedback.task(sent.task_id(data))
        if task.run:
            raise NotPossible(_("This task belongs to a run, which fills it itself."))
        known = sent.whole_number(data, "calibration", 0)
        if known > 0 and task.settings.kind != "pair":
            raise NotPossible(
                _("Only pairs say by their columns which answer is right: give each row of the round with known answers an answer.")
            )
        path = sent.text(data, "path", 4096).strip()
        if sent.text(data, "run", 200):
            added = self._from_evaluation(task, data, known)
        elif path:
            added = self._from_file(task, files.file_at(path), known)
        else:
            lines = sent.text(data, "lines", LONGEST_PASTED).split("\n")
            first = max(1, sent.whole_number(data, "first", 1))
            before = sent.whole_number(data, "before", first - 1)
            added = self._add(task, read_lines(lines, task.settings, known=known, first=first, rows_before=before))
        return {"added": added.added, "repeated": added.repeated, "problems": added.problems}

    def _add(self, task: Task, read: Iterable[ReadRow]) -> Added:
        problems: list[str] = []
        items: list[NewItem] = []
        rows: list[int] = []
        for row in read:
            problems += [row.problem] if row.problem else []
            items += row.items
            rows += [row.number] * len(row.items)
        stored = self._feedback.add_items(task.id, items, rows)
        return replace(stored, problems=shortened([*problems, *stored.problems]))

    def _from_evaluation(self, task: Task, data: Any, known: int) -> Added:
        if known:
            raise NotPossible(_("Answers of an evaluation have no known answer: take 0 first rows with a known answer."))
        reader = self._workspace.reader(run_id(data))
        items, left_out = items_of(reader.answers(), task.settings.kind)
        if not items:
            several = "" if task.settings.kind == "rating" else _(" It needs several policies, or several answers per prompt.")
            raise NotPossible(
                _("There is nothing to rate in {name}.{several}").format(name=reader.status().name or _("this evaluation"), several=several)
            )
        stored = self._feedback.add_items(task.id, items)
        left = [_("{left_out:,} left out: responses are empty or equal.").format(left_out=left_out)] if left_out else []
        return Added(stored.added, stored.repeated, left + stored.problems)

    def _from_file(self, task: Task, path: Path, known: int) -> Added:
        """Add the items of a file. The file is read twice, so that nothing is stored when it cannot be read to its end."""
        problems: list[str] = []
        wrong = items = 0
        for row in read_lines(files.lines_of(path), task.settings, known=known):
            items += len(row.items)
            wrong += bool(row.problem)
            if row.problem and wrong <= MOST_PROBLEMS:
                problems.append(row.problem)
            if items > MOST_ITEMS:
                raise NotPossible(_("{name} has more than {most_items:,} items; split it.").format(name=path.name, most_items=MOST_ITEMS))
        total = Added(0, 0)
        try:
            for part in _parts(read_lines(files.lines_of(path), task.settings, known=known)):
                added = self._add(task, [row for row in part if row.items])
                total = Added(total.added + added.added, total.repeated + added.repeated, added.problems)
                if total.problems:  # the task is full
                    break
        except (NotPossible, StoreError) as error:  # the file or the disk has changed since the first reading
            if not total.added:
                raise
            raise NotPossible(
                _("{added:,} items were added, then it went wrong: {error}").format(added=total.added, error=error)
            ) from error
        return replace(total, problems=shortened([*total.problems, *problems], wrong - len(problems)))

    def export(self, data: Any) -> Json:
        """The answers as JSON Lines: ``each`` for a row per answer, ``agreed`` for a row per item."""
        task = self._feedback.task(sent.task_id(data))
        items, votes = self._feedback.items(task.id), self._feedback.votes(task.id)
        make = agreed_rows if member(data, "rows") == "agreed" else export_rows
        return {"name": _file_name(task), "lines": as_lines(make(task, items, votes))}

    def train_on(self, data: Any) -> Json:
        """Store the answers as a file of the workspace, and give ``recipe`` and ``values`` with which the Train page's form begins.

        The file's name is made from its contents, so the file of a run that uses it never changes. Raises NotPossible and StoreError.
        """
        task = self._feedback.task(sent.task_id(data))
        lines = as_lines(export_rows(task, self._feedback.items(task.id), self._feedback.votes(task.id)))
        if not lines:
            raise NotPossible(_("There are no answers yet, so there is nothing to train on."))
        contents = lines.encode("ascii")
        name = f"{Path(_file_name(task)).stem}-{hashlib.sha256(contents).hexdigest()[:8]}.jsonl"
        path = self._workspace.root / FOLDER / name
        try:
            path.parent.mkdir(exist_ok=True)
            # Two operators may do this at the same time: each writes a file of its own until it is complete.
            part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            try:
                part.write_bytes(contents)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, path) from error
        return {"recipe": RECIPE, "values": {"data.source": str(path)}}


def _parts(rows: Iterator[ReadRow]) -> Iterator[list[ReadRow]]:
    while part := list(islice(rows, AT_ONCE)):
        yield part


def _file_name(task: Task) -> str:
    plain = "".join(character if character.isascii() and character.isalnum() else "-" for character in task.settings.name)
    return f"{plain.strip('-')[:60] or 'feedback'}.jsonl"
