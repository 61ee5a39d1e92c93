"""How many steps of PPO fit into a time: the warm-up is a share of them. The time limit ends a run that turns out slower."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config.fitting import Fitted
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.speed import FASTEST, SpeedMeasurement, measure_command
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.inputs.preflight.seconds import seconds_by_rate
from rlhf_studio.runs.pace import TOKENS_PER_SECOND
from rlhf_studio.runs.reader import RunReader

FEWEST, MOST = 10, 10_000
PASSES, PASSES_WITH_LORA = 6, 4
"""Operations per weight and token of a step that learns: 2 forward and 4 backward, of which 2 are for weights that LoRA freezes."""


def steps_in(config: RunConfig, minutes: float, workspace: Path, permissions: Permissions, before: Iterable[Path]) -> Fitted | None:
    """The steps that fit into so many minutes; None where nobody can tell.

    ``before``: the runs of the parts before PPO, whose tokens per second tell the machine's rate with this model. Without any, the rate of
    its matrix products is taken, which is measured in some seconds where that was not done before. Raises StoreError.
    """
    report = inspect_run(config, workspace, permissions=permissions)
    measured = next((rate for run in before if (rate := _rate_of(run, report)) is not None), None)
    estimate = seconds_by_rate(config, report, lambda device: measured or _matrix_rate(workspace, device))
    if estimate is None:
        return None
    # what a run really does has its losses in it already
    each = estimate[0] / FASTEST if measured else sqrt(estimate[0] * estimate[1])
    return Fitted(int(min(MOST, max(FEWEST, 60 * minutes / each))), f"{minutes:g} minutes of about {each:.1f} s a step", guess=True)


def _rate_of(run: Path, report: Preflight) -> float | None:
    """Operations per second of a run that has learned with this model; None where it did not record its tokens per second."""
    reader = RunReader(run)
    columns = reader.columns([TOKENS_PER_SECOND])[1][TOKENS_PER_SECOND]
    known, weights = columns[np.isfinite(columns)], parameters(report.policy) if report.policy else None
    if not len(known) or not weights:
        return None
    config: Any = reader.config()  # of a stage that trains, all of which may use LoRA
    return float(np.median(known)) * weights * (PASSES_WITH_LORA if config.lora.enabled else PASSES)


def _matrix_rate(workspace: Path, device: str) -> float | None:
    speed = SpeedMeasurement(workspace)
    if speed.rate(device) is None:
        subprocess.run(measure_command(workspace, device), check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return speed.rate(device)
