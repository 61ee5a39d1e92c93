"""The names of the faults, and which of them a run's folder notes. Loads neither torch nor numpy."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fault import noted_fault

NAMES = ("temperature", "dropout", "pad_is_end", "critic", "reward_token")
"""The faults that change code, see :mod:`rlhf_studio.lessons.faults.wrappers`."""


def fault_of(run_dir: Path) -> str:
    """The name of the fault that a run has; empty for a run without one.

    Raises StoreError (reason ``damaged``) for a fault that there is not, and for a note that cannot be read.
    """
    fault = noted_fault(run_dir)
    if fault and fault not in NAMES:
        message = (
            f"{Path(run_dir) / paths.FAULT} names the fault {fault[:60]!r}, but there are only {', '.join(NAMES)}; nothing was started."
        )
        raise StoreError(message, "damaged")
    return fault or ""
