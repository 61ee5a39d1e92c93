"""Few held-out pairs leave open whether a reward model guesses: the verdict says that it does only where they exclude that it is useful."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.records import Diagnosis
from tests.analysis.doctor.made_stages import Made, measured


def diagnosis_of(folder: Path, right: int, pairs: int) -> Diagnosis:
    """Of a run whose held-out loss falls, with so many of its held-out pairs right at every measurement."""
    metrics = {"reward_model/eval_accuracy": measured(lambda step: right / pairs)}
    return diagnose(Made("reward_model", metrics=metrics, examples={"held_out": pairs}).write(folder))


def about_chance(result: Diagnosis) -> list[str]:
    return [f"{finding.level}: {finding.title}" for finding in result.findings if finding.check == "accuracy-at-chance"]


@pytest.mark.parametrize(("right", "pairs"), [(3, 3), (3, 4), (4, 4), (5, 7), (7, 7), (7, 10), (10, 10), (10, 19), (15, 20), (20, 20)])
def test_good_runs_with_few_pairs_have_learned(right: int, pairs: int, tmp_path: Path) -> None:
    result = diagnosis_of(tmp_path / "run", right, pairs)
    assert result.verdict.kind == "learned" and result.verdict.sentence.startswith("Learned: held-out loss 0.700 → 0.460")
    assert about_chance(result) == []


@pytest.mark.parametrize(("right", "pairs"), [(14, 20), (10, 20), (50, 99), (58, 100)])
def test_what_may_be_chance_and_may_be_useful_is_noted_beside_it(right: int, pairs: int, tmp_path: Path) -> None:
    result = diagnosis_of(tmp_path / "run", right, pairs)
    assert result.verdict.kind == "learned"
    assert about_chance(result) == ["note: Too few held-out pairs to tell the accuracy from guessing"]
    assert "Too few held-out pairs to tell the accuracy from guessing." in result.verdict.notes


@pytest.mark.parametrize(("right", "pairs"), [(2, 20), (102, 200), (501, 1000)])
def test_pairs_that_exclude_a_useful_accuracy_are_guessed(right: int, pairs: int, tmp_path: Path) -> None:
    result = diagnosis_of(tmp_path / "run", right, pairs)
    assert result.verdict.kind == "nothing learned" and result.verdict.sentence.startswith("Nothing learned that tells new pairs apart: ")
    assert about_chance(result) == ["warning: Held-out pairs are guessed"]


def test_a_low_accuracy_of_many_pairs_is_no_chance(tmp_path: Path) -> None:
    result = diagnosis_of(tmp_path / "run", 550, 1000)  # 3 standard errors above 50 %
    assert result.verdict.kind == "learned" and about_chance(result) == []
