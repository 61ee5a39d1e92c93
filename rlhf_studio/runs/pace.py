"""How long a step takes, learned from earlier runs of the same models in this workspace."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.estimate.scaled_time import work_per_step
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace

RUNS_LOOKED_AT = 30
STEPS_LOOKED_AT = 50


@dataclass(frozen=True)
class Pace:
    """Seconds per step.

    Attributes:
        exact: the earlier run had the same sizes; otherwise its time was scaled by the work per step.
    """

    seconds: float
    run_id: str
    exact: bool


def known_pace(root: Path, config: RunConfig) -> Pace | None:
    """The pace of the newest run with the same models and device, one with the same sizes first; None without such a run."""
    scaled: Pace | None = None
    try:
        folders = sorted(Workspace(root).folders(), key=lambda folder: folder.name, reverse=True)[:RUNS_LOOKED_AT]
    except StoreError:
        return None
    for folder in folders:
        earlier = _config(folder)
        if earlier is None or _models(earlier) != _models(config):
            continue
        seconds = _seconds(folder)
        if seconds is None:
            continue
        if _sizes(earlier) == _sizes(config):
            return Pace(seconds, folder.name, True)
        if scaled is None:
            scaled = Pace(seconds * work_per_step(config) / work_per_step(earlier), folder.name, False)
    return scaled


def _config(folder: Path) -> RunConfig | None:
    try:
        return _read_config(folder, (folder / "config.yaml").stat().st_mtime_ns)
    except (OSError, ValueError, StoreError):  # no run, or a damaged one: it tells nothing
        return None


@lru_cache(maxsize=RUNS_LOOKED_AT * 4)
def _read_config(folder: Path, modified: int) -> RunConfig:
    return RunReader(folder).ppo_config()


def _models(config: RunConfig) -> Any:
    judges = [component.model_dump() for component in config.reward.components]
    engine = config.engine
    return config.model, config.lora, config.critic, judges, engine.device, engine.threads, engine.processes, engine.accelerate_config


def _sizes(config: RunConfig) -> Any:
    ppo = config.ppo
    return ppo.batch_size, ppo.mini_batch_size, ppo.micro_batch_size, ppo.ppo_epochs, config.generation, config.data


def _seconds(folder: Path) -> float | None:
    """Median seconds of a run's steps; the first, which also warms up, only when it is the only one."""
    try:
        rows = RunReader(folder).metrics_since(0, limit=STEPS_LOOKED_AT)
    except StoreError:
        return None
    seconds = [total for _, metrics in rows if (total := metrics.get("time/total"))]
    return statistics.median(seconds[1:] or seconds) if seconds else None
