"""The doctor on runs that were really trained, healthy and ill ones, kept in tests/analysis/stores (see stored_runs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import Doctor
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
            "settings-learning-rate": ("warning", 0),
            "kl-exploding": ("alarm", 2),
            "all-cut-off": ("alarm", 5),
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


def graver(doctor: Doctor, until: int | None = None) -> dict[str, tuple[str, int]]:
    return {one.check: (one.level, one.since) for one in doctor.diagnose(until).findings if one.level != "note"}


def test_every_kept_run_is_judged_and_small() -> None:
    assert set(stored_runs.names()) == {*HEALTHY, *ILL}
    sizes = [path.stat().st_size for path in stored_runs.STORES.glob("*.jsonl")]
    assert max(sizes) < 300_000 and sum(sizes) < 2_000_000


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_improves_without_a_warning_at_any_step(name: str, tmp_path: Path) -> None:
    reader = stored_runs.stored(name, tmp_path / "run")
    doctor = Doctor(reader)
    assert doctor.diagnose().verdict.kind == "improved"
    assert [(step, graver(doctor, step)) for step in range(1, reader.status().step + 1) if graver(doctor, step)] == []


@pytest.mark.parametrize("name", ILL)
def test_an_ill_run_gets_its_verdict_and_its_findings(name: str, tmp_path: Path) -> None:
    kind, since, checks = ILL[name]
    doctor = Doctor(stored_runs.stored(name, tmp_path / "run"))
    found = doctor.diagnose().verdict
    assert (found.kind, found.since) == (kind, since)
    assert graver(doctor) == checks
    for check, (level, step) in checks.items():  # it was said then, and not before
        assert graver(doctor, step)[check] == (level, step)
        assert step == 0 or graver(doctor, step - 1).get(check, ("", 0))[0] != level


@pytest.mark.parametrize("name", [name for name in HEALTHY if name.startswith("world")])
def test_the_phrase_of_the_bundled_raters_is_noted(name: str, tmp_path: Path) -> None:
    notes = Doctor(stored_runs.stored(name, tmp_path / "run")).diagnose().verdict.notes
    assert any("masterpiece" in note and "the judge may be fooled" in note for note in notes)


def test_a_run_that_its_learning_rate_destroyed_is_told_so(tmp_path: Path) -> None:
    """First, once, and in the verdict; and what is left of its text is not said to please the reward, since the score fell."""
    doctor = Doctor(stored_runs.stored("rate-x4500-0", tmp_path / "run"))
    for step in (0, 1, None):
        findings = doctor.diagnose(step).findings
        assert [one.title for one in findings if "4,500" in one.title] == [findings[0].title]
        assert (findings[0].since, findings[0].until, findings[0].changes) == (0, None, {"ppo.learning_rate": 2e-4})
    found = doctor.diagnose()
    assert found.verdict.notes[0] == "Learning rate 0.9 is 4,500 times the recipe's."
    assert "same response" in found.verdict.sentence and not any("same response" in note for note in found.verdict.notes)
    causes = {one.check: one.cause for one in found.findings}
    assert all("did not rise" in causes[check] for check in ("diversity-loss", "repetition", "cut-off-rising"))


def test_an_exploited_reward_is_told_with_the_phrase_and_the_setting(tmp_path: Path) -> None:
    notes = Doctor(stored_runs.stored("beta-0-21", tmp_path / "run")).diagnose().verdict.notes
    assert "masterpiece” is taking over" in notes[0]
    assert notes[1] == "With KL coefficient 0 nothing holds the policy near its start."


def test_answers_that_were_cut_off_from_the_beginning_are_a_note(tmp_path: Path) -> None:
    """Four tokens are allowed: nothing is spoilt, and more would help."""
    (one,) = [one for one in Doctor(stored_runs.stored("cut-off-21", tmp_path / "run")).diagnose().findings if one.check == "all-cut-off"]
    assert (one.level, one.since, one.changes) == ("note", 3, {"generation.response_length": 8})
