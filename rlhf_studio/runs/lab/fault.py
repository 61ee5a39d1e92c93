"""Runs that are broken on purpose, to learn from them: a note in the run's folder says which fault it has.

What the faults are, the lessons know (:mod:`rlhf_studio.lessons.faults`); the engine knows of none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rlhf_studio.regular import read_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError

EVENT = "fault"
"""The kind of the event with which each start of a broken run says what it is."""
MOST_BYTES = 10_000


def note_of(fault: str) -> Mapping[str, bytes]:
    """The file for a new run's folder. An empty name is that of the run beside it, which has no fault."""
    return {paths.FAULT: json.dumps({"fault": fault}).encode()}


def noted_fault(run_dir: Path) -> str | None:
    """The fault that a run's folder names: empty for the run without a fault beside a broken one, None for any other run.

    Raises StoreError (reason ``damaged``) for a note that cannot be read: the run may not go on as if it had none.
    """
    path = Path(run_dir) / paths.FAULT
    try:
        note = json.loads(read_regular(path, MOST_BYTES))
        fault = note["fault"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(f"{path} says which fault this run has, and cannot be read ({error}).", "damaged") from error
    if not isinstance(fault, str):
        raise StoreError(f"{path} must name a fault, not {str(fault)[:60]!r}.", "damaged")
    return fault


def carried_on(run_dir: Path) -> Mapping[str, bytes]:
    """The files with which a run made from this one has its fault too. Raises StoreError as :func:`noted_fault`."""
    fault = noted_fault(run_dir)
    return {} if fault is None else note_of(fault)
