"""The experiments of "Break it on purpose", trained by the engine's own command: what their texts say is so."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlhf_studio.lessons.faults.experiment import WHICH, Experiment
from rlhf_studio.lessons.faults.pair import Pair
from rlhf_studio.lessons.faults.table import EXPERIMENTS
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lab.fault import note_of
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.reader import RunReader
from tests.lessons.claims.break_it import CLAIMS


def test_every_experiment_has_claims() -> None:
    assert list(CLAIMS) == [experiment.name for experiment in EXPERIMENTS] and all(CLAIMS.values())


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_what_the_text_says_of_the_two_runs_is_so(experiment: Experiment, seed: int, tmp_path: Path) -> None:
    for which in WHICH:
        note = note_of(experiment.side(which).fault)
        create_run(tmp_path / which, experiment.config(which, seed), name=which, files=note)
        start_engine(tmp_path / which).wait()
    readers = {which: RunReader(tmp_path / which) for which in WHICH}
    numbers = Pair(experiment, readers["first"], readers["second"]).numbers()
    missing = dict.fromkeys(("explained_first", "explained_second"), math.nan)  # of a run that broke down
    broken = [claim for claim, holds in CLAIMS[experiment.name].items() if not holds({**missing, **numbers})]
    assert not broken, broken
