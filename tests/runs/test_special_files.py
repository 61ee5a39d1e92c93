"""Whatever lies in a run's folder in the place of a file: nobody waits for it, and what is wrong is said."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.io import MAX_YAML_BYTES, ConfigError
from rlhf_studio.runs import paths, studio
from rlhf_studio.runs.checkpoints import sha256
from rlhf_studio.runs.classroom.store import ClassStore
from rlhf_studio.runs.errors import RunGone, StoreError
from rlhf_studio.runs.evaluation.votes import read_votes
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.lab.fault import noted_fault
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.show import list_text
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.runs_page import allowed_actions
from tests.runs.store_helpers import config, step_record

SECONDS = 20.0


def socket_at(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # a socket's path may have 107 bytes
    try:
        socket.socket(socket.AF_UNIX).bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


KINDS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "socket": socket_at,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}
FILES = ("config.yaml", "run.db", "run.db-journal", "engine.log", "engine.lock", "start.lock", "fault.json", "votes.jsonl")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "ws")


def test_nobody_waits_for_what_is_no_file(workspace: Workspace) -> None:
    for name, (kind, make) in product(FILES, KINDS.items()):
        run = workspace.submit(config(), "mine")
        folder = workspace.run_dir(run)
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        looks: list[Callable[[], Any]] = [
            workspace.runs,
            lambda run=run: workspace.status(run),
            lambda folder=folder: RunReader(folder).config(),
            lambda folder=folder: RunReader(folder).log_tail(),
            lambda folder=folder: noted_fault(folder),
            lambda folder=folder: read_votes(folder),
            lambda folder=folder, name=name: sha256(folder / name),
            lambda run=run: workspace.resume(run),
        ]
        done = threading.Event()

        def look(looks: list[Callable[[], Any]] = looks, done: threading.Event = done) -> None:
            for read in looks:
                with contextlib.suppress(StoreError, OSError):
                    read()
            done.set()

        threading.Thread(target=look, daemon=True).start()
        assert done.wait(SECONDS), (kind, name)
        shutil.rmtree(folder)


def test_a_file_without_measure_is_not_read(workspace: Workspace) -> None:
    folder = workspace.run_dir(workspace.submit(config(), "mine"))
    with (folder / paths.CONFIG).open("wb") as file:
        file.truncate(MAX_YAML_BYTES + 1)
    with pytest.raises((StoreError, ConfigError), match="bytes"):
        RunReader(folder).config()


def test_a_folder_that_was_renamed_under_its_engine_says_so(workspace: Workspace) -> None:
    run = workspace.submit(config(), "mine")
    folder = workspace.run_dir(run)
    with RunWriter(folder) as writer:
        writer.set_state("running")
        writer.commit_step(step_record(1))
        moved = folder.rename(folder.with_name("renamed"))
        with pytest.raises(RunGone) as gone:
            writer.commit_step(step_record(2))
    (moved / paths.LOG).write_text(f"step 1/60\nfailed: {str(gone.value).rstrip('.')}; the engine has ended\n", encoding="utf-8")
    status = workspace.status("renamed")
    assert status.state == "interrupted" and "renamed" in status.cause and "memory" not in status.cause


def test_a_run_of_a_newer_version_has_not_failed_and_cannot_be_resumed(workspace: Workspace) -> None:
    run = workspace.submit(config(), "mine")
    with RunWriter(workspace.run_dir(run)) as writer:
        writer.set_state("failed", cause="out of memory")
        writer._connection.execute("PRAGMA user_version = 99")
    (status,) = workspace.runs()
    assert status.unreadable and "newer" in status.cause
    assert "resume" not in allowed_actions(status) and "delete" in allowed_actions(status)
    assert "failed" not in list_text(workspace.root) and "0/0" not in list_text(workspace.root)


@pytest.mark.parametrize("name", ["class.db", "feedback.db", "people.db", "studio.db"])
def test_a_damaged_database_says_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"no database" * 1000)
    both: dict[str, list[Callable[[], Any]]] = {
        "class.db": [ClassStore(tmp_path).notes, lambda: ClassStore(tmp_path).note(link="x")],
        "feedback.db": [Feedback(tmp_path).tasks, Feedback(tmp_path).rating_link],
        "people.db": [Feedback(tmp_path).tasks, lambda: ClassStore(tmp_path).note(link="x")],
        "studio.db": [lambda: studio.read(tmp_path), lambda: studio.change(tmp_path).__enter__()],
    }
    for use in both[name]:
        with pytest.raises(StoreError, match=r"(?i)move it away") as raised:
            use()
        assert raised.value.reason == "damaged" and name in str(raised.value)
