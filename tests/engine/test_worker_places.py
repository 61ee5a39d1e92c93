"""Run folders that vanish, disks that are full or read-only: one sentence, a cause on record where that is possible, no traceback."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process import worker
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages import ppo
from rlhf_studio.exit_codes import FAILED
from rlhf_studio.runs import create, schema, writer
from rlhf_studio.runs.create import RESERVE, create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from tests.engine.conftest import small_config


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def make(**engine: Any) -> Path:
        config = small_config(tmp_path, ppo={"steps": 4}, engine={"checkpoint_every": 1, **engine})
        create_run(tmp_path / "run", config, name="run", state="loading")
        return tmp_path / "run"

    return make


def after_step(monkeypatch: pytest.MonkeyPatch, step: int, action: Callable[[], Any]) -> list[int]:
    """Do something before this step is stored; returns the steps that were begun."""
    original, begun = Trainer.step, []

    def stepped(trainer: Trainer) -> StepRecord:
        begun.append(trainer.progress.step + 1)
        record = original(trainer)
        if record.step == step:
            action()
        return record

    monkeypatch.setattr(Trainer, "step", stepped)
    return begun


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("trackers", [[], ["tensorboard"]], ids=["plain", "tensorboard"])
def test_a_deleted_folder_ends_the_engine_at_the_next_step(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trackers: list[str]
) -> None:
    if trackers:
        pytest.importorskip("tensorboard")
    run_dir = make_run(report_to=",".join(trackers))
    begun = after_step(monkeypatch, 2, lambda: shutil.rmtree(run_dir))
    assert run_engine(run_dir, "train") == FAILED
    assert begun == [1, 2] and not run_dir.exists()
    captured = capsys.readouterr()
    assert f"The run folder {run_dir} was deleted, moved or replaced" in captured.out and "Traceback" not in captured.out + captured.err


def test_a_folder_that_goes_while_a_checkpoint_is_asked_for(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir, original = make_run(), ppo.save_checkpoint

    def gone(*arguments: Any) -> Path:
        shutil.rmtree(run_dir)
        return original(*arguments)

    monkeypatch.setattr(ppo, "save_checkpoint", gone)
    assert run_engine(run_dir, "train") == FAILED
    assert not run_dir.exists(), "it must not be made again"


@pytest.mark.parametrize("new_one", [False, True], ids=["moved", "replaced"])
def test_a_moved_folder_is_left_as_it_was(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, new_one: bool) -> None:
    run_dir, seen = make_run(), {}

    def move() -> None:
        run_dir.rename(run_dir.with_name("moved"))
        if new_one:
            create_run(run_dir, RunReader(run_dir.with_name("moved")).config(), name="another", state="queued")
            seen["new"] = tree(run_dir)
        seen["steps"] = [step for step, _ in RunReader(run_dir.with_name("moved")).metrics_since(0)]

    after_step(monkeypatch, 3, move)
    assert run_engine(run_dir, "train") == FAILED
    assert run_dir.exists() == new_one and (not new_one or tree(run_dir) == seen["new"])
    assert [step for step, _ in RunReader(run_dir.with_name("moved")).metrics_since(0)] == seen["steps"] == [1, 2]


# --- full disks --------------------------------------------------------------------------------------------------------------


def test_a_folder_that_goes_while_loading(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir, original = make_run(), worker.choose_compute
    monkeypatch.setattr(worker, "choose_compute", lambda config: (shutil.rmtree(run_dir), original(config))[1])
    assert run_engine(run_dir, "train") == FAILED
    assert not run_dir.exists()


class Disk:
    """A disk that is full but for what the run's reserve holds."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch, full_from: int):
        self.left, self.run_dir, self.committed = full_from, run_dir, schema.commit
        monkeypatch.setattr(schema, "commit", self.commit)

    def commit(self, connection: sqlite3.Connection) -> None:
        self.left -= 1
        if self.left < 0 and (self.run_dir / RESERVE).exists():
            raise sqlite3.OperationalError("database or disk is full")
        self.committed(connection)


@pytest.mark.parametrize("full_from", [0, 2, 6])
def test_a_disk_that_is_full_while_loading(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], full_from: int
) -> None:
    """Whichever write of the loading finds the disk full: the run has failed, with its cause. The first is the engine's greeting."""
    run_dir = make_run()
    monkeypatch.setattr(writer, "Heartbeat", lambda folder: nullcontext())
    Disk(run_dir, monkeypatch, full_from)
    assert run_engine(run_dir, "train") == FAILED
    status = RunReader(run_dir).status()
    assert (status.state, status.step) == ("failed", 0) and "The disk is full" in status.cause
    captured = capsys.readouterr()
    assert "The disk is full" in captured.out and "Traceback" not in captured.out + captured.err


def test_a_disk_so_full_that_the_cause_cannot_be_kept_either(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = make_run()
    (run_dir / RESERVE).unlink()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(create, "write_reserve", full)
    assert main(["train", str(run_dir)]) == 1
    captured = capsys.readouterr()
    assert "The disk is full" in captured.out and "Traceback" not in captured.out + captured.err


# --- places that cannot be written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [(13, "may not be written"), (28, "disk is full"), (5, "Input/output")],
)
def test_train_in_a_place_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, said: str
) -> None:
    (tmp_path / "c.yaml").write_text(config_to_yaml(small_config(tmp_path)))
    original = Path.mkdir

    def refused(folder: Path, *arguments: Any, **options: Any) -> None:
        if tmp_path / "disk" in [folder, *folder.parents]:
            raise OSError(number, "Input/output error", str(folder))
        original(folder, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refused)
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--run-dir", str(tmp_path / "disk" / "run")]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1 and said in captured.err and "--run-dir" in captured.err
    assert "Traceback" not in captured.err and not (tmp_path / "disk").exists()


def test_a_file_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(config_to_yaml(small_config(tmp_path)))
    (tmp_path / "file").write_text("")
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--run-dir", str(tmp_path / "file" / "run")]) == 2
    assert "a file is in the way" in capsys.readouterr().err
    assert main(["runs", "list", "--workspace", str(tmp_path / "file")]) == 2
    assert "a file is in the way" in capsys.readouterr().err
