"""Checkpoints: complete or absent, verified, and exact to the bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.state import restore, training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.saving import folder as folder_module
from rlhf_studio.engine.saving.checkpoint import CheckpointError, load_state, restore_policy, save_checkpoint
from rlhf_studio.runs.checkpoints import newest_valid
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow

STEPS = 4
SETTINGS = {
    "ppo": {
        "steps": STEPS, "batch_size": 8, "mini_batch_size": 2, "ppo_epochs": 2, "kl_controller": "adaptive", "kl_horizon": 20,
        "kl_target": 0.3, "warmup_steps": 2, "lr_schedule": "cosine",
    },
    "reward": {"scaling": "normalise"},
    "generation": {"response_length": 6, "response_length_min": 2},
}  # fmt: skip
LORA = {"enabled": True, "r": 4, "dropout": 0.3}


def save(trainer: Trainer, folder: Path, keep: int = 5) -> Path:
    models = trainer.models
    folder.mkdir(exist_ok=True)
    return save_checkpoint(folder, trainer.progress.step, models.policy, models.tokenizer, training_state(trainer), keep)


def resume(trainer: Trainer, folder: Path) -> list[str]:
    restore_policy(folder, trainer.models.policy)
    return restore(trainer, load_state(folder, trainer.updater.optimizer))


def everything(trainer: Trainer) -> dict[str, torch.Tensor]:
    state = trainer.updater.optimizer.state_dict()["state"]
    moments = {f"optimizer {index} {name}": value for index, entry in state.items() for name, value in entry.items()}
    return {**trainer.models.policy.state_dict(), **moments, **training_state(trainer).tensors}


def metrics(trainer: Trainer) -> dict[str, float]:
    row = trainer.step().metrics
    return {name: value for name, value in row.items() if not name.startswith(("time/", "speed/", "memory/"))}


@dataclass
class Course:
    """A run of four steps that was played to its end: by step its checkpoint and metrics, and all that the trainer holds at the end."""

    trainer: Trainer
    checkpoints: dict[int, Path] = field(default_factory=dict)
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


def course(folder: Path, lora: dict[str, object]) -> Course:
    torch.set_num_threads(1)  # as in every test here; a fixture of the module comes before the one that says so
    config = small_config(folder, lora=lora, **SETTINGS)
    whole = Course(build_trainer(config, choose_compute(config), lambda text, fraction: None)[0])
    while not whole.trainer.finished:
        row = metrics(whole.trainer)
        whole.rows[whole.trainer.progress.step] = row
        whole.checkpoints[whole.trainer.progress.step] = save(whole.trainer, folder / "run")
    whole.tensors = {name: tensor.detach().clone() for name, tensor in everything(whole.trainer).items()}
    return whole


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """Played once for all tests of this file. They must not change its folders, and not rely on the state of its trainer."""
    return course(tmp_path_factory.mktemp("full"), {})


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """The same with LoRA."""
    return course(tmp_path_factory.mktemp("lora"), LORA)


def copied(whole: Course, run_dir: Path, *steps: int) -> list[Path]:
    return [Path(shutil.copytree(whole.checkpoints[step], run_dir / "checkpoints" / whole.checkpoints[step].name)) for step in steps]


@pytest.mark.parametrize("name", ["full", "adapted"])
def test_resume_is_exact(make_trainer: Callable[..., Trainer], request: pytest.FixtureRequest, name: str) -> None:
    whole: Course = request.getfixturevalue(name)
    resumed = make_trainer(lora=LORA if name == "adapted" else {}, **SETTINGS)
    assert resume(resumed, whole.checkpoints[2]) == []
    for later in (3, 4):
        assert metrics(resumed) == whole.rows[later]
    actual = everything(resumed)
    assert whole.tensors.keys() == actual.keys()
    assert [key for key, tensor in whole.tensors.items() if not torch.equal(tensor, actual[key])] == []


def test_other_threads_and_another_device_are_told(full: Course) -> None:
    torch.set_num_threads(2)
    state = load_state(full.checkpoints[4], full.trainer.updater.optimizer)
    assert "CPU threads: 1 before, 2 now" in restore(full.trainer, state)[0]
    state.numbers["device"] = "cuda"
    assert "was on cuda" in restore(full.trainer, state)[0]


def test_policy_folder_is_an_ordinary_model(full: Course) -> None:
    model = AutoModelForCausalLM.from_pretrained(full.checkpoints[4] / "policy")
    saved = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    assert len(saved) > 10 and all(torch.equal(tensor, full.tensors[name]) for name, tensor in saved.items())


def damage_flip(folder: Path) -> None:
    path = folder / "value_head.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def damage_cut(folder: Path) -> None:
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def damage_drop(folder: Path) -> None:
    (folder / "random.safetensors").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def damage_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def damage_format(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))


DAMAGES = [damage_flip, damage_cut, damage_drop, damage_manifest, damage_no_manifest, damage_format]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_checkpoints_are_passed_over(full: Course, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    good, bad = copied(full, tmp_path / "run", 1, 2)
    damage(bad)
    chosen, problems = newest_valid(tmp_path / "run")
    assert chosen == good
    assert len(problems) == 1 and "step-000002" in problems[0]


def test_files_that_are_not_named_are_never_loaded(
    make_trainer: Callable[..., Trainer], full: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stray files do not spoil a checkpoint, and loaders that look around in its folder do not find them."""
    monkeypatch.chdir(tmp_path)
    (folder,) = copied(full, tmp_path / "run", STEPS)
    planted = {
        ".DS_Store": b"\0\0\0\1Bud1",
        "policy/pytorch_model.bin": b"cos\nsystem\n(S'touch pwned'\ntR.",
        "policy/adapter_config.json": b'{"peft_type": "LORA", "base_model_name_or_path": "nowhere"}',
        "policy/adapter_model.safetensors": b"not one",
        "reference.safetensors": b"not one either",
    }
    for name, content in planted.items():
        (folder / name).write_bytes(content)
    (folder / "policy" / "empty").mkdir()
    assert newest_valid(tmp_path / "run") == (folder, [])
    resumed = make_trainer(**SETTINGS)
    assert resume(resumed, folder) == []
    actual = everything(resumed)
    assert all(torch.equal(tensor, actual[name]) for name, tensor in full.tensors.items())
    assert not (tmp_path / "pwned").exists() and all((folder / name).exists() for name in planted)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert newest_valid(tmp_path) == (None, [])


def test_what_is_unreadable_or_of_another_model_is_refused(
    make_trainer: Callable[..., Trainer], full: Course, adapted: Course, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="step-000004"):
        restore_policy(full.checkpoints[4], adapted.trainer.models.policy)
    other = make_trainer(lora={**LORA, "r": 8}, **SETTINGS)
    with pytest.raises(CheckpointError, match="do not fit this model"):
        restore_policy(adapted.checkpoints[4], other.models.policy)
    (folder,) = copied(full, tmp_path / "run", 1)
    (folder / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="step-000001"):
        load_state(folder, full.trainer.updater.optimizer)


def test_a_failed_write_leaves_the_old_checkpoint(full: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (good,) = copied(full, tmp_path / "run", 3)

    def full_disk(folder: Path, *rest: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "_write_manifest", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(full.trainer, tmp_path / "run")
    assert newest_valid(tmp_path / "run") == (good, [])
    monkeypatch.undo()
    assert newest_valid(tmp_path / "run")[0] == good
    assert save(full.trainer, tmp_path / "run").name == "step-000004"


def test_a_state_of_the_first_versions_is_read(full: Course) -> None:
    """They called the warnings that were given once `said`."""
    state = training_state(full.trainer)
    del state.numbers["told"]
    state.numbers["said"] = ["ratio"]
    restore(full.trainer, state)
    assert full.trainer.health.reported == {"ratio"}


# --- which folders stay, and which of them is the newest --------------------------------------------------------------------------


@pytest.fixture
def save_at(full: Course, tmp_path: Path) -> Callable[..., Path]:
    models = full.trainer.models
    return lambda step, keep=2: save_checkpoint(tmp_path, step, models.policy, models.tokenizer, training_state(full.trainer), keep)


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


def test_a_damaged_later_checkpoint_takes_no_good_ones_place(save_at: Callable[..., Path], tmp_path: Path) -> None:
    """Resumed from step 2 because step 7 is damaged; keeping "the last one" must keep step 4, which has just been written.

    The damaged one may be the only trace of its steps: it stays until the run has passed it.
    """
    save_at(2)
    damaged = save_at(7)
    (damaged / "state.json").write_text("{}")
    chosen, problems = newest_valid(tmp_path)
    assert chosen is not None and chosen.name == "step-000002" and len(problems) == 1
    save_at(4, keep=1)
    assert names(tmp_path) == ["step-000004", "step-000007"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-000004"
    save_at(8, keep=1)
    assert names(tmp_path) == ["step-000008"]
    assert newest_valid(tmp_path) == (tmp_path / "checkpoints" / "step-000008", [])


def test_what_a_killed_engine_left_is_removed(save_at: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".step-000003.part" / "policy").mkdir(parents=True)
    save_at(5)
    assert names(tmp_path) == ["step-000005"]


def test_a_step_of_seven_digits_comes_after_one_of_six(save_at: Callable[..., Path], tmp_path: Path) -> None:
    save_at(999_999)
    assert save_at(1_000_000, keep=2).name == "step-1000000"
    assert names(tmp_path) == ["step-1000000", "step-999999"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-1000000"
    save_at(1_000_000, keep=1)
    assert names(tmp_path) == ["step-1000000"]


def test_folders_of_other_names_are_left_alone(save_at: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-mine").mkdir(parents=True)
    save_at(1, keep=1)
    save_at(2, keep=1)
    assert names(tmp_path) == ["step-000002", "step-mine"]
    assert newest_valid(tmp_path)[0] == tmp_path / "checkpoints" / "step-000002"
