import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from rlhf_studio.runs import liveness, studio
from rlhf_studio.runs import workspace as workspace_module
from rlhf_studio.runs.errors import AlreadyRunning, StoreError
from rlhf_studio.runs.liveness import EngineLock, StartTicket
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, end, new_run, open_descriptors, start_fake, step_record
from tests.waiting import wait_until


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def finish(folder: Path, state: str = "finished") -> None:
    with RunWriter(folder) as writer:
        writer.set_state("running")
        writer.set_state(state)  # type: ignore[arg-type]


def test_looking_at_an_empty_workspace_creates_nothing(workspace: Workspace):
    assert workspace.runs() == [] and workspace.queue_position("some-run") is None and workspace.adopt() == []
    assert not workspace.root.exists()


def test_submitted_runs_wait_in_order(workspace: Workspace):
    ids = [workspace.submit(config(steps=steps), f"run {steps}") for steps in (1, 2, 3)]
    assert [workspace.queue_position(run_id) for run_id in ids] == [1, 2, 3]
    for run_id, status in zip(ids, [workspace.status(run_id) for run_id in ids], strict=True):
        assert (status.run_id, status.state, status.phase) == (run_id, "queued", "Waiting in the queue")
        assert status.queue_position == ids.index(run_id) + 1
        assert RunReader(workspace.run_dir(run_id)).status() == status  # the same without the workspace object
    assert [run.name for run in workspace.runs()] == ["run 3", "run 2", "run 1"]  # newest first
    assert Workspace(workspace.root).queue_position(ids[2]) == 3  # nothing is kept in memory


def test_a_submission_that_cannot_be_queued_leaves_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: object, **keywords: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(studio, "append", full)
    with pytest.raises(StoreError, match="The disk is full"):
        workspace.submit(config())
    assert list((workspace.root / "runs").iterdir()) == []


def test_the_list_shows_what_is_not_a_run(workspace: Workspace, tmp_path: Path):
    good = workspace.submit(config(), "good")
    runs = workspace.root / "runs"
    (runs / "empty").mkdir()
    (runs / "a-file").write_text("text")
    (runs / "with space").mkdir()
    (runs / ".hidden").mkdir()
    damaged = new_run(runs / "damaged")
    (damaged / "run.db").write_bytes(b"not a database" * 1000)
    newer = new_run(runs / "newer")
    with sqlite3.connect(newer / "run.db") as connection:
        connection.execute("PRAGMA user_version = 9")
    new_run(tmp_path / "outside")
    (runs / "link-out").symlink_to(tmp_path / "outside")
    (runs / "link-in").symlink_to(runs / good)
    (runs / "link-nowhere").symlink_to(tmp_path / "nothing")
    listed = {run.run_id: run for run in workspace.runs()}
    assert set(listed) == {good, "empty", "a-file", "with space", "damaged", "newer", "link-out", "link-in", "link-nowhere"}
    causes = {
        "empty": "There is no run",
        "a-file": "There is no run",
        "with space": "not the id of a run",
        "damaged": "is damaged",
        "newer": "store version 9",
        "link-out": "leads out of",
        "link-in": "is a link",
        "link-nowhere": "leads out of",
    }
    for run_id, words in causes.items():
        assert listed[run_id].state == "failed" and words in listed[run_id].cause
        assert listed[run_id].created_at > 0
    assert listed[good].state == "queued"
    assert workspace.status("damaged").cause == listed["damaged"].cause


def test_a_run_deleted_while_the_list_is_made(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    waiting, gone = workspace.submit(config()), workspace.submit(config())
    folders = workspace.folders()
    monkeypatch.setattr(workspace, "folders", lambda: folders)
    status_in = RunReader.status_in

    def vanish(self: RunReader, *arguments: object, **keywords: object) -> object:
        if self.run_dir.name == gone and self.run_dir.exists():
            self.run_dir.rename(workspace.root / "elsewhere")
        return status_in(self, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(RunReader, "status_in", vanish)
    assert [run.run_id for run in workspace.runs()] == [waiting]
    assert [run.run_id for run in workspace.runs()] == [waiting]
    (workspace.root / "elsewhere").rename(workspace.root / "runs" / gone)
    with pytest.raises(StoreError, match="There is no run"):
        workspace.status(gone)


def test_a_workspace_that_cannot_be_used(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for use in (lambda w: w.runs(), lambda w: w.submit(config())):
        with pytest.raises(StoreError):
            use(Workspace(tmp_path / "file"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "runs").write_text("")
    with pytest.raises(StoreError):
        Workspace(tmp_path / "other").runs()
    with pytest.raises(StoreError):
        Workspace(tmp_path / "other").rename("some-run", "x")
    with pytest.raises(StoreError), studio.change(tmp_path / "other"):
        pass


def test_unknown_ids(workspace: Workspace):
    for run_id in ("no-such-run", "../runs", "", "a/b", "x" * 200):
        for use in (workspace.run_dir, workspace.status, workspace.reader, workspace.resume, workspace.delete):
            with pytest.raises(StoreError, match="no such run|no run") as caught:
                use(run_id)
            assert caught.value.reason == "missing"
        with pytest.raises(StoreError, match="is not waiting"):
            workspace.cancel(run_id)


def test_a_damaged_or_newer_queue_is_a_sentence(workspace: Workspace):
    run_id = workspace.submit(config())
    path = workspace.root / "studio.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE queue SET cause = 7")
        connection.execute("INSERT INTO names VALUES (?, 7)", (run_id,))
        connection.execute("UPDATE queue SET cause = 7.5")
    with sqlite3.connect(path) as connection:  # a text column turns numbers into text; a table without types does not
        connection.execute("DROP TABLE names")
        connection.execute("CREATE TABLE names (run_id, name)")
        connection.execute("INSERT INTO names VALUES (?, 7)", (run_id,))
    with pytest.raises(StoreError, match=r"studio\.db is damaged: text expected.*Move it away"):
        workspace.runs()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE names")
    with pytest.raises(StoreError, match=r"studio\.db is damaged"):
        workspace.runs()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 6")
    for use in (workspace.runs, lambda: workspace.submit(config())):
        with pytest.raises(StoreError, match=r"Written by a newer RLHF Studio: it has store version 6.*studio\.db"):
            use()
    path.write_bytes(b"")  # another process is creating it at this moment
    assert [run.run_id for run in workspace.runs()][0] == run_id


# --- names -------------------------------------------------------------------------------------------------------------------


def test_renaming(workspace: Workspace):
    run_id = workspace.submit(config(), "first")
    database = (workspace.run_dir(run_id) / "run.db").read_bytes()
    for name in ("second", "third <b>", "x" * 120):
        workspace.rename(run_id, f"  {name} " if len(name) < 100 else name)
        assert workspace.status(run_id).name == RunReader(workspace.run_dir(run_id)).status().name == name
    workspace.rename(run_id, "")
    assert workspace.status(run_id).name == "first"
    assert (workspace.run_dir(run_id) / "run.db").read_bytes() == database  # only the engine writes there
    for use in (lambda: workspace.rename(run_id, "x" * 121), lambda: workspace.submit(config(), "x" * 121)):
        with pytest.raises(ValueError, match="at most 120 characters, not 121"):
            use()
    with pytest.raises(StoreError):
        workspace.rename("no-such-run", "name")


# --- cancelling and resuming -------------------------------------------------------------------------------------------------


def test_cancelling_a_new_run(workspace: Workspace):
    first, second, third = (workspace.submit(config()) for _ in range(3))
    workspace.cancel(second)
    assert [workspace.queue_position(run_id) for run_id in (first, second, third)] == [1, None, 2]
    status = workspace.status(second)
    assert (status.state, status.phase, status.queue_position) == ("stopped", "Cancelled before it started", None)
    with pytest.raises(StoreError, match="is not waiting in the queue") as caught:
        workspace.cancel(second)
    assert caught.value.reason == "state"
    assert workspace.resume(second) == 3  # at the end
    entry = studio.read(workspace.root).entries[second]
    assert entry.mode == "train"  # it never began, so there is nothing to go on from


@pytest.mark.parametrize("state", ["stopped", "failed", "running"])
def test_resuming_and_changing_ones_mind(workspace: Workspace, state: str):
    waiting, ended = workspace.submit(config()), workspace.submit(config())
    workspace.cancel(ended)
    finish(workspace.run_dir(ended), state)  # "running" and nobody there: interrupted
    before = workspace.status(ended)
    assert before.state == ("interrupted" if state == "running" else state)
    assert workspace.resume(ended) == 2
    assert workspace.status(ended).state == "queued" and studio.read(workspace.root).entries[ended].mode == "resume"
    with pytest.raises(StoreError, match="is queued; only a stopped, failed or interrupted run"):
        workspace.resume(ended)
    workspace.cancel(ended)
    assert workspace.status(ended).state == before.state
    assert workspace.queue_position(waiting) == 1


def test_how_a_queued_run_is_to_start_is_kept_as_ever(workspace: Workspace):
    """The queue of an app of yesterday opens: the column holds 0 for a new run, 1 to go on, 2 to begin again; 3 came later."""
    ids = [workspace.submit(config()) for _ in range(3)]
    with studio.change(workspace.root) as connection:
        for stored, run_id in enumerate(ids):
            connection.execute("UPDATE queue SET resume = ? WHERE run_id = ?", (stored, run_id))
    entries = studio.read(workspace.root).entries
    assert [entries[run_id].mode for run_id in ids] == ["train", "resume", "from-start"]
    with studio.change(workspace.root) as connection:
        studio.append(connection, ids[0], "from-start", seq=0)
        assert connection.execute("SELECT resume FROM queue WHERE run_id = ?", (ids[0],)).fetchone() == (2,)
        connection.execute("UPDATE queue SET resume = 3")
    assert {(entry.mode, entry.replaced) for entry in studio.read(workspace.root).entries.values()} == {("resume", True)}
    with studio.change(workspace.root) as connection:
        connection.execute("UPDATE queue SET resume = 4")
    with pytest.raises(StoreError, match="unknown way to start a run: 4"):
        studio.read(workspace.root)


def test_runs_that_cannot_be_resumed(workspace: Workspace):
    run_id = workspace.submit(config())
    finish(workspace.run_dir(run_id))
    workspace.cancel(run_id)
    with pytest.raises(StoreError, match="is finished; only"):
        workspace.resume(run_id)
    with RunWriter(workspace.run_dir(run_id)) as writer, EngineLock(workspace.run_dir(run_id)):
        writer.set_state("running")
        with pytest.raises(StoreError, match="is running; only"):
            workspace.resume(run_id)
        writer.set_state("failed")
    (workspace.run_dir(run_id) / "config.yaml").write_text("nonsense: true")
    with pytest.raises(StoreError, match=r"config\.yaml cannot be used"):
        workspace.resume(run_id)
    (workspace.run_dir(run_id) / "run.db").write_bytes(b"")
    with pytest.raises(StoreError, match="was not written by RLHF Studio"):
        workspace.resume(run_id)


# --- deleting ----------------------------------------------------------------------------------------------------------------


def test_deleting_removes_everything_inside_and_nothing_outside(workspace: Workspace, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    run_id, other = workspace.submit(config(), "x"), workspace.submit(config())
    workspace.rename(run_id, "named")
    folder = workspace.run_dir(run_id)
    (folder / "checkpoints" / "link").symlink_to(outside)
    (folder / "file-link").symlink_to(outside / "precious")
    workspace.delete(run_id)
    assert (outside / "precious").read_text() == "precious"
    assert [entry.name for entry in (workspace.root / "runs").iterdir()] == [other]
    assert workspace.queue_position(other) == 1
    known = studio.read(workspace.root)
    assert run_id not in known.entries and run_id not in known.names
    with pytest.raises(StoreError, match="no run"):
        workspace.status(run_id)


def test_links_are_never_deleted_through(workspace: Workspace, tmp_path: Path):
    run_id = workspace.submit(config())
    new_run(tmp_path / "outside")
    (workspace.root / "runs" / "link-out").symlink_to(tmp_path / "outside")
    (workspace.root / "runs" / "link-in").symlink_to(workspace.run_dir(run_id))
    for name in ("link-out", "link-in", ".", "..", "../../outside"):
        with pytest.raises(StoreError):
            workspace.delete(name)
    assert (tmp_path / "outside" / "run.db").exists() and (workspace.run_dir(run_id) / "run.db").exists()


def test_a_damaged_run_can_be_deleted(workspace: Workspace):
    folder = new_run(workspace.root / "runs" / "damaged")
    (folder / "run.db").write_bytes(b"nonsense")
    workspace.delete("damaged")
    assert workspace.runs() == []


def test_living_and_starting_runs_are_not_deleted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(liveness, "RETRY_SECONDS", 0.05)
    run_id = workspace.submit(config())
    folder = workspace.run_dir(run_id)
    engine = start_fake(folder, "hold")
    try:
        wait_until(lambda: workspace.status(run_id).state == "running")
        with pytest.raises(AlreadyRunning, match="is running or just starting. Stop it"):
            workspace.delete(run_id)
        assert workspace.status(run_id).state == "running"
    finally:
        end(engine)
    ticket = StartTicket(folder)
    ticket.take()
    with pytest.raises(AlreadyRunning):
        workspace.delete(run_id)
    ticket.close()
    workspace.delete(run_id)
    assert workspace.runs() == []


def test_what_cannot_be_removed_is_cleared_away_later(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    run_id, locked = workspace.submit(config()), workspace.submit(config())
    rmtree = workspace_module.shutil.rmtree

    def fail(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(workspace_module.shutil, "rmtree", fail)
    with pytest.raises(StoreError, match="Permission denied"):
        workspace.delete(run_id)
    assert [run.run_id for run in workspace.runs()] == [locked]  # gone from the list all the same
    assert len(list((workspace.root / "runs").glob(".trash-*"))) == 1
    monkeypatch.setattr(workspace_module.shutil, "rmtree", rmtree)
    with EngineLock(workspace.run_dir(locked)):
        assert workspace.adopt() == [locked]
    assert list((workspace.root / "runs").glob(".trash-*")) == []

    def gone(folder: Path) -> None:  # another app was quicker
        raise FileNotFoundError(2, "No such file")

    monkeypatch.setattr(workspace_module.shutil, "rmtree", gone)
    workspace.delete(locked)


def test_a_folder_that_cannot_be_renamed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    run_id = workspace.submit(config())

    def fail(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(StoreError, match="The disk is full"):
        workspace.delete(run_id)
    assert not liveness.is_alive(workspace.run_dir(run_id)) and not liveness.is_starting(workspace.run_dir(run_id))
    assert workspace.runs()[0].run_id == run_id


# --- size --------------------------------------------------------------------------------------------------------------------


def test_two_hundred_runs_hold_no_locks_and_leak_nothing(workspace: Workspace):
    first = new_run(workspace.root / "runs" / "run-000")
    for number in range(1, 200):
        shutil.copytree(first, first.parent / f"run-{number:03}")
    with RunWriter(first) as writer:
        writer.commit_step(step_record(1))
        workspace.runs()  # SQLite keeps one descriptor back while this process has the database open otherwise, too
        before = open_descriptors()
        assert len(workspace.runs()) == 200 and open_descriptors() == before
        writer._connection.execute("PRAGMA busy_timeout = 0")
        writer.commit_step(step_record(2))  # nobody is in the way
