"""A class and its app: one app holds it, the next one goes on with it after a kill, and nobody else's file makes a teacher."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.runs.classroom.secret import TEACHER as FILE
from rlhf_studio.runs.classroom.secret import forget_secret, keep_secret, kept_secret
from rlhf_studio.runs.classroom.store import Holding
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import HEADER, Access
from rlhf_studio.ui.app import Server
from rlhf_studio.ui.classroom.page import ClassPage
from rlhf_studio.ui.talk.line import Line
from rlhf_studio.ui.visiting.greeting import greeting
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.test_classroom import TEACHER, answer_of, begun, present_round, student
from tests.ui.test_visiting import served


@pytest.fixture
def lesson(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(Mode.CLASSROOM, tmp_path, tmp_path_factory.mktemp("world")) as running:
        yield running


def line_of(access: Access, root: Path) -> Line:
    return Line(Workspace(root), access.room, Service("talk"), lambda: False)


def class_of(root: Path, token: str, *, set_by_a_person: bool = False) -> tuple[ClassPage, Access]:
    access = Access(Mode.CLASSROOM, token=token, token_only=set_by_a_person)
    return ClassPage(access, Workspace(root), None, None, line_of(access, root)), access  # type: ignore[arg-type]


@contextmanager
def app(root: Path, token: str, **more: bool) -> Iterator[Access]:
    """The class of an app that has just begun on a workspace, and is killed at the end."""
    page, access = class_of(root, token, **more)
    page.open()
    yield access
    killed(page)


def killed(page: Any) -> None:
    """What the kernel does when the app is killed; nothing else of it happens."""
    page._holding.release()


def test_the_class_of_an_app_that_was_killed_goes_on_under_its_link(lesson: Server) -> None:
    page, root = lesson.services.class_page, lesson.workspace.root
    first = answer_of(lesson, "link", {}, TEACHER)["link"].partition("class=")[2]
    killed(page)
    with app(root, "x") as next_one:
        room = next_one.room
        assert room.link == first and room.students_start_runs and room.names_allowed
    renewed = answer_of(lesson, "change", {"renew": True, "runs": False}, TEACHER)["link"].partition("class=")[2]
    answer_of(lesson, "change", {"names": False}, TEACHER)
    with app(root, "x") as next_one:
        room = next_one.room
        assert room.link == renewed != first and not room.students_start_runs and not room.names_allowed
    answer_of(lesson, "change", {"end": True}, TEACHER)
    with app(root, "x") as next_one:
        assert next_one.room.link not in ("", first, renewed)


def test_what_was_allowed_holds_for_the_next_class_of_the_same_app(lesson: Server) -> None:
    answer_of(lesson, "change", {"runs": False}, TEACHER)
    answer_of(lesson, "change", {"end": True}, TEACHER)
    begun_again = answer_of(lesson, "change", {"renew": True}, TEACHER)
    killed(lesson.services.class_page)
    with app(lesson.workspace.root, "x") as next_one:
        assert begun_again["runs"] is False and not next_one.room.students_start_runs


# --- one app at a time ------------------------------------------------------------------------------------------------------------


def test_a_second_app_is_refused_and_leaves_the_class_of_the_first_alone(lesson: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    round_id = begun(lesson)
    answer_of(lesson, "name", {"name": "Ann"}, student(lesson, 1))
    with (
        pytest.raises(StoreError, match="holds the class") as refused,
        served(Mode.CLASSROOM, lesson.workspace.root, tmp_path_factory.mktemp("second")),
    ):
        raise AssertionError("a second app has begun")
    assert refused.value.reason == "alive" and "\n" not in str(refused.value)
    second, _ = class_of(lesson.workspace.root, "x")
    with pytest.raises(StoreError):
        second.open()
    second.close()
    assert "problem" not in answer_of(lesson, "answer", {"round": round_id, "answer": 1}, student(lesson, 1))
    assert present_round(lesson, student(lesson, 1))["name"] == "Ann" and not answer_of(lesson, "now", {}, {})["ended"]


def test_a_workspace_can_have_a_class_again_when_the_app_has_ended(tmp_path: Path) -> None:
    for token in ("first", "second"):
        page, access = class_of(tmp_path, token)
        page.open()
        assert access.operator_token == token and access.room.link
        page.close()


def test_an_app_without_a_class_ends_nobodys(lesson: Server) -> None:
    page = ClassPage(access := Access(), lesson.workspace, None, None, line_of(access, lesson.workspace.root))  # type: ignore[arg-type]
    page.open()
    page.close()
    assert answer_of(lesson, "link", {}, TEACHER)["ended"] is False


def test_a_class_is_held_by_one_and_freed_once(tmp_path: Path) -> None:
    first, second = Holding(tmp_path), Holding(tmp_path)
    first.take()
    with pytest.raises(StoreError):
        second.take()
    assert first.held and not second.held
    first.release()
    first.release()
    second.take()
    second.release()
    (tmp_path / "elsewhere").touch()
    first.path.unlink()
    first.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        first.take()


# --- the teacher's link -----------------------------------------------------------------------------------------------------------


def test_the_teachers_link_goes_on_after_a_kill(tmp_path: Path) -> None:
    with app(tmp_path, "first") as before:
        assert before.operator_token == "first"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert not [path for path in tmp_path.glob("people.db*") if b"first" in path.read_bytes()]
    with app(tmp_path, "second") as after:
        assert after.operator_token == "first"
        assert greeting("http://127.0.0.1:7860/", tmp_path, after, "127.0.0.1")[-1].endswith("?operator=first")
    page, access = class_of(tmp_path, "third")
    page.open()
    assert access.operator_token == "first"
    page.close()  # in order: the class has ended, and with it the link
    assert not (tmp_path / FILE).exists()
    with app(tmp_path, "fourth") as anew:
        assert anew.operator_token == "fourth"


def test_a_new_teachers_link_is_the_one_that_goes_on(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(Mode.CLASSROOM, tmp_path, tmp_path_factory.mktemp("world"), token="") as lesson:
        teacher = {HEADER: lesson.access.operator_token}
        fresh = answer_of(lesson, "change", {"teacher": True}, teacher)["teacher"].partition("operator=")[2]
        killed(lesson.services.class_page)
        with app(tmp_path, "another") as after:
            assert after.operator_token == fresh
        answer_of(lesson, "change", {"end": True}, {HEADER: fresh})
        assert not (tmp_path / FILE).exists()
        answer_of(lesson, "change", {"teacher": True}, {HEADER: fresh})
        assert not (tmp_path / FILE).exists()  # there is no class to go on with
        answer_of(lesson, "change", {"renew": True}, {HEADER: lesson.access.operator_token})
        assert kept_secret(tmp_path, FILE) == lesson.access.operator_token


def test_a_token_that_a_person_has_set_is_not_written_down(lesson: Server) -> None:
    answer_of(lesson, "change", {"teacher": True}, TEACHER)
    assert not (lesson.workspace.root / FILE).exists()
    killed(lesson.services.class_page)
    with app(lesson.workspace.root, "generated"):
        assert (lesson.workspace.root / FILE).exists()
    with app(lesson.workspace.root, "set", set_by_a_person=True) as after:
        assert after.operator_token == "set" and not (lesson.workspace.root / FILE).exists()


def test_only_what_this_program_has_kept_makes_a_teacher(tmp_path: Path) -> None:
    path, other = tmp_path / FILE, tmp_path / "other"
    assert kept_secret(tmp_path, FILE) == ""
    keep_secret(tmp_path, FILE, "token")
    keep_secret(tmp_path, FILE, "newer")
    assert kept_secret(tmp_path, FILE) == "newer" and [path.name for path in tmp_path.iterdir()] == [FILE]
    path.chmod(0o640)
    assert kept_secret(tmp_path, FILE) == ""
    path.chmod(0o600)
    path.rename(other)
    path.symlink_to(other)
    assert kept_secret(tmp_path, FILE) == ""
    path.unlink()
    shutil.copy2(other, path)
    assert kept_secret(tmp_path, FILE) == ""  # a copy, as an archive would bring it
    path.write_bytes(b"\xff")
    assert kept_secret(tmp_path, FILE) == ""
    forget_secret(tmp_path, FILE)
    forget_secret(tmp_path, FILE)
    assert not path.exists()
    path.mkdir()
    assert kept_secret(tmp_path, FILE) == ""
    with pytest.raises(StoreError):
        keep_secret(tmp_path, FILE, "token")
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, "other"]
