"""What people leave behind lies in one database. What version 0.2 kept in three files is taken over once, killed or not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs import people, schema, studio
from rlhf_studio.runs.classroom.store import ClassStore
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import NewItem, NewTask
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.runs.workspace import Workspace

LEFT = Path(__file__).with_name("left_by_0.2.0.zip")
"""The files of an app of version 0.2.0 that was killed, and in ``said.json`` what its own readers said of them."""
STARTERS = {"run-one": Starter("student", "Ann", "k" * 24, "a" * 24), "run-two": Starter("visitor", "", "v" * 24, "b" * 24)}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The workspace of that app."""
    with zipfile.ZipFile(LEFT) as files:
        files.extractall(tmp_path / "old")
    return tmp_path / "old"


def answers_of_old_version(root: Path) -> Any:
    return json.loads((root / "said.json").read_text())


def plain(records: list[Any]) -> Any:
    return json.loads(json.dumps([asdict(record) for record in records]))


def everything(root: Path) -> dict[str, Any]:
    """The same as in ``said.json``, by this version's readers."""
    feedback, lesson = Feedback(root), ClassStore(root)
    task = feedback.tasks()[-1].id
    rounds = lesson.rounds()
    answers = {
        "tasks": plain(feedback.tasks()),
        "items": plain(feedback.items(task)),
        "known": plain(feedback.items(task, calibration=True)),
        "votes": plain(feedback.votes(task)),
        "rounds_of_anna": plain(feedback.votes(task, calibration=True)),
        "link": feedback.known_rating_link(),
        "rounds": plain(rounds),
        "answers": [plain(lesson.answers(row.id)) for row in rounds],
        "names": lesson.names(),
        "students": lesson.students(),
        "notes": lesson.notes(),
        "next_item": None,
    }
    feedback.close()
    lesson.close()
    return answers


def test_what_0_2_0_left_is_here_and_the_old_files_are_set_aside(old: Path) -> None:
    assert studio.read(old).starters == STARTERS  # looking at runs takes nothing over
    assert not (old / people.DATABASE).exists()
    assert everything(old) == answers_of_old_version(old)
    with studio.change(old):
        pass
    known = studio.read(old)
    assert known.starters == STARTERS and known.names == {"run-one": "mine"} and known.queue_position("run-one") == 1
    assert b"k" * 24 not in (old / "studio.db").read_bytes()
    assert {"class.db.taken-over", "feedback.db.taken-over"} <= set(os.listdir(old))
    assert not {"class.db", "class.db-wal", "feedback.db", "feedback.db-wal"} & set(os.listdir(old))
    feedback = Feedback(old)
    task, _ = feedback.create(NewTask("new"), [NewItem("a", ("1", "2"))])
    last = max(row["id"] for row in answers_of_old_version(old)["items"])
    assert feedback.items(task.id)[0].id > last + 2, "the number of an item that was deleted is not given again"
    assert {row.id for row in feedback.tasks()} == {
        task.id,
        *(row["id"] for row in answers_of_old_version(old)["tasks"]),
    }  # all is here once


def test_a_deleted_run_and_an_ended_class_leave_nothing_in_any_file(old: Path) -> None:
    """The keys of students and visitors are overwritten: here, in the journal, in studio.db, and in the old file of the class."""
    workspace, lesson = Workspace(old), ClassStore(old)
    (old / "runs" / "run-two").mkdir(parents=True)
    workspace.delete("run-two")
    workspace.forget_students()
    lesson.end_class()
    left = b"".join(path.read_bytes() for path in old.iterdir() if path.is_file() and path.name != "said.json")
    assert [key for key in (b"k" * 24, b"m" * 24, b"v" * 24, b"a" * 24, b"b" * 24) if key in left] == []
    assert b"Ann" in left and studio.read(old).starters == {"run-one": Starter("student", "Ann")}
    assert not (old / "class.db.taken-over").exists() and (old / "feedback.db.taken-over").exists()
    lesson.close()


def in_children(number: int, work: Callable[[], object]) -> list[int]:
    """Do it in so many children of this process at once; their exit codes."""
    children = []
    for _ in range(number):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def kill_me(*arguments: object, **options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_is_safe_against_kills_and_several_processes(old: Path) -> None:
    """Killed before the commit, after it, and between the two files that are set aside: the next one goes on."""

    def killed_at(module: Any, name: str, after: int) -> Callable[[], None]:
        def work() -> None:
            real, count = getattr(module, name), [0]

            def counted(*arguments: Any, **options: Any) -> Any:
                count[0] += 1
                return kill_me() if count[0] > after else real(*arguments, **options)

            setattr(module, name, counted)
            with studio.change(old):
                pass
            Feedback(old).rating_link()

        return work

    for module, name, after in ((schema, "commit", 0), (schema, "commit", 1), (people.os, "rename", 0), (people.os, "rename", 1)):
        assert in_children(1, killed_at(module, name, after)) == [-signal.SIGKILL], (name, after)
    assert everything(old) == answers_of_old_version(old) and studio.read(old).starters == STARTERS
    shutil.rmtree(old)
    with zipfile.ZipFile(LEFT) as files:
        files.extractall(old)
    assert in_children(4, lambda: (Feedback(old).rating_link(), ClassStore(old).rounds())) == [0] * 4
    assert everything(old) == answers_of_old_version(old)


def test_old_files_that_cannot_be_taken_over_are_a_sentence_and_stay(old: Path) -> None:
    with closing(sqlite3.connect(old / "feedback.db")) as app:  # of version 0.2, which still has it open
        app.execute("BEGIN")
        app.execute("SELECT count(*) FROM tasks").fetchone()
        with pytest.raises(StoreError, match=r"feedback\.db is in use by an app of an earlier version\. End that app first"):
            Feedback(old).tasks()
    assert everything(old) == answers_of_old_version(old)
    shutil.copy(old / "feedback.db.taken-over", old / "feedback.db")
    with pytest.raises(StoreError, match="after its contents had been taken over"):
        Feedback(old).tasks()
    (old / "feedback.db").unlink()
    (old / "studio.db").write_bytes(b"no database" * 1000)  # a damaged queue keeps nobody from voting
    assert everything(old) == answers_of_old_version(old) and Feedback(old).rating_link() == answers_of_old_version(old)["link"]
