"""Which checkpoint folders stay, and which of them is the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlhf_studio.engine.loop.state import training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.saving.checkpoint import save_checkpoint
from rlhf_studio.runs.checkpoints import newest_valid


@pytest.fixture
def save(make_trainer: Callable[..., Trainer], tmp_path: Path) -> Callable[..., Path]:
    trainer = make_trainer(engine={"watch_prompts": 0})

    def at(step: int, keep: int = 2) -> Path:
        return save_checkpoint(tmp_path, step, trainer.models.policy, trainer.models.tokenizer, training_state(trainer), keep)

    return at


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


def test_a_damaged_later_checkpoint_takes_no_good_ones_place(save: Callable[..., Path], tmp_path: Path) -> None:
    """Resumed from step 2 because step 7 is damaged; keeping "the last one" must keep step 4, which has just been written.

    The damaged one may be the only trace of its steps: it stays until the run has passed it.
    """
    save(2)
    damaged = save(7)
    (damaged / "state.json").write_text("{}")
    chosen, problems = newest_valid(tmp_path)
    assert chosen is not None and chosen.name == "step-000002" and len(problems) == 1
    save(4, keep=1)
    assert names(tmp_path) == ["step-000004", "step-000007"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-000004"
    save(8, keep=1)
    assert names(tmp_path) == ["step-000008"]
    assert newest_valid(tmp_path) == (tmp_path / "checkpoints" / "step-000008", [])


def test_what_a_killed_engine_left_is_removed(save: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".step-000003.part" / "policy").mkdir(parents=True)
    save(5)
    assert names(tmp_path) == ["step-000005"]


def test_a_step_of_seven_digits_comes_after_one_of_six(save: Callable[..., Path], tmp_path: Path) -> None:
    save(999_999)
    assert save(1_000_000, keep=2).name == "step-1000000"
    assert names(tmp_path) == ["step-1000000", "step-999999"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-1000000"
    save(1_000_000, keep=1)
    assert names(tmp_path) == ["step-1000000"]


def test_folders_of_other_names_are_left_alone(save: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-mine").mkdir(parents=True)
    save(1, keep=1)
    save(2, keep=1)
    assert names(tmp_path) == ["step-000002", "step-mine"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-000002"
