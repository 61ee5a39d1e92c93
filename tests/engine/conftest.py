"""Fixtures of the engine tests: a small run that can be built for any model family."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop import build, models
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.phases import advantages_of, reference_pass, sample, score
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.stages import ppo as stage
from rlhf_studio.engine.stages.evaluating import loading
from rlhf_studio.engine.types import PromptBatch, Rollout
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.records import EventRecord
from tests.built_once import built_once
from tests.engine.small_models import save_policy, save_prompts, save_reward_model

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10", "w2 w11", "w12 w13 w14 w15", "w3 w3 w3 w3 w3"]


@functools.cache
def _small_models(family: str) -> tempfile.TemporaryDirectory[str]:
    """Policy and reward model of the family, made once per session and copied for each test; gone when Python ends."""
    folder = tempfile.TemporaryDirectory()
    save_policy(Path(folder.name) / "policy", family, scale=4.0)
    save_reward_model(Path(folder.name) / "reward", family)
    return folder


def small_config(folder: Path, family: str = "gpt2", **changes: dict[str, Any]) -> RunConfig:
    """A run of a few seconds: random policy and reward model of the family, eight episodes a step."""
    if not (folder / "policy").exists():
        shutil.copytree(_small_models(family).name, folder, dirs_exist_ok=True)
        save_prompts(folder / "prompts.txt", PROMPTS)
    settings: dict[str, dict[str, Any]] = {
        "model": {"policy": str(folder / "policy")},
        "lora": {},
        "critic": {},
        "data": {"prompts": str(folder / "prompts.txt")},
        "reward": {"components": [{"kind": "reward_model", "model": str(folder / "reward")}]},
        "ppo": {"steps": 2, "batch_size": 8, "mini_batch_size": 4, "ppo_epochs": 2, "learning_rate": 1e-3},
        "generation": {"response_length": 6},
        "engine": {"device": "cpu", "record_samples": 3, "watch_prompts": 0, "watch_every": 1},
    }
    for section, values in changes.items():
        settings[section] = {**settings[section], **values}
    return RunConfig.model_validate(settings)


def play(trainer: Trainer, *, seed: int = 0, kl_coef: float = 0.1, size: int = 8) -> Rollout:
    """One rollout of the trainer's prompts, without learning from it."""
    return collect(trainer.models, trainer.prompts.next_batch(size), kl_coef, torch.Generator().manual_seed(seed))


def collect(models: Models, prompts: PromptBatch, kl_coef: float, generator: torch.Generator) -> Rollout:
    """The phases of a step up to the update."""
    ppo, samples = models.config.ppo, sample(models, prompts, generator)
    scores, reference = score(models, samples), reference_pass(models, samples)
    mask, charged = samples.tokens.mask, kl_coef if ppo.kl_placement == "reward" else 0.0
    rewards = shape_rewards(reference.kl, scores.shaped, mask, charged, unit_variance=ppo.whiten_rewards)
    advantages = advantages_of(ppo, rewards, scores.shaped, samples.policy.values, mask)
    return Rollout.of(samples, scores, reference, rewards, advantages, kl_coef)


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """Build a trainer in memory: ``make_trainer("llama", lora={"enabled": True})``."""

    def make(family: str = "gpt2", **changes: dict[str, Any]) -> Trainer:
        config = small_config(tmp_path, family, **changes)
        return build_trainer(config, choose_compute(config), lambda text, fraction: None)[0]

    return make


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of each stage, built once: see :mod:`tests.small_runs`. Copy what a test changes."""
    from tests.small_runs import build_small_runs

    with tracing(False), checking(True):
        return built_once(tmp_path_factory, "small-runs", build_small_runs)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


TRACED, CHECK = models.traced, stage.check_before_training


@contextlib.contextmanager
def tracing(on: bool) -> Iterator[None]:
    """To trace a decoding step takes longer than all else that is built for a small run: without it the model itself is asked."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (build, models, loading):
            patch.setattr(module, "traced", TRACED if on else lambda *_: (None, []))
        yield


@contextlib.contextmanager
def checking(on: bool) -> Iterator[None]:
    """To compare all forward passes with the models' own, as every run does before it learns, takes as long as two small steps."""
    nothing = EventRecord("info", "health", "not checked: this test is about something else")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "check_before_training", CHECK if on else lambda trainer: nothing)
        yield


@pytest.fixture(scope="module", autouse=True)
def _nothing_but_the_run() -> Iterator[None]:
    with tracing(False), checking(False):
        yield


@pytest.fixture
def traced() -> Iterator[None]:
    """For tests of the traced decoding step: ``pytestmark = pytest.mark.usefixtures("traced")``."""
    with tracing(True):
        yield


@pytest.fixture
def checked() -> Iterator[None]:
    """For tests of what a run checks before it learns: ``@pytest.mark.usefixtures("checked")``."""
    with checking(True):
        yield
