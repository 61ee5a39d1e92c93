"""New folders whose maker was killed: they go with the next use of the workspace, and one that is being filled stays."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.runs import create
from rlhf_studio.runs.create import LONG_UNTOUCHED, clear_unfinished, create_run, new_folder
from rlhf_studio.runs.lab import fork
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, step_record
from tests.runs.test_checkpoints import folder_of, write

OLD = ".new-0123456789abcdef"


def kill_me(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> None:
    """Do it in a child of this process, which has to be killed on the way."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def killed_while_creating(root: Path) -> None:
    create.sync = kill_me
    Workspace(root).submit(config())


def killed_while_forking(root: Path) -> None:
    fork.sync = kill_me  # the first file of the checkpoint is copied
    Workspace(root).fork("parent", 1, {"ppo.steps": 9})


def killed_while_opening_a_log(root: Path) -> None:
    RunWriter.commit_step = kill_me
    open_log(root / "log.jsonl", root)


@pytest.mark.parametrize("work", [killed_while_creating, killed_while_forking, killed_while_opening_a_log])
@pytest.mark.parametrize("next_use", [Workspace.adopt, lambda workspace: workspace.submit(config())])
def test_what_a_killed_maker_left_goes_with_the_next_use(work: Callable[[Path], None], next_use: Callable[[Workspace], object], tmp_path: Path) -> None:  # fmt: skip  # noqa: E501
    parent = tmp_path / "runs" / "parent"
    create_run(parent, config(steps=8), name="parent")
    with EngineLock(parent), RunWriter(parent) as writer:
        writer.commit_step(step_record(1))
    write(folder_of(parent, 1), 1)
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 1, "prompt": "p", "response": "r", "length": 1, "reward": 1}) + "\n")
    killed(lambda: work(tmp_path))
    left = [path for path in parent.parent.iterdir() if path.name.startswith(".new-") and path.is_dir()]
    assert left and Workspace(tmp_path).folders() == [parent]
    next_use(Workspace(tmp_path))
    assert not [name for name in os.listdir(parent.parent) if name.startswith(".")]
    assert len(Workspace(tmp_path).reader("parent").metrics_since(0)) == 1


def test_a_folder_that_is_being_filled_stays(tmp_path: Path) -> None:
    with new_folder(tmp_path / "runs" / "slow") as folder:
        (folder / "half").write_text("written")
        Workspace(tmp_path).adopt()
        made = Workspace(tmp_path).submit(config())
        pid = os.fork()  # as another app would
        if pid == 0:
            clear_unfinished(folder.parent)
            os._exit(0)
        os.waitpid(pid, 0)
        assert (folder / "half").read_text() == "written"
    assert sorted(os.listdir(tmp_path / "runs")) == sorted([made, "slow"])


def test_only_what_was_surely_left_goes(tmp_path: Path) -> None:
    """A person's own files stay, and a folder of a version without locks goes only from a workspace, after a day."""
    long_ago = time.time() - LONG_UNTOUCHED - 60
    for parent in (tmp_path / "runs", tmp_path / "home"):
        for name in (OLD, ".new-mine"):
            (parent / name / "inner").mkdir(parents=True)
            for path in (parent / name / "inner", parent / name):
                os.utime(path, (long_ago, long_ago))
        (parent / ".new-mine.lock").write_text("mine")
    clear_unfinished(tmp_path / "home")
    assert sorted(os.listdir(tmp_path / "home")) == [OLD, ".new-mine", ".new-mine.lock"]
    recent = tmp_path / "runs" / OLD / "inner" / "file"
    recent.write_text("x")
    clear_unfinished(tmp_path / "runs")
    assert recent.exists()
    for path in (recent, recent.parent):
        os.utime(path, (long_ago, long_ago))
    clear_unfinished(tmp_path / "runs")
    assert sorted(os.listdir(tmp_path / "runs")) == [".new-mine", ".new-mine.lock"]
