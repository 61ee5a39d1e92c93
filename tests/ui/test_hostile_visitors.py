"""What somebody tries who wants more of a Space than others: other addresses, other cookies, runs that are resumed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.datastructures import Headers

from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs import paths, people
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.visitors.janitor import Janitor
from rlhf_studio.runs.visitors.limits import Admission, Limits
from rlhf_studio.runs.visitors.starters import Starter, read_starters, set_starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import CLASS_HEADER, Access
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.train_page import TrainPage
from rlhf_studio.ui.visiting.identity import COOKIE, address_of, forwarded_for, key_of
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.fake_run import FakeRun
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("81.2.69.142", "81.2.69.142"),
        ("81.2.69.142, 10.16.3.80", "81.2.69.142"),  # a proxy inside the Space adds the address of the one in front of it
        ("8.8.8.8, 81.2.69.142, 10.16.3.80, 10.16.4.1", "81.2.69.142"),  # the first one is what the visitor wrote
        ("8.8.8.8, not an address", ""),
        ("10.0.0.1, 192.168.0.2", ""),
        ("", ""),
        ("2a02:1234::1, fd00::1", "2a02:1234::1"),
    ],
)
def test_only_what_a_proxy_added_counts_as_the_address(header: str, address: str) -> None:
    assert forwarded_for({"x-forwarded-for": header}) == address


def test_a_header_that_is_sent_twice_is_read_whole() -> None:
    lines = [(b"x-forwarded-for", b"8.8.8.8"), (b"x-forwarded-for", b"81.2.69.142, 10.0.0.1")]
    assert forwarded_for(Headers(raw=lines)) == "81.2.69.142"


def hashed(header: str, mode: Mode = Mode.SPACE) -> str:
    return address_of(mode, {"x-forwarded-for": header}, "10.0.0.9")


def test_one_person_is_one_address_whatever_the_beginning_of_the_header_says() -> None:
    assert hashed("1.1.1.1, 81.2.69.142") == hashed("9.9.9.9, 81.2.69.142") != hashed("81.2.69.143")
    assert hashed("2a02:1234:0:7::1") == hashed("2a02:1234:0:7:ffff::2") != hashed("2a02:1234:0:8::1")
    assert hashed("::ffff:81.2.69.142") == hashed("81.2.69.142")
    assert hashed("1.1.1.1", Mode.CLASSROOM) == hashed("9.9.9.9", Mode.CLASSROOM)  # no proxy is believed there


@pytest.fixture
def stopped(tmp_path: Path) -> str:
    """A run that Ann started, and stopped before its first step."""
    run = FakeRun(tmp_path)
    run.run()
    run.writer.set_state("stopped")
    run.close()
    with people.change(tmp_path) as connection:
        set_starter(connection, run.run_id, Starter("visitor", key="ann", address="home"))
    return run.run_id


def by(key: str, address: str = "home", **limits: Any) -> Admission:
    return Admission(Starter("visitor", key=key, address=address), Limits(**limits))


def test_a_resumed_run_is_one_of_the_runs_that_a_visitor_may_have(tmp_path: Path, stopped: str) -> None:
    workspace, config = Workspace(tmp_path), load_recipe("world").config
    waiting = workspace.submit(config, by=by("ann"))
    with pytest.raises(StoreError, match="number 1 in the queue") as refused:
        workspace.resume(stopped, from_start=True, by=by("ann"))
    assert refused.value.reason == "limit" and workspace.status(stopped).state == "stopped"
    workspace.cancel(waiting)
    assert workspace.resume(stopped, from_start=True, by=by("ann")) == 1
    with pytest.raises(StoreError, match="number 1 in the queue"):
        workspace.submit(config, by=by("ann"))


def test_a_full_queue_takes_no_resumed_run_of_a_visitor(tmp_path: Path, stopped: str) -> None:
    workspace = Workspace(tmp_path)
    workspace.submit(load_recipe("world").config, by=by("bob", "elsewhere"))
    with pytest.raises(StoreError, match="1 runs wait"):
        workspace.resume(stopped, from_start=True, by=by("ann", waiting=1))
    with pytest.raises(StoreError, match="network address"):
        workspace.resume(stopped, from_start=True, by=by("ann", "elsewhere", of_address=1))
    assert workspace.resume(stopped, from_start=True) == 2  # an operator's resume has no limits


def test_students_resume_nothing_while_the_teacher_does_not_let_them_start() -> None:
    access = Access(Mode.CLASSROOM, loopback=False, token="of the teacher")
    cookie = access.visitors.new_value()
    access.room.students.come(access.visitors.key_of(cookie))
    headers = Headers({"host": "lab", CLASS_HEADER: access.room.link, "cookie": f"{COOKIE}={cookie}"})
    student = SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.7"), query_params={})
    assert access.admission(student).limits == access.budget.limits
    access.room.students_start_runs = False
    with pytest.raises(gr.Error, match="class link"):
        access.admission(student)


def test_a_resumed_run_has_its_ten_minutes_anew_and_no_more(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.run()
    run.step()
    with people.change(tmp_path) as connection:
        set_starter(connection, run.run_id, Starter("visitor", key="ann"))
    workspace = Workspace(tmp_path)
    started = workspace.status(run.run_id).started_at
    assert started is not None
    now = [started + 30]
    janitor = Janitor(workspace, Limits(seconds=600), now=lambda: now[0])
    janitor.look()
    run.writer.set_state("stopped")
    now[0] += 300
    janitor.look()
    run.writer.set_state("running")
    for later in (3600, 599):
        now[0] += later
        janitor.look()
        assert run.writer.pending_commands() == []
    now[0] += 2
    janitor.look()
    assert [command.kind for command in run.writer.pending_commands()] == ["stop"]
    run.close()


def test_whoever_may_not_start_costs_the_app_no_check_of_settings(tmp_path: Path) -> None:
    def inspect(*_: Any, **__: Any) -> Any:
        raise AssertionError("the settings were checked")

    workspace = Workspace(tmp_path)
    access = Access(Mode.SPACE, loopback=False, token="of the owner")
    page = TrainPage(workspace, access, inspect=inspect)
    headers = Headers(
        {"host": "someone-studio.hf.space", "cookie": f"{COOKIE}={access.visitors.new_value()}", "x-forwarded-for": "81.2.69.142"}
    )
    visitor: Any = SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.7"), query_params={})
    own = workspace.submit(load_recipe("world").config, by=access.admission(visitor))
    request = {"values": values_of(load_recipe("world").config), "basis": "world", "nonce": "1"}
    answer = page.start(request, visitor)
    (problem,) = answer["problems"]
    assert "Your run is number 1 in the queue" in problem["message"] and answer["run"] == own  # where the page leads


class Class:
    """A class with one student, Ann, whose run is about to be queued. ``meanwhile`` is what the teacher does at that moment."""

    def __init__(self, root: Path, meanwhile: Callable[[Class], None] | None = None) -> None:
        access = Access(Mode.CLASSROOM, loopback=False, token="of the teacher")
        access.room.students.come(key_of("A" * 22))
        cookie = access.visitors.signed("A" * 22)
        headers = Headers({"host": "lab", CLASS_HEADER: access.room.link, "cookie": f"{COOKIE}={cookie}"})
        student: Any = SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.7"), query_params={})
        self.room = access.room
        self.room.call(key_of("A" * 22), "Ann")
        self.teacher = threading.Thread(target=meanwhile, args=(self,)) if meanwhile else None
        self.workspace = Workspace(root, on_queued=self._teach)
        self.starter, self.admission = access.starter(student), access.admission(student)

    def _teach(self, run_id: str) -> None:
        if self.teacher:
            before = self.room.link, self.room.names_allowed
            self.teacher.start()
            wait_until(lambda: (self.room.link, self.room.names_allowed) != before)  # the database is locked until the run is queued

    def start(self) -> Starter:
        run_id = self.workspace.submit(load_recipe("world").config, by=self.admission)
        if self.teacher:
            self.teacher.join()
        return self.workspace.status(run_id).starter


def names_off(lesson: Class) -> None:
    lesson.room.names_allowed = False
    lesson.workspace.forget_students(names=True)


def ended(lesson: Class) -> None:
    lesson.room.end()
    lesson.workspace.forget_students()


def test_a_start_is_kept_with_who_it_is_by_then(tmp_path: Path) -> None:
    lesson = Class(tmp_path)
    assert lesson.start() == lesson.starter and lesson.starter.name == "Ann"


@pytest.mark.parametrize("early", [True, False], ids=["before it is queued", "while it is queued"])
def test_a_name_does_not_come_back_with_a_start_that_was_under_way(early: bool, tmp_path: Path) -> None:
    lesson = Class(tmp_path) if early else Class(tmp_path, names_off)
    if early:
        names_off(lesson)
    assert lesson.start() == replace(lesson.starter, name="")
    assert b"Ann" not in (tmp_path / paths.STUDIO_DATABASE).read_bytes()


def test_a_class_that_has_ended_takes_no_start_that_was_under_way(tmp_path: Path, stopped: str) -> None:
    lesson = Class(tmp_path)
    lesson.room.end()
    with pytest.raises(StoreError, match="class link") as refused:
        lesson.start()
    assert refused.value.reason == "limit" and [folder.name for folder in lesson.workspace.folders()] == [stopped]
    with pytest.raises(StoreError, match="class link"):
        lesson.workspace.resume(stopped, from_start=True, by=lesson.admission)


def test_a_class_that_ends_while_a_start_is_queued_keeps_nothing_of_who_it_was(tmp_path: Path) -> None:
    lesson = Class(tmp_path, ended)
    assert lesson.start() == Starter("student", "Ann")  # the name that was typed, as for every run of the class
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert lesson.starter.key.encode() not in stored and lesson.starter.address == ""


def test_no_start_is_queued_while_students_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a start that has just asked who the student is would write it down behind what forgets it."""
    forget, looks = people.Database.forget, list[str]()

    def forget_and_look(database: people.Database) -> Any:
        with closing(sqlite3.connect(tmp_path / paths.STUDIO_DATABASE, timeout=0)) as other:
            with pytest.raises(sqlite3.OperationalError, match="locked") as refused:
                other.execute("BEGIN IMMEDIATE")  # as every start begins
            looks.append(str(refused.value))
        return forget(database)

    with people.change(tmp_path) as connection:
        set_starter(connection, "run", Starter("student", "Ann", "k" * 24, "a" * 24))
    monkeypatch.setattr(people.Database, "forget", forget_and_look)
    Workspace(tmp_path).forget_students()
    assert looks and read_starters(tmp_path) == {"run": Starter("student", "Ann")}


def test_names_that_are_turned_off_are_overwritten_on_the_disk(tmp_path: Path) -> None:
    with people.change(tmp_path) as connection:
        set_starter(connection, "run", Starter("student", "Annabella, second row, beside the door", "k" * 24, "a" * 24))
    Workspace(tmp_path).forget_students(names=True)
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"Annabella" not in left and b"k" * 24 in left
