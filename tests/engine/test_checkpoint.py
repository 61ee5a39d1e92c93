"""Checkpoints: complete or absent, verified, and exact to the bit."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

SETTINGS = {
    "ppo": {
        "steps": 8, "batch_size": 8, "mini_batch_size": 2, "ppo_epochs": 2, "kl_controller": "adaptive", "kl_horizon": 20,
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
    """A whole run of eight steps, and by step: its checkpoint, its metrics, and copies of its tensors and numbers after that step."""

    checkpoints: dict[int, Path] = field(default_factory=dict)
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    tensors: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    numbers: dict[int, dict[str, Any]] = field(default_factory=dict)

    def note(self, trainer: Trainer, folder: Path) -> None:
        step = trainer.progress.step
        self.checkpoints[step] = save(trainer, folder, keep=9)
        self.tensors[step] = {name: tensor.detach().clone() for name, tensor in everything(trainer).items()}
        self.numbers[step] = copy.deepcopy(training_state(trainer).numbers)


def course(folder: Path, lora: dict[str, object]) -> Course:
    torch.set_num_threads(1)  # as in every test here; a fixture of the module comes before the one that says so
    config = small_config(folder, lora=lora, **SETTINGS)
    trainer, whole = build_trainer(config, choose_compute(config), lambda text, fraction: None)[0], Course()
    whole.note(trainer, folder / "run")
    while not trainer.finished:
        row = metrics(trainer)
        whole.rows[trainer.progress.step] = row
        whole.note(trainer, folder / "run")
    return whole


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """Played once for all tests of this file; they must not change its folders."""
    return course(tmp_path_factory.mktemp("full"), {})


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """The same with LoRA."""
    return course(tmp_path_factory.mktemp("lora"), LORA)


@pytest.mark.parametrize(("name", "lora"), [("full", {}), ("adapted", LORA)], ids=["full", "lora"])
@pytest.mark.parametrize("step", [1, 3, 5])
def test_resume_is_exact(
    make_trainer: Callable[..., Trainer], request: pytest.FixtureRequest, step: int, name: str, lora: dict[str, object]
) -> None:
    whole: Course = request.getfixturevalue(name)
    resumed = make_trainer(lora=lora, **SETTINGS)
    assert resume(resumed, whole.checkpoints[step]) == []
    for later in range(step + 1, step + 4):
        assert metrics(resumed) == whole.rows[later]
    wanted, found = whole.tensors[step + 3], everything(resumed)
    assert wanted.keys() == found.keys()
    for key, tensor in wanted.items():
        assert torch.equal(tensor, found[key]), key


@pytest.mark.parametrize("key", ["sampling", "shuffling"])
def test_every_random_state_matters(make_trainer: Callable[..., Trainer], full: Course, key: str) -> None:
    """Losing one random state must change the run; otherwise the test above proves nothing."""
    resumed = make_trainer(**SETTINGS)
    restore_policy(full.checkpoints[1], resumed.models.policy)
    state = load_state(full.checkpoints[1], resumed.updater.optimizer)
    state.tensors[key] = torch.Generator().manual_seed(99).get_state()
    restore(resumed, state)
    assert metrics(resumed) != full.rows[2]


@pytest.mark.parametrize("key", ["controller", "moments", "prompts", "step"])
def test_every_number_matters(make_trainer: Callable[..., Trainer], full: Course, key: str) -> None:
    resumed = make_trainer(**SETTINGS)
    restore_policy(full.checkpoints[2], resumed.models.policy)
    state = load_state(full.checkpoints[2], resumed.updater.optimizer)
    state.numbers[key] = full.numbers[0][key]
    restore(resumed, state)
    assert [metrics(resumed), metrics(resumed)] != [full.rows[3], full.rows[4]]


def test_optimizer_state_matters(make_trainer: Callable[..., Trainer], full: Course) -> None:
    resumed = make_trainer(**SETTINGS)
    restore_policy(full.checkpoints[1], resumed.models.policy)
    restore(resumed, load_state(full.checkpoints[1], make_trainer(**SETTINGS).updater.optimizer))
    assert [metrics(resumed), metrics(resumed)] != [full.rows[2], full.rows[3]]


def test_changed_threads_are_told(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(**SETTINGS)
    folder = save(trainer, tmp_path / "run")
    torch.set_num_threads(2)
    assert "CPU threads: 1 before, 2 now" in resume(make_trainer(**SETTINGS), folder)[0]


def test_another_device_is_told(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(**SETTINGS)
    state = load_state(save(trainer, tmp_path / "run"), trainer.updater.optimizer)
    state.numbers["device"] = "cuda"
    assert "was on cuda" in restore(trainer, state)[0]


def test_policy_folder_is_an_ordinary_model(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(**SETTINGS)
    trainer.step()
    model = AutoModelForCausalLM.from_pretrained(save(trainer, tmp_path / "run") / "policy")
    ids = torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids).logits, trainer.models.policy.model(ids).logits, rtol=0, atol=1e-6
        )  # our GELU rounds otherwise
    ours = trainer.models.policy.model.state_dict()
    assert all(torch.equal(tensor, ours[name]) for name, tensor in model.state_dict().items())


def test_old_checkpoints_are_pruned(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(**SETTINGS)
    for _ in range(4):
        trainer.step()
        save(trainer, tmp_path / "run", keep=2)
    assert [folder.name for folder in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["step-000003", "step-000004"]


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
    folder = tmp_path / "run" / "checkpoints"
    good, bad = (Path(shutil.copytree(full.checkpoints[step], folder / full.checkpoints[step].name)) for step in (0, 1))
    damage(bad)
    chosen, told = newest_valid(tmp_path / "run")
    assert chosen == good
    assert len(told) == 1 and "step-000001" in told[0]


def test_files_that_are_not_named_are_never_loaded(
    make_trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stray files do not spoil a checkpoint, and loaders that look around in its folder do not find them."""
    monkeypatch.chdir(tmp_path)
    whole = make_trainer(**SETTINGS)
    whole.step()
    folder = save(whole, tmp_path / "run")
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
    wanted, found = everything(whole), everything(resumed)
    assert all(torch.equal(tensor, found[name]) for name, tensor in wanted.items())
    assert not (tmp_path / "pwned").exists() and all((folder / name).exists() for name in planted)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert newest_valid(tmp_path) == (None, [])


def test_weights_of_another_model_are_refused(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    full = save(make_trainer(**SETTINGS), tmp_path / "full")
    adapters = save(make_trainer(lora=LORA, **SETTINGS), tmp_path / "adapters")
    with pytest.raises(CheckpointError, match="step-000000"):
        restore_policy(full, make_trainer(lora=LORA, **SETTINGS).models.policy)
    other = make_trainer(lora={**LORA, "r": 8}, **SETTINGS)
    with pytest.raises(CheckpointError, match="do not fit this model"):
        restore_policy(adapters, other.models.policy)


def test_unreadable_state_is_named(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(**SETTINGS)
    folder = save(trainer, tmp_path / "run")
    (folder / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="step-000000"):
        load_state(folder, trainer.updater.optimizer)


def test_a_failed_write_leaves_the_old_checkpoint(
    make_trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(**SETTINGS)
    good = save(trainer, tmp_path / "run")
    trainer.step()

    def full_disk(folder: Path, *rest: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "_write_manifest", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(trainer, tmp_path / "run")
    assert newest_valid(tmp_path / "run") == (good, [])
    monkeypatch.undo()
    assert newest_valid(tmp_path / "run")[0] == good
    assert save(trainer, tmp_path / "run").name == "step-000001"
    shutil.rmtree(tmp_path / "run")


def test_a_state_of_the_first_versions_is_read(make_trainer: Callable[..., Trainer]) -> None:
    """They called the warnings that were given once `said`."""
    trainer = make_trainer(**SETTINGS)
    state = training_state(trainer)
    del state.numbers["told"]
    state.numbers["said"] = ["ratio"]
    restore(trainer, state)
    assert trainer.health.reported == {"ratio"}
