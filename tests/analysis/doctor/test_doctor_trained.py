"""The doctor on runs that were really trained, healthy and ill ones, kept in tests/analysis/stores (see stored_runs.py)."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.analysis.doctor import Doctor
from rlhf_studio.analysis.doctor.report import diagnosis_text
from rlhf_studio.analysis.records import Diagnosis
from tests.analysis.doctor import stored_runs

HEALTHY = ("world-21", "world-lora-21", "world-lora-24", "llama-21", "length-rule-21", "cut-off-21", "rate-d10-0")
# run -> (verdict, since, {check: (level, since)} of every warning and alarm that the checks end with)
ILL: dict[str, tuple[str, int, dict[str, tuple[str, int]]]] = {
    "beta-0-21": (
        "exploiting the reward",
        9,
        {"settings-kl": ("warning", 0), "kl-exploding": ("alarm", 13), "judge-falls": ("warning", 9)},
    ),
    "rate-d100-0": (
        "nothing learned",
        20,
        {"settings-learning-rate": ("warning", 0), "learning-rate-too-small": ("warning", 10)},
    ),
    "rate-x10-21": (
        "collapsed",
        6,
        {
            "settings-learning-rate": ("warning", 0),
            "kl-exploding": ("alarm", 4),
            "unstable-start": ("alarm", 2),
            "ends-at-once": ("alarm", 19),
            "steps-too-large": ("warning", 3),
            "length-drift": ("warning", 14),
            "clip-fraction-high": ("warning", 16),
        },
    ),
    "rate-x50-21": (
        "collapsed",
        3,
        {
            "settings-learning-rate": ("alarm", 0),
            "kl-exploding": ("alarm", 2),
            "all-cut-off": ("alarm", 5),
            "unstable-start": ("alarm", 2),
            "repetition": ("alarm", 5),
            "diversity-loss": ("alarm", 15),
            "steps-too-large": ("warning", 2),
            "value-loss-overflow": ("warning", 5),
            "cut-off-rising": ("warning", 7),
            "entropy-collapse": ("warning", 15),
            "length-drift": ("warning", 29),
        },
    ),
    "rate-x4500-0": (
        "collapsed",
        2,
        {
            "settings-learning-rate": ("alarm", 0),
            "diversity-loss": ("alarm", 2),
            "unstable-start": ("alarm", 2),
            "kl-exploding": ("alarm", 2),
            "repetition": ("alarm", 2),
            "all-cut-off": ("alarm", 4),
            "entropy-collapse": ("alarm", 4),
            "not-finite": ("alarm", 12),
            "steps-too-large": ("warning", 1),
            "value-loss-overflow": ("warning", 4),
            "cut-off-rising": ("warning", 6),
        },
    ),
}


def graver(diagnosis: Diagnosis) -> dict[str, tuple[str, int]]:
    return {finding.check: (finding.level, finding.since) for finding in diagnosis.findings if finding.level != "note"}


@pytest.fixture(scope="module")
def doctors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Doctor]:
    """A doctor for each kept run."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: Doctor(stored_runs.stored(name, folder / name)) for name in stored_runs.names()}


def test_every_kept_run_is_judged(doctors: dict[str, Doctor]) -> None:
    assert set(doctors) == {*HEALTHY, *ILL}


@pytest.mark.parametrize("every", [19, pytest.param(1, marks=pytest.mark.long)])
def test_a_healthy_run_improves_without_a_warning_at_any_step(every: int, doctors: dict[str, Doctor]) -> None:
    wrong: list[Any] = []
    for name in HEALTHY:
        now = doctors[name].diagnose()
        wrong += [(name, now.verdict.kind)] if now.verdict.kind != "improved" else []
        steps = [*range(3, now.step, every), now.step] if every > 1 else range(1, now.step + 1)
        wrong += [(name, step, ill) for step in steps if (ill := graver(doctors[name].diagnose(step)))]
    assert wrong == []


def test_an_ill_run_gets_its_verdict_and_its_findings(doctors: dict[str, Doctor]) -> None:
    for name, (kind, since, checks) in ILL.items():
        now = doctors[name].diagnose()
        assert (now.verdict.kind, now.verdict.since, graver(now)) == (kind, since, checks), name


def test_a_collapsed_run_is_advised_what_its_gravest_alarm_says(doctors: dict[str, Doctor]) -> None:
    """The recipe's rate, however far away it is: 10, 50 and 4,500 times. Half of 0.9 would break the policy again."""
    advised = {name: doctors[name].diagnose().verdict.changes for name in ("rate-x10-21", "rate-x50-21", "rate-x4500-0")}
    assert advised == dict.fromkeys(advised, {"ppo.learning_rate": 2e-4})


@pytest.mark.long
def test_every_finding_was_said_at_its_step_and_not_before(doctors: dict[str, Doctor]) -> None:
    for name, (_, _, checks) in ILL.items():
        for check, (level, step) in checks.items():
            assert graver(doctors[name].diagnose(step))[check] == (level, step), name
            assert step == 0 or graver(doctors[name].diagnose(step - 1)).get(check, ("", 0))[0] != level, name


def test_the_phrase_of_the_bundled_raters_is_noted(doctors: dict[str, Doctor]) -> None:
    for name in HEALTHY:
        if name.startswith("world"):
            notes = doctors[name].diagnose().verdict.notes
            assert any("masterpiece" in note and "the judge may be fooled" in note for note in notes), name


def test_a_run_that_its_learning_rate_destroyed_is_told_so(doctors: dict[str, Doctor]) -> None:
    """First, once, and in the verdict; and what is left of its text is not said to please the reward, since the score fell."""
    doctor = doctors["rate-x4500-0"]
    for step in (0, 1, None):
        findings = doctor.diagnose(step).findings
        assert [finding.title for finding in findings if "4,500" in finding.title] == [findings[0].title]
        assert (findings[0].since, findings[0].until, findings[0].changes) == (0, None, {"ppo.learning_rate": 2e-4})
    result = doctor.diagnose()
    assert result.verdict.notes[0] == "Learning rate 0.9 is 4,500 times the recipe's."
    assert "same response" in result.verdict.sentence and not any("same response" in note for note in result.verdict.notes)
    told = diagnosis_text(result, "runs/mine").splitlines()
    assert [line.strip() for line in told[:4]][3] == "try        python -m rlhf_studio fork runs/mine --ppo.learning_rate 0.0002"
    causes = {finding.check: finding.cause for finding in result.findings}
    assert all("did not rise" in causes[check] for check in ("diversity-loss", "repetition", "cut-off-rising"))


def test_an_exploited_reward_is_told_with_the_phrase_and_the_setting(doctors: dict[str, Doctor]) -> None:
    notes = doctors["beta-0-21"].diagnose().verdict.notes
    assert "masterpiece” is taking over" in notes[0]
    assert notes[1] == "With KL coefficient 0 nothing holds the policy near its start."


def test_answers_that_were_cut_off_from_the_beginning_are_a_note(doctors: dict[str, Doctor]) -> None:
    """Four tokens are allowed: nothing is spoilt, and more would help."""
    (finding,) = [finding for finding in doctors["cut-off-21"].diagnose().findings if finding.check == "all-cut-off"]
    assert (finding.level, finding.since, finding.changes) == ("note", 3, {"generation.response_length": 8})
