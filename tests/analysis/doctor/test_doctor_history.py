"""The doctor on runs that skipped, went back, or were changed while they went on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import Doctor, diagnose
from rlhf_studio.analysis.records import Finding
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.analysis.doctor.made_runs import HEALTHY, Made, Values, after, answers


def found(reader: RunReader, check: str) -> Finding | None:
    return next((one for one in diagnose(reader).findings if one.check == check), None)


@pytest.mark.parametrize(
    "metrics",
    [
        {"val/explained_variance": after(3, 0.3, math.nan)},  # all returns of the first steps are equal
        {"optim/grad_norm": after(15, math.nan, 0.5), "optim/steps": after(15, 0.0, 8.0)},  # every minibatch was left out
    ],
)
def test_a_metric_with_nothing_to_measure_is_no_overflow(metrics: Values, tmp_path: Path) -> None:
    assert found(Made(metrics=metrics).write(tmp_path / "run"), "not-finite") is None


@pytest.mark.parametrize("metrics", [{"val/explained_variance": after(9, -math.inf, 0.3)}, {"optim/grad_norm": after(9, math.nan, 0.5)}])
def test_the_same_metrics_can_overflow(metrics: Values, tmp_path: Path) -> None:
    one = found(Made(metrics=metrics).write(tmp_path / "run"), "not-finite")
    assert one is not None and (one.level, one.since) == ("alarm", 9)


@pytest.mark.parametrize(
    ("check", "events"),
    [
        ("not-finite", {12: EventRecord("warning", "skip", "1 minibatch was left out: the gradient norm is not finite (nan).")}),
        ("early-stops", {step: EventRecord("info", "early_stop", "The passes over this batch ended early.") for step in range(9, 17)}),
    ],
)
def test_events_of_steps_that_were_trained_again_are_no_illness(check: str, events: dict[int, EventRecord], tmp_path: Path) -> None:
    reader = Made(state="stopped", events=events).write(tmp_path / "run")
    doctor = Doctor(reader)
    assert check in [one.check for one in doctor.diagnose().findings]
    with RunWriter(tmp_path / "run") as writer:
        writer.go_back(8)
        assert check not in [one.check for one in doctor.diagnose().findings]
        for step in range(9, 17):
            writer.commit_step(healthy(step))
    assert found(reader, check) is None and check not in [one.check for one in doctor.diagnose().findings]


def healthy(step: int) -> StepRecord:
    return StepRecord(step, {name: value(step) for name, value in HEALTHY.items()}, answers(step), [], [])
