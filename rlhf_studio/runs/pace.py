"""How long a step takes, learned from earlier runs of the same models in this workspace."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.config import DPORunConfig, EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig, StageConfig
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.scaled_time import work_per_step
from rlhf_studio.runs.workspace import Workspace

RUNS_LOOKED_AT = 30
RUNS_COMPARED = 3  # the fastest of so many newest runs counts: what was measured while other programs worked is forgotten
STEPS_LOOKED_AT = 50
RECENT_STEPS = 10
EVENTS_LOOKED_AT = 20
TOKENS_PER_SECOND = "speed/tokens_per_second"
_BY_TOKENS = (SFTRunConfig, RewardModelRunConfig, DPORunConfig)
"""Stages whose :data:`TOKENS_PER_SECOND` counts every token of the texts that a step reads."""


@dataclass(frozen=True)
class Pace:
    """Seconds per step.

    Attributes:
        exact: the earlier run had the same sizes; otherwise its time was scaled by the work per step.
    """

    seconds: float
    run_id: str
    exact: bool


def slowness(root: Path, expected: Callable[[RunConfig], float | None], config: StageConfig) -> float | None:
    """How many times as long as expected a PPO run takes that shares the device of ``config``; None where no such run was measured.

    The least of the newest :data:`RUNS_COMPARED` such runs. One factor for everything that is expected there: what was measured on a busy
    day and on a quiet one does not stand side by side.

    Args:
        expected: minutes that a whole run with these settings should take; None where nobody can tell.
    """
    factors: list[float] = []
    for folder in _newest(root):
        earlier = _config(folder)
        if not isinstance(earlier, RunConfig) or _machine(earlier) != _machine(config):
            continue
        minutes, seconds = expected(earlier), _seconds(folder)
        if minutes and seconds:
            factors.append(seconds * earlier.ppo.steps / (60 * minutes))
        if len(factors) == RUNS_COMPARED:
            break
    return min(factors, default=None)


def known_pace(root: Path, config: StageConfig, tokens: int | None = None) -> Pace | None:
    """The pace of an earlier run of the same stage, models and device; None without such a run.

    Of runs with the same sizes, the fastest of the newest :data:`RUNS_COMPARED`; else the newest with other sizes, scaled.

    Args:
        tokens: that a step will read, where they have been counted. The time of another run with other sizes is then scaled by what it read
            in a second; else by the work per step that the settings tell.
    """
    scaled: Pace | None = None
    exact: list[Pace] = []
    for folder in _newest(root):
        earlier = _config(folder)
        if earlier is None or earlier.stage != config.stage or _models(earlier) != _models(config):
            continue
        seconds = _seconds(folder)
        if seconds is None:
            continue
        if _sizes(earlier) == _sizes(config):
            exact.append(Pace(seconds, folder.name, True))
            if len(exact) == RUNS_COMPARED:
                break
        elif scaled is None and not exact:
            rate = _median(folder, TOKENS_PER_SECOND) if tokens and isinstance(config, _BY_TOKENS) else None
            each = tokens / rate if tokens and rate else seconds * work_per_step(config) / work_per_step(earlier)
            scaled = Pace(each, folder.name, False)
    return min(exact, key=lambda pace: pace.seconds, default=scaled)


def recent_pace(times: Any) -> float | None:
    """Mean seconds of the last :data:`RECENT_STEPS` steps, of the ``time/total`` of all; None before the first is known."""
    recent = np.asarray(times, np.float64)[-RECENT_STEPS:]  # float32 has no room for the sum of large numbers
    recent = recent[np.isfinite(recent)]
    return float(recent.mean()) if len(recent) else None


def seconds_left(pace: float | None, done: int, total: int) -> float | None:
    """How long the steps of a run that are still to come take at this pace; None while that, or how many there are, is not known.

    Every page and program that says what is left of a run has it from here.
    """
    return None if pace is None or not total else pace * max(0, total - done)


def usual_start(root: Path, stage: str) -> float | None:
    """Seconds from when a run is created until its first step begins: the least of the newest :data:`RUNS_COMPARED` runs of the stage, as
    others waited in the queue first. None where no run has told it.
    """
    seconds: list[float] = []
    for folder in _newest(root):
        earlier = _config(folder)
        if earlier is None or earlier.stage != stage:
            continue
        try:
            reader = RunReader(folder)
            created, events = reader.status().created_at, reader.events_since(0, EVENTS_LOOKED_AT)
        except StoreError:
            continue
        before = [event.time for event in events if event.step == 0]  # the last of them is said right before the first step
        if before and before[-1] > created:
            seconds.append(before[-1] - created)
        if len(seconds) == RUNS_COMPARED:
            break
    return min(seconds, default=None)


def _newest(root: Path) -> list[Path]:
    try:
        return sorted(Workspace(root).folders(), key=lambda folder: folder.name, reverse=True)[:RUNS_LOOKED_AT]
    except StoreError:
        return []


def _config(folder: Path) -> StageConfig | None:
    try:
        return _read_config(folder, (folder / "config.yaml").stat().st_mtime_ns)
    except (OSError, ValueError, StoreError):  # no run, or a damaged one: it tells nothing
        return None


@lru_cache(maxsize=RUNS_LOOKED_AT * 4)
def _read_config(folder: Path, modified: int) -> StageConfig:
    return RunReader(folder).config()


def _models(config: StageConfig) -> Any:
    """What decides the time of one token."""
    reward = getattr(config, "reward", None)
    judges = [component.model_dump(exclude={"name", "weight"}) for component in reward.components] if reward else []
    own = [getattr(config, name, None) for name in ("model", "lora", "critic")]
    return own, judges, _machine(config)


def _machine(config: StageConfig) -> Any:
    """What the steps of a run are computed by."""
    engine = config.engine
    return engine.device, engine.threads, engine.processes, engine.accelerate_config


def _sizes(config: StageConfig) -> Any:
    """What decides how many tokens there are in a step, and how they are divided."""
    data, generation = getattr(config, "data", None), getattr(config, "generation", None)
    if isinstance(config, RunConfig):
        ppo = config.ppo
        return ppo.batch_size, ppo.mini_batch_size, ppo.micro_batch_size, ppo.ppo_epochs, generation, data
    if isinstance(config, EvaluationRunConfig):
        named = {line.strip() for line in config.evaluation.policies.splitlines()}
        return config.evaluation.batch_size, config.evaluation.samples, len(named), generation, data
    training = getattr(config, config.stage)
    return training.batch_size, training.micro_batch, data


def _seconds(folder: Path) -> float | None:
    """Median seconds of a run's steps; the first, which also warms up, only when it is the only one."""
    return _median(folder, "time/total")


def _median(folder: Path, metric: str) -> float | None:
    """Median of a metric over a run's newest steps, without the very first, unless it is the only one."""
    try:
        reader = RunReader(folder)
        rows = reader.metrics_since(max(0, reader.status().step - STEPS_LOOKED_AT), limit=STEPS_LOOKED_AT)
    except StoreError:
        return None
    later = [value for step, metrics in rows if step > 1 and (value := metrics.get(metric))]
    values = later or [value for _, metrics in rows if (value := metrics.get(metric))]
    return statistics.median(values) if values else None
