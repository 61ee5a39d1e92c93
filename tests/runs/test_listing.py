"""The list of runs that is asked for again and again: the same as the workspace's own, without reading what has not changed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs import paths
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter

CONFIG = load_recipe("world").config


class Counted(Workspace):
    """A workspace that counts which runs are read."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.read: list[str] = []

    def listed(self, folder, known):
        self.read.append(folder.name)
        return super().listed(folder, known)


@pytest.fixture
def workspace(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def ended(workspace: Workspace, state: str = "finished") -> str:
    run_id = workspace.submit(CONFIG, "a run")
    workspace.cancel(run_id)
    with EngineLock(workspace.run_dir(run_id)), RunWriter(workspace.run_dir(run_id)) as writer:
        writer.set_state(state)
    long_ago(workspace.run_dir(run_id))
    return run_id


def long_ago(folder: Path) -> None:
    for file in (folder / paths.DATABASE, folder / f"{paths.DATABASE}-wal", folder / paths.LOG):
        if file.exists():
            os.utime(file, (time.time() - 60, time.time() - 60))


def reads(workspace: Counted) -> list[str]:
    workspace.read.clear()
    runs = workspace.runs()
    read = list(workspace.read)
    # what somebody finds who has never looked is the answer
    anew = Workspace(workspace.root).runs()
    assert [replace(run, heartbeat_age=None) for run in runs] == [replace(run, heartbeat_age=None) for run in anew]
    return read


def test_ended_runs_are_read_once(workspace: Counted) -> None:
    ids = [ended(workspace) for _ in range(5)]
    assert sorted(reads(workspace)) == sorted(ids)
    assert reads(workspace) == []


def test_what_has_changed_is_read_again(workspace: Counted) -> None:
    renamed, written, deleted, logged, replaced = (ended(workspace, "stopped") for _ in range(5))
    reads(workspace)
    workspace.rename(renamed, "another name")
    with EngineLock(workspace.run_dir(written)), RunWriter(workspace.run_dir(written)) as writer:
        writer.event(EventRecord("info", "note", "one more"))
        writer.set_state("failed", cause="a cause")
    workspace.delete(deleted)
    (workspace.run_dir(logged) / paths.LOG).write_text("a last line")
    folder = workspace.run_dir(replaced)
    folder.rename(folder.with_name("elsewhere"))
    assert sorted(reads(workspace)) == sorted([renamed, written, logged, "elsewhere"])


def test_runs_that_live_or_wait_are_read_each_time(workspace: Counted) -> None:
    alive, resumed = ended(workspace, "stopped"), ended(workspace, "stopped")
    waiting = workspace.submit(CONFIG, "waits")
    reads(workspace)
    workspace.resume(resumed)
    with EngineLock(workspace.run_dir(alive)):  # before its engine has written anything
        for _ in range(2):
            assert sorted(reads(workspace)) == sorted([alive, resumed, waiting])


def test_a_file_that_has_just_changed_is_not_trusted(workspace: Counted) -> None:
    run_id = ended(workspace)
    os.utime(workspace.run_dir(run_id) / paths.DATABASE)
    reads(workspace)
    assert reads(workspace) == [run_id]
