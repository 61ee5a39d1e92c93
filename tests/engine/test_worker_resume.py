"""Going on with a run: from the newest good checkpoint, losing nothing that is on record, and never from step 0 unasked."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.manifest import is_used, mark_used
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    config = small_config(folder, ppo={"steps": 6}, engine={"checkpoint_every": 2, "keep_checkpoints": 3})
    create_run(folder / "run", config, name="run", state="loading")
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, stop)
        assert run_engine(folder / "run", "train") == STOPPED
    return folder / "run"


@pytest.fixture
def played(played_once: Path, tmp_path: Path) -> Path:
    """A run of six steps, stopped after the fifth: checkpoints of steps 2, 4 and 5. A copy for each test."""
    run_dir = Path(shutil.copytree(played_once, tmp_path / "run"))
    assert [point.step for point in RunReader(run_dir).checkpoints()] == [2, 4, 5]
    return run_dir


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def before_step(patch: pytest.MonkeyPatch, step: int, action: Callable[[], Any]) -> None:
    original = Trainer.step

    def stepped(trainer: Trainer) -> StepRecord:
        if trainer.progress.step == step - 1:
            action()
        return original(trainer)

    patch.setattr(Trainer, "step", stepped)


def recorded(run_dir: Path) -> dict[int, tuple[float, int, int]]:
    """(when, metrics, token arrays) of every step on record, read without our own reader."""
    with sqlite3.connect(f"{(run_dir / 'run.db').as_uri()}?mode=ro", uri=True) as connection:
        counts = "(SELECT count(*) FROM metrics m WHERE m.step = s.step), (SELECT count(*) FROM token_arrays t WHERE t.step = s.step)"
        rows = connection.execute(f"SELECT step, at, {counts} FROM steps s").fetchall()
    connection.close()
    return {step: (at, metrics, arrays) for step, at, metrics, arrays in rows}


def said(run_dir: Path) -> list[str]:
    return [event.text for event in RunReader(run_dir).events_since(0) if event.kind == "resume"]


def spoil(run_dir: Path, step: int) -> None:
    path = run_dir / "checkpoints" / f"step-{step:06d}" / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def test_stray_files_in_every_checkpoint_cost_nothing(played: Path) -> None:
    for folder in (played / "checkpoints").iterdir():
        (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (folder / "policy" / "._config.json").write_bytes(b"\0\5\x16\7")
        (folder / "kept by hand").mkdir()
    before = recorded(played)
    assert run_engine(played, "resume") == DONE
    assert said(played) == ["Resumed from the checkpoint of step 5."]
    assert {step: row for step, row in recorded(played).items() if step <= 5} == before


def test_steps_after_the_checkpoint_stay_until_they_are_played_again(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(played, 5)
    spoil(played, 4)
    before, seen = recorded(played), {}

    def note(moment: str) -> None:
        seen[moment] = recorded(played), RunReader(played).status()

    before_step(monkeypatch, 3, lambda: note("at_start"))
    before_step(monkeypatch, 4, lambda: (note("one_later"), stop()))
    assert run_engine(played, "resume") == STOPPED
    rows, status = seen["at_start"]
    assert rows == before and (status.step, status.last_recorded_step, status.epoch) == (2, 5, 1)
    rows, status = seen["one_later"]
    assert rows.keys() == before.keys() and [step for step in rows if rows[step] != before[step]] == [3]
    assert (status.step, status.last_recorded_step) == (3, 5)
    rows, status = recorded(played), RunReader(played).status()
    assert [step for step in rows if rows[step] != before[step]] == [3, 4]
    assert (status.state, status.step, status.last_recorded_step) == ("stopped", 4, 5)
    assert [step for step, _ in RunReader(played).metrics_since(0)] == [1, 2, 3, 4] == RunReader(played).rollout_steps()
    assert "step-000005" in {path.name for path in (played / "checkpoints").iterdir()}, "damaged, but the only trace of step 5"
    assert [text.split(".")[0] for text in said(played)[:2]] == ["A checkpoint was passed over"] * 2
    monkeypatch.undo()
    assert run_engine(played, "resume") == DONE
    assert said(played)[-1] == "Resumed from the checkpoint of step 4."
    assert RunReader(played).status().last_recorded_step == 6
    assert [step for step, row in recorded(played).items() if row == before.get(step)] == [1, 2]


@pytest.mark.parametrize("left", ["damaged", "removed"])
def test_a_run_without_a_usable_checkpoint_is_left_as_it_is(played: Path, left: str, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (2, 4, 5):
        folder = played / "checkpoints" / f"step-{step:06d}"
        spoil(played, step) if left == "damaged" else folder.rename(played / f"kept-{step}")
    before, row = recorded(played), RunReader(played).status()
    folders = sorted(str(path) for path in played.rglob("*"))
    capsys.readouterr()
    assert main(["resume", str(played)]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line]
    assert len(lines) == 1 and "--from-start" in lines[0] and str(played) in lines[0]
    assert ("optimizer.safetensors is damaged" if left == "damaged" else "it has no checkpoint") in lines[0]
    after = RunReader(played).status()
    assert recorded(played) == before and (after.state, after.seq, after.step) == (row.state, row.seq, row.step)
    assert {*folders} <= {str(path) for path in played.rglob("*")}


def test_from_start_begins_again_when_a_person_says_so(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = played / "checkpoints" / "step-000004"
    shutil.copytree(played, tmp_path / "another")
    mark_used(used, tmp_path / "another")
    before, seen = recorded(played), {}
    before_step(monkeypatch, 1, lambda: seen.update(start=recorded(played)))
    assert main(["resume", str(played), "--from-start"]) == 0
    assert seen["start"] == before, "nothing is removed before it is played again"
    after = recorded(played)
    assert sorted(after) == [1, 2, 3, 4, 5, 6] and not [step for step in before if after[step] == before[step]]
    assert said(played) == ["The run starts again from step 0."]
    metrics = dict(RunReader(played).metrics_since(0))
    assert sorted(metrics) == [1, 2, 3, 4, 5, 6]
    assert is_used(used)
    (told,) = [event for event in RunReader(played).events_since(0) if event.kind == "checkpoint-replaced"]
    assert told.level == "warning"
    assert told.text == "Step 4 was trained again, so its checkpoint is no longer the one that these runs use: another."


def test_after_from_start_the_old_checkpoints_are_not_gone_on_from(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before its first new checkpoint, the run must not jump to a checkpoint of the history that was given up."""

    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        before_step(patch, 2, killed)
        with pytest.raises(KeyboardInterrupt):
            run_engine(played, "from-start")
    assert RunReader(played).status().step == 1
    with pytest.raises(StoreError, match="not of this run as it is recorded") as caught:
        run_engine(played, "resume")
    assert caught.value.reason == "from-start"


def test_train_on_a_run_that_has_steps_is_refused(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = RunReader(played).status().state
    assert main(["train", str(played)]) == 2
    assert "has 5 recorded steps already" in capsys.readouterr().err
    assert RunReader(played).status().state == state
