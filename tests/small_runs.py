"""Finished runs of every stage on small models: built once in a session of tests (see :mod:`tests.built_once`), read by all.

``ppo`` and ``ppo-lora`` have three steps and a checkpoint of each; ``sft``, ``reward_model`` and ``dpo`` are those of
:mod:`tests.engine.stage_settings` (eight steps, checkpoints of 3, 6 and 8); ``evaluation`` compares the first policy with what the run
``ppo`` made of it. A test that changes one works on a copy of its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE
from rlhf_studio.runs.create import create_run
from tests.engine.conftest import small_config
from tests.engine.stage_settings import STAGES, settings

PPO_STEPS = 3
EVERY_STEP: dict[str, dict[str, Any]] = {
    "ppo": {"steps": PPO_STEPS},
    "engine": {"watch_prompts": 2, "checkpoint_every": 1, "keep_checkpoints": PPO_STEPS},
}


def build_small_runs(folder: Path) -> None:
    """One finished run in each of ``ppo``, ``ppo-lora``, ``sft``, ``reward_model``, ``dpo`` and ``evaluation``."""
    torch.set_num_threads(1)
    (folder / "models").mkdir()
    config = small_config(folder / "models", **EVERY_STEP)
    finish(folder / "ppo", config)
    finish(folder / "ppo-lora", small_config(folder / "models", lora={"enabled": True, "r": 2}, **EVERY_STEP))
    for stage in STAGES:
        finish(folder / stage, parse_config(settings(folder / "models", stage)))
    trained = folder / "ppo" / "checkpoints" / f"step-{PPO_STEPS:06d}" / "policy"
    asked = {"policies": f"{config.model.policy}\n{trained}", "batch_size": 3, "samples": 1}
    same = config.model_dump(include={"model": {"policy"}, "data": {"prompts"}, "reward": True, "generation": True})
    finish(folder / "evaluation", parse_config({"stage": "evaluation", "evaluation": asked, "engine": {"device": "cpu"}, **same}))


def finish(run_dir: Path, config: StageConfig) -> Path:
    """Train in this process until the run is finished."""
    create_run(run_dir, config, name=run_dir.name, state="loading")
    assert run_engine(run_dir) == DONE, run_dir
    return run_dir
