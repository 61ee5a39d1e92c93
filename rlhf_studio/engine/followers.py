"""The other processes of a run: they do their share of each step and leave the run folder to the first one."""

from __future__ import annotations

import signal
from pathlib import Path

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config_io import ConfigError
from rlhf_studio.engine.build import build_trainer
from rlhf_studio.engine.checkpoint import load_state, newest_valid, put_together, restore_policy
from rlhf_studio.engine.device import choose_compute
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.team import GO, SAVE, STOP
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.engine.yardstick import UnprovenError
from rlhf_studio.inputs.prompts import PromptsError

DONE, FAILED = 0, 1


def follow(run_dir: Path, config: RunConfig, permissions: Permissions, *, resume: bool) -> int:
    """Train along until the first process says stop or the run is done. Returns the exit code.

    What goes wrong everywhere (a setting, a number that is not finite) is put on record by the first process.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the first process hears them too, saves, and says when to stop
    try:
        compute = choose_compute(config)
        trainer, _ = build_trainer(config, compute, lambda text, fraction: None, permissions)
        if resume and (folder := newest_valid(run_dir)[0]) is not None:
            restore_policy(folder, trainer.player.policy)
            trainer.restore(load_state(folder, trainer.updater.optimizer))
        trainer.prove()
        sharded = compute.team.sharded
        if sharded and trainer.progress.step == 0:
            trainer.watch()
        while sharded or not trainer.finished:  # split weights are needed until the last checkpoint is written
            said = compute.team.share(GO)
            if said == STOP:
                return DONE
            if said == GO:
                trainer.step()
            if said == SAVE:
                trainer.state()
                put_together(run_dir, trainer.player.policy, compute.team)
    except (ConfigError, PromptsError, UnprovenError, NonFiniteError, RewardError):
        return FAILED
    return DONE
