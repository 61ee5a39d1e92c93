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

NAN = math.nan


def scored(run: Path, scores: list[float]) -> RunReader:
    create_run(run, RunConfig(), name="a run")
    with RunWriter(run) as writer:
        writer.set_state("running")
        for step, score in enumerate(scores, 1):
            writer.commit_step(StepRecord(step, {"objective/scores": score}, []))
    return RunReader(run)


def test_both_pages_say_the_same_where_numbers_are_missing(tmp_path: Path) -> None:
    assert [tenth(steps) for steps in (0, 1, 19, 20, 105)] == [1, 1, 1, 2, 10]
    reader = scored(tmp_path / "run", [NAN if step % 3 == 2 else float(step) for step in range(1, 41)])
    table = reader.summary()
    ends = reader.first_and_last(["objective/scores"])
    assert ends == {"objective/scores": (table["score_first"], table["score_last"])}
    assert (table["score_first"], table["score_last"]) == (1.0, pytest.approx(116 / 3))  # step 1, and steps 37 to 40 without 38


def test_how_a_run_began_is_its_first_step_alone(tmp_path: Path) -> None:
    """A tenth of the steps has begun to learn: a score that rises and falls again would be said to fall only."""
    reader = scored(tmp_path / "run", [0.18, 1.3, 0.8, *[0.9] * 23, 0.2, 0.2, 0.21, 0.21])
    first, last = reader.first_and_last(["objective/scores"])["objective/scores"]
    assert (first, last) == (0.18, pytest.approx((0.2 + 0.21 + 0.21) / 3)) and reader.summary()["score_first"] == first < last
