"""Small recorded runs for the tests of the replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter


def record(
    folder: Path,
    scores: Sequence[float],
    *,
    rollouts: Sequence[Sequence[RolloutRecord]] = (),
    watched: Sequence[Sequence[WatchRecord]] = (),
    metrics: Sequence[dict[str, float]] = (),
    **settings: Any,
) -> RunReader:
    """A run whose steps have these mean scores, and what else is given for each of them; a run that is there goes on."""
    if not folder.exists():
        create_run(folder, RunConfig.model_validate(settings), name=folder.name)
    begun = RunReader(folder).status().step
    with RunWriter(folder) as writer:
        writer.set_state("running")
        for at, score in enumerate(scores):
            own = {"objective/scores": score, **(metrics[at] if metrics else {})}
            answers, again = (list(given[at]) if given else [] for given in (rollouts, watched))
            writer.commit_step(StepRecord(begun + at + 1, own, answers, again))
        writer.set_state("stopped")
    return RunReader(folder)
