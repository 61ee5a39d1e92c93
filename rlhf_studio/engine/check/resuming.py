"""A run that goes on from a checkpoint is the run that was not stopped."""

from __future__ import annotations

import shutil

import numpy as np

from rlhf_studio.config import StageConfig
from rlhf_studio.engine.check.checks import CheckFailed, Numbers, Task
from rlhf_studio.engine.check.rollouts import sizes
from rlhf_studio.engine.check.runs import Changes, settings, train
from rlhf_studio.language import S_
from rlhf_studio.runs.paths import checkpoint_dir
from rlhf_studio.runs.reader import RunReader

STEPS, STOPPED_AFTER = 3, 2
ALLOWED = {"cpu": 1e-6, "cuda": 1e-3}
"""Of a metric, relative to its size from 1 on. The step after the resume samples with the very weights of the checkpoint, so it draws the
same tokens on a GPU, too; its update adds numbers up in no fixed order there."""
OF_THIS_PROCESS = ("time/", "speed/", "memory/")


def check_resume(task: Task) -> tuple[str, Numbers]:
    """The bundled world, stopped and resumed."""
    changes: Changes = {
        "model": {"dtype": "float32"},
        "ppo": {"steps": STEPS},
        "engine": {"checkpoint_every": STOPPED_AFTER, "snapshot_every": 0},
    }
    whole, resumed = stopped_and_resumed(task, settings(task, "world", sizes(task), changes))
    return compared(whole, resumed, ALLOWED[task.kind])


def stopped_and_resumed(task: Task, config: StageConfig) -> tuple[RunReader, RunReader]:
    """A run of three steps, and what a resume makes of its folder as it is when only the checkpoint of step 2 is left."""
    whole, name = train(task, "resume-whole", config), "resume-stopped"
    shutil.rmtree(task.folder / name, ignore_errors=True)
    shutil.copytree(whole.run_dir, task.folder / name)
    shutil.rmtree(checkpoint_dir(task.folder / name, STEPS))
    return whole, train(task, name, config, mode="resume")


def compared(whole: RunReader, resumed: RunReader, allowed: float) -> tuple[str, Numbers]:
    """The steps after the resume, token by token and metric by metric. Raises :class:`CheckFailed`."""
    if not any(event.kind == "resume" for event in resumed.events_since(0)):
        raise CheckFailed(S_("the run did not go on from its checkpoint"))
    steps = range(STOPPED_AFTER + 1, STEPS + 1)
    largest, which = 0.0, ""
    for step in steps:
        one, other = (reader.episodes(step)[step] for reader in (whole, resumed))
        if not np.array_equal(one.response_ids, other.response_ids):
            share = np.mean(one.response_ids == other.response_ids) if one.response_ids.shape == other.response_ids.shape else 0.0
            raise CheckFailed(
                S_(f"step {step} drew other tokens after the resume: {share:.0%} are the same"), {"same tokens": float(share)}
            )
        metrics = [dict(reader.metrics_since(0))[step] for reader in (whole, resumed)]
        for name in metrics[0]:
            if not name.startswith(OF_THIS_PROCESS) and (apart := _apart(metrics[0][name], metrics[1].get(name))) > largest:
                largest, which = apart, name
    numbers: Numbers = {"largest difference": largest, "of": which, "allowed": allowed}
    if not largest <= allowed:
        raise CheckFailed(S_(f"after the resume {which} differs by {largest:.2g}, and {allowed:.0e} is allowed"), numbers)
    return S_(f"the step after it draws the same tokens, all metrics to {largest:.1g} (allowed {allowed:.0e})"), numbers


def _apart(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else float("inf")
    return abs(one - other) / max(1.0, abs(one))
