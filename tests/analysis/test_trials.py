"""The trials of benchmarks.trials: their settings, their judgement of kept runs, and (long) a few that are trained anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trials.__main__ import main, settings_of
from benchmarks.trials.cases import TRIALS
from benchmarks.trials.judge import judge
from benchmarks.trials.permuted import claims
from rlhf_studio.config import RunConfig
from tests.analysis.doctor.stored_runs import stored
from tests.analysis.learned.planted import babble, rising, write_run


def test_the_settings_of_every_trial_can_be_run(tmp_path: Path) -> None:
    for name, trial in TRIALS.items():
        config = RunConfig.model_validate(settings_of(trial, 3, tmp_path, 1))
        assert config.engine.seed == 3, name
    assert RunConfig.model_validate(settings_of(TRIALS["rate-x4500"], 3, tmp_path, 1)).ppo.learning_rate == 0.9


def test_a_wrong_verdict_and_a_missing_phrase_are_told(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    stored("world-21", tmp_path / "runs" / "a")
    found = judge(tmp_path / "runs" / "a", TRIALS["world"], everywhere=False)
    assert (found.said[-1], found.first_said, found.graver, found.wrong) == ("improved", 5, [], [])
    other = replace(TRIALS["world"], verdicts=("collapsed",), phrase="worth the ticket", checks=("kl-negative",))
    assert judge(tmp_path / "runs" / "a", other, everywhere=False).wrong == [
        "the verdict should be collapsed",
        "kl-negative was not found",
        "“worth the ticket” is not among what it learned",
        "no note names “worth the ticket”",
    ]


def test_permuting_the_steps_takes_away_what_was_learned(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    steps = [[[*babble(draw, 8), *([" a", " treasure"] if rising(draw, step, 12) else [])] for _ in range(16)] for step in range(1, 13)]
    write_run(tmp_path / "run", steps)
    assert claims(tmp_path / "run", 10) <= 1
    assert claims(tmp_path / "run", 0) == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["world", "world-lora", "beta-0", "rate-x10", "rate-x4500", "rate-1e-12", "length-rule"])
def test_a_trained_run_is_judged_rightly_everywhere(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One new seed of each. The doctor, runs show, the report and Live agree."""
    code = main([name, "--seeds", "41", "--keep", str(tmp_path)])
    assert code == 0, capsys.readouterr().out


@pytest.mark.long
def test_nothing_is_claimed_of_a_trained_run_whose_steps_are_permuted(tmp_path: Path) -> None:
    assert main(["world", "--seeds", "42", "--keep", str(tmp_path), "--quick", "--permute", "100"]) == 0
