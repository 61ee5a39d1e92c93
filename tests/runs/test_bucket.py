"""Copies of ended runs in a bucket: whole ones come back on an empty disk, and whatever goes wrong on the way, nothing is lost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.hosted import bucket as bucket_module
from rlhf_studio.runs.hosted import copying
from rlhf_studio.runs.hosted.bucket import MARK, Bucket, BucketError
from rlhf_studio.runs.hosted.keeper import Keeper, bucket_of, keeper_of
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.people import change
from rlhf_studio.runs.visitors.starters import Starter, set_starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, step_record
from tests.runs.test_checkpoints import checkpoint


@pytest.fixture
def bucket_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "disk")


def ended(workspace: Workspace, starter: Starter | None = None) -> str:
    """The id of a finished run of two steps, with a checkpoint of the second."""
    run_id = workspace.submit(config(), "a run")
    workspace.cancel(run_id)
    with RunWriter(workspace.run_dir(run_id)) as writer:
        for step in (1, 2):
            writer.commit_step(step_record(step))
        checkpoint(workspace.run_dir(run_id), 2)
        writer.set_state("finished")
    if starter is not None:
        with change(workspace.root) as connection:
            set_starter(connection, run_id, starter)
    return run_id


def look(workspace: Workspace, bucket_folder: Path, **more: Any) -> Keeper:
    """One round of a keeper that has just started."""
    keeper = Keeper(workspace, Bucket(bucket_folder), **more)
    keeper.problem = keeper.look()
    return keeper


def contents(folder: Path) -> dict[str, str]:
    """Hashes of all files of a run but locks and what SQLite keeps beside its database."""
    skipped = ("engine.lock", "start.lock", "reserve.bin", "run.db", "run.db-wal", "run.db-shm", MARK)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in skipped]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_run_comes_back_on_an_empty_disk_as_it_was(workspace: Workspace, bucket_folder: Path) -> None:
    run = ended(workspace)
    workspace.rename(run, "the good one")
    workspace.mark(run, tags=["keep", "ü"], note="look at step 7", archived=True)
    look(workspace, bucket_folder)
    (copy,) = bucket_folder.iterdir()
    assert sorted(path.name for path in copy.glob("run.db*")) == ["run.db"]  # closed: nothing of a log beside it
    with sqlite3.connect(f"{(copy / 'run.db').as_uri()}?immutable=1", uri=True) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert database.execute("SELECT max(step) FROM steps").fetchone() == (2,)
    assert not list(workspace.root.glob(f"{copying.STAGING}*"))

    empty = Workspace(workspace.root.parent / "new disk")
    assert look(empty, bucket_folder).problem == ""
    was, now = workspace.status(run), empty.status(run)
    assert (now.name, now.marks, now.state, now.step, now.seq) == (was.name, was.marks, "finished", 2, was.seq)
    assert now.name == "the good one" and now.marks.tags == ("keep", "ü")
    assert contents(empty.run_dir(run)) == contents(workspace.run_dir(run)) == contents(copy)
    assert empty.reader(run).rollouts(2) is not None and len(empty.reader(run).checkpoints()) == 1
    times = {path: path.stat().st_mtime_ns for path in bucket_folder.rglob("*")}
    look(empty, bucket_folder)  # what came back is not copied again
    assert {path: path.stat().st_mtime_ns for path in bucket_folder.rglob("*")} == times


def test_only_runs_of_the_owner_that_have_ended_are_copied(workspace: Workspace, bucket_folder: Path) -> None:
    at_work = workspace.run_dir(workspace.submit(config()))
    visitors = ended(workspace, starter=Starter("visitor", key="ann"))
    own = ended(workspace, starter=Starter("operator"))
    with EngineLock(at_work), RunWriter(at_work) as writer:
        writer.set_state("running")
        writer.commit_step(step_record(1))
        look(workspace, bucket_folder)
        assert [path.name for path in bucket_folder.iterdir()] == [f"{own}.1"]
        look(workspace, bucket_folder, visitors=True)
    assert {path.name for path in bucket_folder.iterdir()} == {f"{own}.1", f"{visitors}.1"}
    empty = Workspace(workspace.root.parent / "new disk")
    look(empty, bucket_folder)
    assert empty.status(visitors).starter == Starter("visitor", key="ann")


def test_a_run_that_went_on_is_copied_anew_and_the_old_copy_goes(workspace: Workspace, bucket_folder: Path) -> None:
    run = ended(workspace)
    keeper = look(workspace, bucket_folder)
    workspace.rename(run, "another name")
    keeper.look()
    assert [path.name for path in bucket_folder.iterdir()] == [f"{run}.2"]


def failing(number: int, error: int = errno.ENOSPC) -> Callable[..., Any]:
    """Copies files until the ``number``-th, which is cut off."""
    copy_hashed, count = bucket_module.copy_hashed, [0]

    def copy(given: Any, file: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            file.write(given.read(10))
            raise OSError(error, os.strerror(error))
        return copy_hashed(given, file)

    return copy


def test_a_copy_that_is_cut_off_takes_nothing_away(workspace: Workspace, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(workspace)
    keeper = look(workspace, bucket_folder)
    cases = [
        (1, errno.ENOSPC, "it is full"),
        (2, errno.EIO, "Input/output error"),
        (4, errno.ENOTCONN, ""),
        (4, errno.ENOSPC, "it is full"),
    ]
    for before, (number, error, message) in enumerate(cases, start=1):
        workspace.rename(run, f"newer {before}")
        with monkeypatch.context() as patch:
            patch.setattr(bucket_module, "copy_hashed", failing(number, error))
            keeper._look_and_report()
        assert message in keeper.problem and "are whole" in keeper.problem, (number, message)
        copies, parts = Bucket(bucket_folder).copies()
        assert (copies[run].number, parts) == (before, []) and workspace.status(run).step == 2, (number, message)
        keeper._look_and_report()
        assert keeper.problem == "" and Bucket(bucket_folder).copies()[0][run].number == before + 1, (number, message)


def test_a_bucket_that_goes_away_and_comes_back(workspace: Workspace, bucket_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = ended(workspace)
    keeper = look(workspace, bucket_folder)
    bucket_folder.rename(bucket_folder.with_name("elsewhere"))
    for _ in range(3):
        keeper._look_and_report()
    assert "is not there" in keeper.problem and workspace.status(run).state == "finished"
    assert len([record for record in caplog.records if "is not there" in record.message]) == 1  # once, not each time
    bucket_folder.with_name("elsewhere").rename(bucket_folder)
    keeper._look_and_report()
    assert keeper.problem == "" and "can be used again" in caplog.text
    shutil.rmtree(bucket_folder / f"{run}.1")
    keeper.look()  # somebody emptied it: what is here is copied again
    assert run in Bucket(bucket_folder).copies()[0]


def test_an_empty_folder_in_the_place_of_a_disk_is_not_the_bucket(workspace: Workspace, bucket_folder: Path) -> None:
    bucket = Bucket(bucket_folder)
    bucket.names()
    bucket._disk = -1  # as if it had been another disk at first
    with pytest.raises(BucketError, match="not mounted any more"):
        Keeper(workspace, bucket).look()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def renamed(mark: Path, **about: Any) -> None:
    """Write other things into a copy's last file, as somebody can who knows how it is made."""
    text = json.dumps(json.loads(mark.read_text().split("\n")[0]) | about)
    mark.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")


def remarked(copy: Path, **marks: Any) -> None:
    renamed(copy / MARK, marks={"tags": [], "note": "", "archived": False} | marks)


def restarted(copy: Path, **starter: Any) -> None:
    renamed(copy / MARK, starter={"role": "student", "name": "", "key": "", "address": ""} | starter)


def rerun(copy: Path, change: str) -> None:
    """Change a copy's database, and note it as a whole one."""
    with closing(sqlite3.connect(copy / "run.db")) as database, database:
        database.execute(change)
    data = (copy / "run.db").read_bytes()
    files = json.loads((copy / MARK).read_text().split("\n")[0])["files"]
    renamed(copy / MARK, files=files | {"run.db": [len(data), hashlib.sha256(data).hexdigest()]})


def linked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARMS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda copy: (copy / MARK).unlink(), "only a part"),
    (lambda copy: cut(copy / MARK), "only a part"),
    (lambda copy: (copy / MARK).write_text('{"format": 1}\nx\n'), "only a part"),
    (lambda copy: cut(copy / "run.db"), "damaged"),
    (lambda copy: (copy / "config.yaml").write_text("{}"), "damaged"),
    (lambda copy: (copy / "config.yaml").unlink(), "could not be read"),
    (lambda copy: renamed(copy / MARK, files={"../../config.yaml": [1, ""]}), "only a part"),
    (lambda copy: linked(copy / MARK, "/dev/zero"), "only a part"),
    (lambda copy: piped(copy / MARK), "only a part"),
    (lambda copy: (copy / MARK).write_text("[" * 100_000), "only a part"),
    (lambda copy: linked(copy / "run.db", "/dev/zero"), "not written by this program"),
    (lambda copy: linked(copy / "config.yaml", str(copy / "run.db")), "not written by this program"),
    (lambda copy: piped(copy / "config.yaml"), "not written by this program"),
    (lambda copy: renamed(copy / MARK, name="N\ud800"), "not written by this program"),
    (lambda copy: renamed(copy / MARK, name="N" * 121), "not written by this program"),
    (lambda copy: remarked(copy, note="\ud83d{{x}}"), "not written by this program"),
    (lambda copy: remarked(copy, note="n" * 4001), "not written by this program"),
    (lambda copy: remarked(copy, tags=["\ud83d"]), "not written by this program"),
    (lambda copy: remarked(copy, tags=[1]), "not written by this program"),
    (lambda copy: remarked(copy, archived="\ud83d"), "not written by this program"),
    (lambda copy: remarked(copy, **{"\ud83d": 1}), "not written by this program"),
    (lambda copy: restarted(copy, role="x"), "not written by this program"),
    (lambda copy: restarted(copy, name=5), "not written by this program"),
    (lambda copy: restarted(copy, name="\ud800"), "not written by this program"),
    (lambda copy: restarted(copy, name="x" * 41), "not written by this program"),
    (lambda copy: restarted(copy, key="x" * 65), "not written by this program"),
    (lambda copy: restarted(copy, address="x" * 65), "not written by this program"),
    (lambda copy: rerun(copy, "UPDATE run SET name = x'4eeda080'"), "not written by this program"),
    (lambda copy: rerun(copy, "UPDATE run SET model = x'4eeda080'"), "not written by this program"),
    (lambda copy: renamed(copy / MARK, files={"a\udcff": [1, ""]}), "only a part"),
]


def test_what_others_put_into_a_bucket_is_no_run_and_keeps_none_from_coming_back(workspace: Workspace, bucket_folder: Path) -> None:
    run, other = ended(workspace), ended(workspace)
    look(workspace, bucket_folder)
    for number, (harm, message) in enumerate(HARMS):
        harmed = bucket_folder.with_name(f"harmed {number}")
        shutil.copytree(bucket_folder, harmed)
        harm(harmed / f"{run}.1")
        empty = Workspace(bucket_folder.with_name(f"new disk {number}"))
        keeper = look(empty, harmed)
        assert message in keeper.problem and run in keeper.problem, (number, keeper.problem)
        assert [path.name for path in (empty.root / "runs").iterdir()] == [other], number
        assert keeper.problem.encode()  # the page can say it


def test_two_apps_that_take_the_same_number_leave_each_other_s_copy(
    workspace: Workspace, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(workspace)
    look(workspace, bucket_folder)
    monkeypatch.setattr(Bucket, "names", lambda bucket: set())  # as it looked a moment ago
    with pytest.raises(BucketError, match="File exists"):
        look(workspace, bucket_folder)
    monkeypatch.undo()
    assert Bucket(bucket_folder).copies()[0][run].number == 1


def test_a_full_disk_leaves_the_run_in_the_bucket(workspace: Workspace, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(workspace)
    look(workspace, bucket_folder)
    empty = Workspace(workspace.root.parent / "new disk")
    with monkeypatch.context() as patch:
        patch.setattr(copying, "copy_hashed", failing(2))
        keeper = look(empty, bucket_folder)
    assert "disk is full" in keeper.problem and empty.folders() == []
    keeper._look_and_report()
    assert keeper.problem == "" and empty.status(run).step == 2


def test_a_run_that_goes_on_while_it_is_copied_is_copied_later(
    workspace: Workspace, bucket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(workspace)
    copy = bucket_module.copy_hashed

    def renamed_meanwhile(given: Any, file: Any) -> Any:
        workspace.rename(run, "meanwhile")
        return copy(given, file)

    with monkeypatch.context() as patch:
        patch.setattr(bucket_module, "copy_hashed", renamed_meanwhile)
        keeper = look(workspace, bucket_folder)
    assert list(bucket_folder.iterdir()) == []
    keeper.look()
    assert Bucket(bucket_folder).copies()[0][run].about["name"] == "meanwhile"


def test_what_a_person_deletes_goes_from_the_bucket_as_well(workspace: Workspace, bucket_folder: Path) -> None:
    run, other = ended(workspace), ended(workspace)
    keeper = look(workspace, bucket_folder)
    workspace.deleted = keeper.forget
    workspace.delete(run)
    keeper.look()
    assert [path.name for path in bucket_folder.iterdir()] == [f"{other}.1"]
    shutil.rmtree(workspace.run_dir(other))  # not deleted by anybody: a disk that was emptied
    keeper.look()
    assert [path.name for path in bucket_folder.iterdir()] == [f"{other}.1"]


def test_what_was_deleted_stays_deleted_when_the_app_ends_before_the_bucket_answers(workspace: Workspace, bucket_folder: Path) -> None:
    run, left, other = ended(workspace), ended(workspace), ended(workspace)
    keeper = look(workspace, bucket_folder)
    workspace.deleted = keeper.forget
    bucket_folder.rename(bucket_folder.with_name("away"))
    workspace.delete(run)
    folder = workspace.run_dir(left)
    folder.rename(folder.with_name(f".trash-{left}-0011aabb"))  # an app that was killed in the middle of delete
    with pytest.raises(BucketError):
        keeper.look()
    bucket_folder.with_name("away").rename(bucket_folder)
    again = Workspace(workspace.root)
    keeper = Keeper(again, Bucket(bucket_folder))
    again.deleted = keeper.forget
    again.adopt()
    assert keeper.look() == ""
    assert {status.run_id for status in again.runs()} == {other}
    assert [path.name for path in bucket_folder.iterdir()] == [f"{other}.1"]
    assert list((workspace.root / ".deleted").iterdir()) == []  # nothing is kept of what is gone everywhere


def test_the_last_round_is_made_when_the_app_ends(workspace: Workspace, bucket_folder: Path) -> None:
    keeper = Keeper(workspace, Bucket(bucket_folder), interval=3600)
    keeper.start()
    run = ended(workspace)
    assert keeper.finish(20)
    assert f"{run}.1" in {path.name for path in bucket_folder.iterdir()}


def test_which_folder_is_the_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bucket_of({}, space=False) is None
    assert bucket_of({"RLHF_STUDIO_BUCKET": "/b"}, space=False) == Path("/b")
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    assert bucket_of({}, space=True) == Path("/data") and bucket_of({}, space=False) is None
    monkeypatch.setattr("os.path.ismount", lambda path: False)
    assert bucket_of({}, space=True) is None
    with pytest.raises(ValueError, match="RLHF_STUDIO_BUCKET_VISITORS"):
        keeper_of({"RLHF_STUDIO_BUCKET": "/b", "RLHF_STUDIO_BUCKET_VISITORS": "yes"}, Workspace(tmp_path), space=False)
    for inside in (tmp_path, tmp_path / "runs"):  # copies would be taken for runs
        with pytest.raises(ValueError, match="outside of the workspace"):
            keeper_of({"RLHF_STUDIO_BUCKET": str(inside)}, Workspace(tmp_path), space=False)
