"""What the forked process does with a lease: the engine itself, from the run's newest checkpoint, until the lease is nearly over."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil

from leases import forks
from leases.clock import Clock
from leases.lease import Lease, LeaseEnd
from rlhf_studio.child_process.environment import engine_environment
from rlhf_studio.engine.process.screen import output_in_log
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.lessons.faults.names import fault_of
from rlhf_studio.lessons.faults.wrappers import applied
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader

_worked = False


def play(lease: Lease) -> LeaseEnd:
    """Train a run for as long as a lease lasts. Everything that is found out is in the run's folder when this returns.

    The libraries were loaded before the fork, which saves their seconds. The models are loaded in each lease anew.
    """
    global _worked
    clock = Clock(lease, used=0.0 if _worked else _age())
    _worked = True
    if not forks.begin_worker():
        return LeaseEnd(problem=forks.NOT_SAFE)
    folder = Path(lease.run_dir)
    try:
        config = RunReader(folder).config()
        own = engine_environment(
            os.environ, folder, keep_hub_token=lease.keep_hub_token, permissions=lease.permissions, trackers=config.engine.trackers
        )
        for name in set(os.environ) - set(own):  # what an engine need not see, its own children must not see
            del os.environ[name]
        os.environ.update(own)
        working_folder, fault = RunReader(folder).working_folder(), fault_of(folder)
        broken = applied(fault) if fault else contextlib.nullcontext()
        with contextlib.chdir(working_folder) if working_folder.is_dir() else contextlib.nullcontext(), output_in_log(folder), broken:
            run_engine(folder, lease.mode, permissions=lease.permissions, signals=clock)
    except (StoreError, ValueError) as error:
        return LeaseEnd(problem=str(error))
    return clock.end()


def _age() -> float:
    """Seconds since this process was forked."""
    return max(0.0, time.time() - psutil.Process().create_time())
