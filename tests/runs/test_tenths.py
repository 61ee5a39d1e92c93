"""The Live page and the table of runs say the same of how a metric began and how it ended."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.rows import tenth
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.live_data import summary_rows

NAN = math.nan


@pytest.mark.parametrize(("steps", "size"), [(0, 1), (1, 1), (19, 1), (20, 2), (105, 10)])
def test_a_tenth_has_at_least_one_step(steps: int, size: int) -> None:
    assert tenth(steps) == size


def test_both_pages_say_the_same_where_numbers_are_missing(tmp_path: Path) -> None:
    scores = [NAN if step % 3 == 1 else float(step) for step in range(1, 41)]
    run = tmp_path / "run"
    create_run(run, RunConfig(), name="a run")
    with RunWriter(run) as writer:
        writer.set_state("running")
        for step, score in enumerate(scores, 1):
            writer.commit_step(StepRecord(step, {"objective/scores": score}, []))
    reader = RunReader(run)
    table = reader.summary()
    ends = reader.first_and_last(["objective/scores"])
    assert summary_rows(ends, 40) == [{"name": "objective/scores", "from": table["score_first"], "to": table["score_last"]}]
    assert (table["score_first"], table["score_last"]) == (2.5, 38.5)  # steps 1 to 4 and 37 to 40 without 1, 4, 37 and 40
