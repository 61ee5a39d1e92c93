"""The doctor on runs that skipped, went back, or were changed while they went on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import Doctor, diagnose
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.records import Finding
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, SettingChange, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.analysis.doctor.made_runs import HEALTHY, Made, Values, after, answers


def finding_of(run: RunReader | Made, check: str) -> Finding | None:
    """Of a run in its folder, or of a made one without a store."""
    result = diagnosis(run.read(Path())) if isinstance(run, Made) else diagnose(run)
    return next((finding for finding in result.findings if finding.check == check), None)


@pytest.mark.parametrize(
    "metrics",
    [
        {"val/explained_variance": after(3, 0.3, math.nan)},  # all returns of the first steps are equal
        {"optim/grad_norm": after(15, math.nan, 0.5), "optim/steps": after(15, 0.0, 8.0)},  # every minibatch was left out
    ],
)
def test_a_metric_with_nothing_to_measure_is_no_overflow(metrics: Values) -> None:
    assert finding_of(Made(metrics=metrics), "not-finite") is None


@pytest.mark.parametrize("metrics", [{"val/explained_variance": after(9, -math.inf, 0.3)}, {"optim/grad_norm": after(9, math.nan, 0.5)}])
def test_the_same_metrics_can_overflow(metrics: Values) -> None:
    finding = finding_of(Made(metrics=metrics), "not-finite")
    assert finding is not None and (finding.level, finding.since) == ("alarm", 9)


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
    assert check in [finding.check for finding in doctor.diagnose().findings]
    with RunWriter(tmp_path / "run") as writer:
        writer.go_back(8)
        assert check not in [finding.check for finding in doctor.diagnose().findings]
        for step in range(9, 17):
            writer.commit_step(healthy(step))
    assert finding_of(reader, check) is None and check not in [finding.check for finding in doctor.diagnose().findings]


def healthy(step: int) -> StepRecord:
    return StepRecord(step, {name: value(step) for name, value in HEALTHY.items()}, answers(step), [], [])


FAR = {"objective/kl": after(5, 30.0, 1.0), "tokens/response_length": 20.0}


@pytest.mark.parametrize("saved", [0.05, 0.4])  # a change by a person, and one by a resume, which also saves it
def test_a_remedy_starts_from_the_value_in_force(saved: float, tmp_path: Path) -> None:
    changes = [SettingChange(12, "ppo.kl_coef", 0.05, 0.4)]
    reader = Made(settings={"ppo": {"steps": 16, "kl_coef": saved}}, metrics=FAR, changes=changes).write(tmp_path / "run")
    finding = finding_of(reader, "kl-exploding")
    assert finding is not None and finding.changes == {"ppo.kl_coef": 0.8}
    before = next(finding for finding in diagnose(reader, until=11).findings if finding.check == "kl-exploding")
    assert before.changes == {"ppo.kl_coef": 0.1}


def test_a_learning_rate_that_was_lowered_on_purpose_is_not_gone() -> None:
    lowered = Made(settings={"ppo": {"steps": 16, "learning_rate": 2e-4}}, metrics={"lr": after(8, 1e-6, 2e-4)})
    assert finding_of(lowered, "learning-rate-gone") is not None
    lowered.changes = [SettingChange(8, "ppo.learning_rate", 2e-4, 1e-6)]
    assert finding_of(lowered, "learning-rate-gone") is None


@pytest.mark.parametrize(("old", "new", "since"), [(2.0, 8.0, None), (6.0, 2.0, 14)])
def test_the_target_of_a_step_is_the_one_it_was_trained_with(old: float, new: float, since: int | None) -> None:
    settings = {"ppo": {"steps": 16, "kl_controller": "adaptive", "kl_target": old}}
    changes = [SettingChange(5, "ppo.kl_target", old, new)]
    finding = finding_of(Made(settings=settings, metrics={"objective/kl": 7.0}, changes=changes), "kl-above-target")
    assert (finding and finding.since) == since
    assert finding is None or finding.evidence[0].text == "KL 7.00 nats, target 2"


def test_a_change_without_a_usable_value_is_passed_over() -> None:
    """Logs of other programs may name any setting, and any value."""
    changes = [
        SettingChange(3, "ppo.kl_coef", None, "much"),
        SettingChange(4, "their.own", 1, 2),
        SettingChange(6, "ppo.kl_coef", None, 0.3),
    ]
    finding = finding_of(Made(metrics=FAR, changes=changes), "kl-exploding")
    assert finding is not None and finding.changes == {"ppo.kl_coef": 0.6}


def test_a_risky_setting_is_told_for_the_steps_that_had_it(tmp_path: Path) -> None:
    """Begun with 0.9, lowered at step 5, without a KL price from step 9 on."""
    changes = [SettingChange(5, "ppo.learning_rate", 0.9, 2e-4), SettingChange(9, "ppo.kl_coef", 0.05, 0.0)]
    reader = Made(settings={"ppo": {"steps": 16, "learning_rate": 0.9}}, changes=changes).write(tmp_path / "run")

    def about_settings(until: int | None) -> list[tuple[str, str, int, int | None]]:
        return [
            (finding.check, finding.level, finding.since, finding.until)
            for finding in diagnose(reader, until).findings
            if "settings" in finding.check
        ]

    assert about_settings(0) == about_settings(4) == [("settings-learning-rate", "alarm", 0, None)]
    assert about_settings(5) == [("settings-learning-rate", "alarm", 0, 4)]
    assert about_settings(None) == [("settings-learning-rate", "alarm", 0, 4), ("settings-kl", "warning", 9, None)]
