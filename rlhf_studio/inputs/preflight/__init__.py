"""Everything that can be found wrong before a run starts, and what the run will cost. The app and the command line ask here.

It takes seconds and no torch: only small files are read, and no weights.

:mod:`report`      what was found
:mod:`look`        the machine, the workspace and the hub that a check looks at
:mod:`ppo`         the check of a PPO run
:mod:`supervised`  of fine-tuning, reward models and DPO
:mod:`evaluation`  of an evaluation
:mod:`known`       what settings are measured against
:mod:`trained`     notes on models that another run has trained
:mod:`judge`       notes on an evaluation's judge
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rlhf_studio.config import NOTHING_ALLOWED, EvaluationRunConfig, Permissions, RunConfig, StageConfig
from rlhf_studio.config.installing import not_installed
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.estimate.disk import NEW_RUN, OnDisk
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.preflight.evaluation import inspect_evaluation
from rlhf_studio.inputs.preflight.judge import judge_notes
from rlhf_studio.inputs.preflight.look import Look
from rlhf_studio.inputs.preflight.ppo import inspect_ppo
from rlhf_studio.inputs.preflight.report import Preflight
from rlhf_studio.inputs.preflight.supervised import inspect_supervised, is_supervised
from rlhf_studio.inputs.preflight.trained import trained_notes
from rlhf_studio.inputs.relative_paths import as_seen_from
from rlhf_studio.runs.gpus import Gpu, find_gpus

__all__ = ["Preflight", "check_run", "inspect_run"]


def check_run(
    config: StageConfig, workspace: Path, permissions: Permissions = NOTHING_ALLOWED, on_disk: OnDisk = NEW_RUN, folder: Path | None = None
) -> list[Problem]:
    """What keeps this run from starting, one entry per setting; empty when it may start. The rest is as in :func:`inspect_run`."""
    return inspect_run(config, workspace, folder=folder, permissions=permissions, on_disk=on_disk).problems


def inspect_run(
    config: StageConfig,
    workspace: Path,
    *,
    folder: Path | None = None,
    hub: Hub | None = None,
    permissions: Permissions = NOTHING_ALLOWED,
    on_disk: OnDisk = NEW_RUN,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    gpus: Callable[[], tuple[Gpu, ...] | None] = find_gpus,
    learner: ModelFacts | ModelError | None = None,
) -> Preflight:
    """Check models, data, rewards, machine and disk of a run of any stage. ``hub``, ``free_bytes`` and ``gpus`` can be replaced in tests.

    ``folder``: where the run will work and relative paths start; None for the folder of this process. ``on_disk``: what a resumed run has
    on its disk already. ``learner``: what reading the files of the model that learns gave just now.
    """
    if find_spec("torch") is None:
        return Preflight([Problem("", not_installed("torch"))])
    config = config if folder is None else as_seen_from(config, folder)
    look = Look(workspace, hub, permissions, on_disk, free_bytes, gpus(), learner)
    preflight = _inspected(config, look)
    return replace(preflight, notes=[*preflight.notes, *trained_notes(config), *judge_notes(config)])


def _inspected(config: StageConfig, look: Look) -> Preflight:
    if isinstance(config, RunConfig):
        return inspect_ppo(config, look)
    if isinstance(config, EvaluationRunConfig):
        return inspect_evaluation(config, look)
    assert is_supervised(config), f"the stage {config.stage} has no check"
    return inspect_supervised(config, look)
