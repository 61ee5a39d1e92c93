"""How long a step takes: of a run by its own newest steps, before its first one by earlier runs of the same models in this workspace.

Whatever says how long a step takes or how much is left begins here: :func:`step_seconds` is what one step of a run takes, everywhere.
What a run will take before it starts is :func:`rlhf_studio.ui.forecast.estimate`, which also knows the recipes and the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
RECENT_STEPS = 10
STEP_TIME = "time/total"
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
        minutes, seconds = expected(earlier), _of(folder, STEP_TIME)
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
    for folder, earlier in _of_stage(root, config.stage):
        if _models(earlier) != _models(config):
            continue
        seconds = _of(folder, STEP_TIME)
        if seconds is None:
            continue
        if _sizes(earlier) == _sizes(config):
            exact.append(Pace(seconds, folder.name, True))
            if len(exact) == RUNS_COMPARED:
                break
        elif scaled is None and not exact:
            rate = _of(folder, TOKENS_PER_SECOND) if tokens and isinstance(config, _BY_TOKENS) else None
            each = tokens / rate if tokens and rate else seconds * work_per_step(config) / work_per_step(earlier)
            scaled = Pace(each, folder.name, False)
    return min(exact, key=lambda pace: pace.seconds, default=scaled)


def whole_seconds(root: Path, config: StageConfig) -> float | None:
    """How long all steps of an earlier run took that had as much to do as a run with these settings; the least of the newest
    :data:`RUNS_COMPARED` such runs. None without one. For stages whose settings do not say how many steps there will be.
    """
    seconds: list[float] = []
    for folder, earlier in _of_stage(root, config.stage):
        if _to_do(earlier) != _to_do(config):
            continue
        each = _of(folder, STEP_TIME)
        try:
            steps = RunReader(folder).status().total_steps
        except StoreError:
            continue
        if each and steps:
            seconds.append(each * steps)
        if len(seconds) == RUNS_COMPARED:
            break
    return min(seconds, default=None)


def step_seconds(times: Sequence[float] | np.ndarray) -> float | None:
    """Seconds of a step of a run, by the :data:`STEP_TIME` of its steps from the first on: the median of its last :data:`RECENT_STEPS`.

    The first step, which also warms up, counts only as long as it is alone. None before a time is known.
    """
    known = np.asarray(times, np.float64)  # float32 has no room for the sum of large numbers
    recent = (known[1:] if np.isfinite(known[1:]).any() else known)[-RECENT_STEPS:]
    recent = recent[np.isfinite(recent)]
    return float(np.median(recent)) if len(recent) else None


def seconds_left(pace: float | None, done: int, total: int) -> float | None:
    """How long the steps of a run that are still to come take at this pace, which :func:`step_seconds` gives; None while that, or how many
    there are, is not known.
    """
    return None if pace is None or not total else pace * max(0, total - done)


def usual_start(root: Path, stage: str) -> float | None:
    """Seconds from when a run is created until its first step begins: the least of the newest :data:`RUNS_COMPARED` runs of the stage, as
    others waited in the queue first. None where no run has told it.
    """
    seconds: list[float] = []
    for folder, _ in _of_stage(root, stage):
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


def _of_stage(root: Path, stage: str) -> Iterator[tuple[Path, StageConfig]]:
    """The newest runs of a stage whose settings are known, with these, the newest first."""
    for folder in _newest(root):
        config = _config(folder)
        if config is not None and config.stage == stage:
            yield folder, config


def _config(folder: Path) -> StageConfig | None:
    """The settings of a run; None where not all of them are known, so that nobody can tell what took the time."""
    try:
        return _read_config(folder, (folder / "config.yaml").stat().st_mtime_ns)
    except (OSError, ValueError, StoreError):  # no run, or a damaged one: it tells nothing
        return None


@lru_cache(maxsize=RUNS_LOOKED_AT * 4)
def _read_config(folder: Path, modified: int) -> StageConfig | None:
    reader = RunReader(folder)
    return reader.config() if reader.origin().kind == "studio" else None


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


def _to_do(config: StageConfig) -> Any:
    """What decides how much a whole run has to do: all that costs time, and how often it is done."""
    if isinstance(config, EvaluationRunConfig):
        return _models(config), _sizes(config), config.evaluation.prompts
    return _models(config), _sizes(config), getattr(config, config.stage)


def _of(folder: Path, metric: str) -> float | None:
    """What :func:`step_seconds` says of a run's metric."""
    try:
        return step_seconds(RunReader(folder).columns([metric])[1][metric]) or None
    except StoreError:
        return None
