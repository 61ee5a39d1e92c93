"""Trials: short runs that try settings before a long one. A note in the run's folder has the settings that it tries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_studio.config import EvaluationRunConfig, StageConfig
from rlhf_studio.config.io import ConfigError, Problem, parse_config, with_values
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace

MINUTES = 2.0
LEAST_STEPS = 2
"""However long they take: the KL after an update shows in the step after it."""
TAG = "trial"
MOST_BYTES = 1_000_000


def trial_settings(config: StageConfig, minutes: float = MINUTES) -> StageConfig:
    """The settings of a trial of ``config``: the same steps, in the time of a trial, and nothing that is for a long run alone.

    The warm-up has one step, so that the full rate shows. Raises ConfigError for an evaluation, which trains nothing.
    """
    if isinstance(config, EvaluationRunConfig):
        raise ConfigError([Problem("stage", "an evaluation trains nothing, so there is nothing to try; start it")])
    changes: dict[str, Any] = {
        "engine.max_minutes": minutes,
        "engine.checkpoint_every": 0,
        "engine.snapshot_every": 0,
        "engine.restart_if_unstable": 0,
        "engine.report_to": "",
        "engine.notify": "",
        f"{config.stage}.warmup_steps": min(1, getattr(config, config.stage).warmup_steps),
    }
    return with_values(config, changes)


def note_of(config: StageConfig) -> Mapping[str, bytes]:
    """The file for a trial's folder: the settings that it tries."""
    return {paths.TRIAL: json.dumps({"settings": config.model_dump(mode="json")}).encode()}


def is_trial(run_dir: Path) -> bool:
    """Whether a run is a trial."""
    return (Path(run_dir) / paths.TRIAL).is_file()


def tried(run_dir: Path) -> StageConfig:
    """The settings that a trial tries. Raises StoreError for another run (reason ``state``), and for a note that cannot be read."""
    path = Path(run_dir) / paths.TRIAL
    try:
        config = parse_config(json.loads(read_regular(path, MOST_BYTES))["settings"])
    except FileNotFoundError:
        raise StoreError(f"The run {Path(run_dir).name} is not a trial.", "state") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:  # a ConfigError is a ValueError
        raise StoreError(f"{path} says which settings this trial tries, and cannot be read ({error}).", "damaged") from error
    if isinstance(config, EvaluationRunConfig):
        raise StoreError(f"{path} says that this trial tries an evaluation, which trains nothing: it is no trial.", "damaged")
    return config


def put_aside(run_dir: Path) -> None:
    """Keep a trial out of the way in the list of runs: it is archived there. A folder outside a workspace stands in no list.

    Raises StoreError.
    """
    if workspace := paths.workspace_of(Path(run_dir)):
        Workspace(workspace).mark(Path(run_dir).name, tags=[TAG], archived=True)


def remove(run_dir: Path) -> None:
    """Remove a trial, and what its workspace has noted of it. Raises StoreError for another run."""
    tried(run_dir)
    workspace = paths.workspace_of(Path(run_dir))
    if workspace:
        Workspace(workspace).delete(Path(run_dir).name)
    else:
        shutil.rmtree(run_dir)
