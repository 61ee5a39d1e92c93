"""Where exports go: never over a run's record, never back into a run that is gone, and what was killed is cleared away."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.io import ConfigError
from rlhf_studio.jobs.export import targets
from rlhf_studio.jobs.export.command import ExportRequest, Kind, export
from rlhf_studio.jobs.export.weights import _copy
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import config, step_record


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "one"
    create_run(folder, config(), name="one")
    with RunWriter(folder) as writer:
        writer.commit_step(step_record(1))
    return folder


def ignored(text: str, fraction: float | None) -> None:
    """Nobody listens."""


def csv_of(run: Path, target: Path, told: Any = ignored, kind: Kind = "csv") -> Path:
    return export(run, ExportRequest({kind: target}, replace=True), told).files[0][0]


def test_a_run_that_is_being_exported_is_not_deleted(run: Path, tmp_path: Path) -> None:
    workspace, refused = Workspace(tmp_path), list[str]()

    def told(text: str, fraction: float | None) -> None:
        with pytest.raises(StoreError, match="one is being exported. Wait until that is done") as error:
            workspace.delete("one")
        refused.append(str(error.value))

    made = csv_of(run, run / "exports" / "metrics.csv", told)
    assert refused and made.read_text().startswith("step,")
    workspace.delete("one")
    assert not run.exists()


@pytest.mark.parametrize(
    "kind",
    [
        "csv",
    ],
)
def test_an_export_does_not_bring_a_run_back_whose_folder_is_gone(kind: Kind, run: Path) -> None:
    with pytest.raises(StoreError, match="was removed|There is no run"):
        csv_of(run, run / "exports" / "new", lambda text, fraction: shutil.rmtree(run, ignore_errors=True), kind)
    assert not run.exists()


def test_nor_do_the_steps_of_an_export_of_weights(run: Path, tmp_path: Path) -> None:
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "file").write_text("x")
    gone = tmp_path / "gone" / "exports"
    with pytest.raises(StoreError, match="does not exist or was removed"):
        targets.check_room(gone / "a.zip", 1)
    with pytest.raises(StoreError, match="does not exist or was removed"), targets.working_folder(gone / "a.zip"):
        pass
    with pytest.raises(FileNotFoundError):
        _copy(tmp_path / "source", ["deep/file"], gone, ignored)
    with pytest.raises(StoreError, match="does not exist or was removed"):
        targets.make_folders(gone / "a.zip", gone.parent)
    assert not gone.parent.exists()
    shutil.rmtree(run / "exports")
    assert csv_of(run, run / "exports" / "deep" / "m.csv").exists()
    _copy(tmp_path / "source", ["deep/file"], run / "exports", ignored)
    assert (run / "exports" / "deep" / "file").read_text() == "x"


@pytest.mark.parametrize("inside", ["run.db", "new.csv", "exports", "exports/../run.db"])
def test_a_runs_record_is_no_target(inside: str, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "runs" / "two"
    shutil.copytree(run, other)
    before = (run / "run.db").read_bytes()
    for target in (run / inside, other / inside):
        with pytest.raises(ConfigError, match="is in the folder of the run (one|two); choose a place outside it"):
            csv_of(run, target)
    assert (run / "run.db").read_bytes() == before and not (run / "new.csv").exists()


def test_what_a_killed_export_left_goes_with_the_next_and_what_is_being_made_stays(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "home" / "m.csv"
    pid = os.fork()
    if pid == 0:
        try:
            csv_of(run, target, lambda text, fraction: os.kill(os.getpid(), signal.SIGTERM))
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    (left,) = [path for path in target.parent.iterdir() if path.is_dir()]
    (target.parent / ".export-mine").mkdir()
    with targets.working_folder(target.parent / "slow.zip") as slow:
        assert not left.exists()
        csv_of(run, target)
        assert slow.is_dir()
    assert sorted(path.name for path in target.parent.iterdir()) == [".export-mine", "m.csv"]
