"""The other processes of a run: they do their share of each step and leave the run folder to the first one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config_io import ConfigError
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.distributed.ranks import GO, NO_CHECKPOINT, SAVE, STOP
from rlhf_studio.engine.loop.state import restore, training_state
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.process.build import build_trainer
from rlhf_studio.engine.process.checkpoint import load_state, put_together, restore_policy
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.reward_checks import refuse_without_permission
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED

DONE, FAILED = 0, 1
LOOK_SECONDS = 1.0  # between two looks at how the run is
FAREWELL_LOOKS = 5  # after the run's end, for leaving in the ordinary way
EARLY_LOOKS = 300  # as long as the run says only how it ended before this process began: the first one may still be coming up
BEGINNING_SECONDS = 2.0  # all processes begin together, up to this and the difference of two machines' clocks; loading takes longer


class LeaderWatch:
    """A thread of a follower that ends the process once the run has ended, however long the main thread waits or loads.

    The first process may be stopped while it loads, when it cannot tell the others: they load too, or wait for it to connect.

    Args:
        state: the run's stored state and when it ended, in seconds since 1970; raises StoreError when the run is gone.
        born: when this process began.
        leave: ends the process at once.
    """

    def __init__(self, state: Callable[[], tuple[str, float | None]], born: float, leave: Callable[[int], object] = os._exit):
        self._state, self._born, self._leave = state, born, leave
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)

    def __enter__(self) -> LeaderWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        looks_at_end = 0
        while not self._over.wait(LOOK_SECONDS):
            try:
                state, ended_at = self._state()
            except StoreError:
                state, ended_at = "failed", None
            looks_at_end = looks_at_end + 1 if state in ENDED else 0
            earlier = ended_at is not None and ended_at < self._born + BEGINNING_SECONDS
            if looks_at_end > (EARLY_LOOKS if earlier else FAREWELL_LOOKS):
                self._leave(FAILED if state == "failed" else DONE)
                return


def follow(run_dir: Path, config: RunConfig, permissions: Permissions, *, resume: bool) -> int:
    """Train along until the first process says stop or the run is done. Returns the exit code.

    What goes wrong everywhere (a setting, a number that is not finite) is put on record by the first process.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # while this process loads nothing is at stake: it ends at once, in C code too
    reader = RunReader(run_dir)
    with LeaderWatch(lambda: (reader.stored()[0], reader.status().ended_at), psutil.Process().create_time()):
        return _follow(run_dir, config, permissions, resume=resume)


def _follow(run_dir: Path, config: RunConfig, permissions: Permissions, *, resume: bool) -> int:
    try:
        refuse_without_permission(config.reward.components, permissions)
        compute = choose_compute(config)
        trainer, _ = build_trainer(config, compute, lambda text, fraction: None, permissions)
        if resume and (step := compute.ranks.broadcast(NO_CHECKPOINT)) != NO_CHECKPOINT:  # what the first process has found to be whole
            folder = paths.checkpoint_dir(run_dir, step)
            restore_policy(folder, trainer.models.policy)
            restore(trainer, load_state(folder, trainer.updater.optimizer))
        check_before_training(trainer)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # from here on the first process, which hears them too, saves and says when to stop
        sharded = compute.ranks.sharded
        if sharded and trainer.progress.step == 0:
            trainer.watched()
        while sharded or not trainer.finished:  # split weights are needed until the last checkpoint is written
            said = compute.ranks.broadcast(GO)
            if said == STOP:
                return DONE
            if said == GO:
                trainer.step()
            if said == SAVE:
                training_state(trainer)
                put_together(run_dir, trainer.models.policy, compute.ranks)
    except (ConfigError, PromptsError, ParityError, NonFiniteError, RewardError):
        return FAILED
    return DONE
