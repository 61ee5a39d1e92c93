"""The runs of the experiments in a workspace: finding them, and making those that are missing.

A run belongs to an experiment when its settings and its fault are those of one of the two sides. So several experiments share the run
that has no fault and the recipe's settings, and people may rename runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rlhf_studio.config import StageConfig
from rlhf_studio.language import _
from rlhf_studio.lessons.faults.experiment import MOST_SEED, WHICH, Experiment, Which, same_run
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fault import note_of, noted_fault
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.workspace import Workspace

TAG = "broken on purpose"
UNDER_WAY = ("queued", *ALIVE)
BothRuns = dict[Which, RunStatus | None]


@dataclass(frozen=True)
class OwnRun:
    """A run that was made for an experiment, or made from such a run: its folder, its settings, and the fault that the folder names."""

    folder: Path
    config: StageConfig
    fault: str


def own_runs(workspace: Workspace) -> list[OwnRun]:
    """All runs of experiments. A folder that cannot be read is left out: the list of runs says what is wrong with it."""
    runs = []
    for folder in workspace.folders():
        try:
            changed = (folder / paths.FAULT).stat().st_mtime_ns, (folder / paths.CONFIG).stat().st_mtime_ns
            runs.append(_own_run(folder, changed))
        except (OSError, StoreError, ValueError):  # no such run, damaged, or deleted meanwhile
            continue
    return runs


@lru_cache(maxsize=1000)
def _own_run(folder: Path, _changed: tuple[int, int]) -> OwnRun:
    """Read anew when one of the two files has changed."""
    return OwnRun(folder, RunReader(folder).config(), noted_fault(folder) or "")


def both_runs(workspace: Workspace, experiment: Experiment, seed: int, runs: Sequence[OwnRun]) -> BothRuns:
    """For each side its run, None where there is none. Of several, one that has ended comes first, then one that is under way."""
    return {which: _best(workspace, experiment, which, seed, runs) for which in WHICH}


def _best(workspace: Workspace, experiment: Experiment, which: Which, seed: int, runs: Sequence[OwnRun]) -> RunStatus | None:
    config, fault = experiment.config(which, seed), experiment.side(which).fault
    matches = [status_of(workspace, run) for run in runs if run.fault == fault and same_run(config, run.config)]
    return max((run for run in matches if run is not None), key=_rank, default=None)


def status_of(workspace: Workspace, run: OwnRun) -> RunStatus | None:
    """None when the run was deleted meanwhile."""
    try:
        return workspace.status(run.folder.name)
    except StoreError:
        return None


def under_way(workspace: Workspace, runs: Sequence[OwnRun]) -> bool:
    """Whether one of the runs waits, loads, trains or pauses."""
    return any(status is not None and status.state in UNDER_WAY for status in (status_of(workspace, run) for run in runs))


def has_ended(run: RunStatus | None) -> bool:
    """Whether a run has results to show: it finished, or it failed after at least one step."""
    return run is not None and (run.state == "finished" or (run.state == "failed" and run.step > 0))


def _rank(run: RunStatus) -> tuple[int, float]:
    return 2 if has_ended(run) else 1 if run.state in UNDER_WAY else 0, run.created_at


def seeds_done(workspace: Workspace, experiment: Experiment, runs: Sequence[OwnRun]) -> list[int]:
    """The seeds of which both runs have ended, in order."""
    seeds = sorted({run.config.engine.seed for run in runs if run.config.engine.seed <= MOST_SEED})
    return [seed for seed in seeds if all(map(has_ended, both_runs(workspace, experiment, seed, runs).values()))]


def submit_missing(workspace: Workspace, experiment: Experiment, seed: int, runs: Sequence[OwnRun]) -> list[str]:
    """Queue the missing runs of a pair; returns their ids. Raises StoreError."""
    pair = both_runs(workspace, experiment, seed, runs)
    return [_submit(workspace, experiment, which, seed) for which in WHICH if not has_ended(pair[which])]


def _submit(workspace: Workspace, experiment: Experiment, which: Which, seed: int) -> str:
    fault = experiment.side(which).fault
    run_id = workspace.submit(experiment.config(which, seed), experiment.run_name(which, seed), files=note_of(fault))
    if fault:
        workspace.mark(run_id, tags=[TAG], note=_("An experiment of Learn, Break it. This run has the fault {fault}.").format(fault=fault))
    return run_id
