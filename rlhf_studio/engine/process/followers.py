"""The processes of a run other than rank 0: they do their part of each step; only rank 0 writes into the run folder."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from rlhf_studio.config import Permissions, StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.ranks import CHANGE, GO, NO_CHECKPOINT, SAVE, SNAPSHOT, STOP
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.stages.build import build_stage, refuse
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, StartMode

POLL_SECONDS = 1.0  # between two looks at the run's state
LOOKS_AFTER_END = 5  # the process is ended when more looks than this have found the run ended: until then it may end by itself
LOOKS_AT_EARLIER_END = 300  # the same for an end from before this process began: rank 0 may not have started to work yet
CLOCK_SECONDS = 2.0  # processes that start together on several machines may note times that differ by this much: clocks differ


class RunEndWatcher:
    """A thread of a follower that ends the process once the run has ended, however long the main thread waits or loads.

    Rank 0 may be stopped while it loads. Then it cannot tell the others, which are loading too, or wait for it to connect.

    Args:
        state: the run's stored state and when it ended, in seconds since 1970; raises StoreError when the run is gone.
        started_at: when this process began, in seconds since 1970.
        end_process: ends the process at once, with an exit code.
    """

    def __init__(self, state: Callable[[], tuple[str, float | None]], started_at: float, end_process: Callable[[int], object] = os._exit):
        self._state, self._started_at, self._end_process = state, started_at, end_process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run-end-watcher", daemon=True)

    def __enter__(self) -> RunEndWatcher:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        ended_looks = 0
        while not self._done.wait(POLL_SECONDS):
            try:
                state, ended_at = self._state()
            except StoreError:
                state, ended_at = "failed", None
            ended_looks = ended_looks + 1 if state in ENDED else 0
            earlier = ended_at is not None and ended_at < self._started_at + CLOCK_SECONDS
            if ended_looks > (LOOKS_AT_EARLIER_END if earlier else LOOKS_AFTER_END):
                self._end_process(FAILED if state == "failed" else DONE)
                return


def follow(run_dir: Path, config: StageConfig, permissions: Permissions, mode: StartMode) -> int:
    """Do this process's part of the training until rank 0 says stop or the run is done. Returns the exit code.

    What goes wrong in every process alike (a setting, a number that is not finite) is written into the run folder by rank 0.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # while this process loads nothing is at stake: it ends at once, in C code too
    reader = RunReader(run_dir)
    with RunEndWatcher(lambda: (reader.stored()[0], reader.status().ended_at), psutil.Process().create_time()):
        return _follow(run_dir, config, permissions, mode)


def _follow(run_dir: Path, config: StageConfig, permissions: Permissions, mode: StartMode) -> int:
    try:
        refuse(config, permissions)
        compute = choose_compute(config)
        run, _ = build_stage(config, compute, _say_nothing, permissions)
        # Rank 0 has chosen a complete checkpoint, and all ranks load it.
        if mode == "resume":
            step = compute.ranks.broadcast(NO_CHECKPOINT)
            run.go_on_from(run_dir, None if step == NO_CHECKPOINT else step)
        run.check()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # from here on rank 0, which gets them too, saves and says when to stop
        sharded = compute.ranks.sharded
        if sharded and run.step_number == 0:
            run.begin(_say_nothing)
        while sharded or not run.finished:  # sharded weights are needed until the last checkpoint is written
            instruction = compute.ranks.broadcast(GO)
            if instruction == STOP:
                return DONE
            if instruction == GO:
                run.step()
            if instruction == SAVE:
                run.save(run_dir)
            if instruction == SNAPSHOT:
                run.save_snapshot(run_dir)
            if instruction == CHANGE:
                setting = list(LIVE_SETTINGS)[compute.ranks.broadcast(0)]
                run.plan_change(setting, compute.ranks.broadcast_number(0.0), run.step_number + 1)
    except (ConfigError, PromptsError, ParityError, NonFiniteError, RewardError):
        return FAILED
    return DONE


def _say_nothing(text: str, fraction: float | None) -> None:
    """Rank 0 says what is being loaded."""
