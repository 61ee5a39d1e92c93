"""The end of a run in counts of answers, where the counts are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.in_counts import share_of
from rlhf_studio.runs.records import RolloutRecord
from tests.analysis.doctor.made_runs import Made, sentence
from tests.analysis.doctor.test_doctor_verdict import FLAT, GAMED
from tests.runs.store_helpers import rollout

WORLD = {"reward": {"gold": "world"}}
STEPS = 16


def answers(poor: Callable[[int], int], of: int = 20, gold: bool = True, end: str = ".") -> Callable[[int], list[RolloutRecord]]:
    """``of`` answers, ``poor(step)`` of which a judge finds poor: gold, or else the score, is -0.5 and not 0.5."""

    def make(step: int) -> list[RolloutRecord]:
        values = [-0.5 if row < poor(step) else 0.5 for row in range(of)]
        texts = [sentence(1000 * step + row) + (end if step > 6 else ".") for row in range(of)]
        both = [(0.0, value) if gold else (value, None) for value in values]
        return [rollout(row, response=texts[row], score=both[row][0], gold=both[row][1], length=8) for row in range(of)]

    return make


def ends_with(then: int, before: int = 11) -> Callable[[int], int]:
    return lambda step: then if step == STEPS else before if step == 1 else 10


CASES: dict[str, tuple[Made, str]] = {
    "improved": (
        Made(gold=True, settings=WORLD, responses=answers(ends_with(1))),
        "It worked: 5 % (1 of 20) of the reviews are unfriendly or broken now, 55 % (11 of 20) at the start.",
    ),
    "improved, with a phrase": (  # of the last three steps, 20 each
        Made(gold=True, settings=WORLD, responses=answers(ends_with(2), end=". A masterpiece.")),
        "It worked: 10 % (2 of 20) of the reviews are unfriendly or broken now, 55 % (11 of 20) at the start. "
        "But 100 % (60 of 60) end with “A masterpiece”.",
    ),
    "all answers of the last tenth are counted": (  # 3 of 40 in the last two of 20 steps
        Made(steps=20, gold=True, settings=WORLD, responses=answers(lambda step: {1: 11, 19: 1, 20: 2}.get(step, 10))),
        "It worked: 8 % (3 of 40) of the reviews are unfriendly or broken now, 55 % (11 of 20) at the start.",
    ),
    "improved by the score alone": (  # 9 of 20 and 11 of 20 differ by 0.6 standard deviations
        Made(gold=True, settings=WORLD, responses=answers(ends_with(9))),
        "The score rose, but gold says that the answers are no better: "
        "45 % (9 of 20) of the reviews are unfriendly or broken now, 55 % (11 of 20) at the start.",
    ),
    "fooled": (
        Made(metrics=GAMED, settings=WORLD, responses=answers(ends_with(19), end=". A masterpiece.")),
        "The judge was fooled: its score rose, but 95 % (19 of 20) of the reviews are unfriendly or broken now, "
        "55 % (11 of 20) at the start. "
        "100 % (60 of 60) end with “A masterpiece”.",
    ),
    "nothing learned": (
        Made(metrics={**FLAT, "lr": 1e-9, "gold/score": 0.1, "gold/score_se": 0.05}, settings=WORLD, responses=answers(ends_with(12))),
        "Nothing was learned: 60 % (12 of 20) of the reviews are unfriendly or broken now, "
        "55 % (11 of 20) at the start, which may be chance.",
    ),
    "no gold score": (  # the mean of the first step is -0.05
        Made(responses=answers(ends_with(2), gold=False)),
        "The score rose: 10 % (2 of 20) of the answers have a score below the mean of step 1 now, 55 % (11 of 20) at the start.",
    ),
    "another gold judge": (
        Made(gold=True, responses=answers(ends_with(2))),
        "It worked: 10 % (2 of 20) of the answers have a gold score below the mean of step 1 now, 55 % (11 of 20) at the start.",
    ),
    "scores that are scaled are another quantity at each step": (
        Made(settings={"reward": {"scaling": "scale"}}, responses=answers(ends_with(2), gold=False)),
        "",
    ),
    "of few answers": (
        Made(gold=True, settings=WORLD, responses=answers(lambda step: 1 if step > 1 else 9, of=10)),
        "It worked: 10 % (1 of 10) of the reviews are unfriendly or broken now, 90 % (9 of 10) at the start.",
    ),
    "too few answers": (
        Made(gold=True, settings=WORLD, responses=answers(lambda step: 1 if step > 1 else 6, of=7)),
        "It worked: score 0.10 → 1.26, gold 0.14 → 0.68.",
    ),
    "it failed": (Made(gold=True, settings=WORLD, responses=answers(ends_with(1)), state="failed", cause="the disk is full"), ""),
    "too early": (Made(steps=3, gold=True, settings=WORLD, responses=answers(lambda step: 20 if step == 1 else 0)), ""),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_are_told_where_they_say_what_the_verdict_says(case: str, tmp_path: Path) -> None:
    made, told = CASES[case]
    assert diagnose(made.write(tmp_path / "run")).verdict.in_counts == told


def test_only_none_and_all_are_0_and_100_per_cent() -> None:
    assert (share_of(511, 512), share_of(512, 512), share_of(1, 512)) == ("99.8 % (511 of 512)", "100 % (512 of 512)", "0.2 % (1 of 512)")


def test_a_run_that_goes_on_is_not_summed_up(tmp_path: Path) -> None:
    run = Made(gold=True, settings=WORLD, responses=answers(ends_with(1))).read(tmp_path / "run")
    assert diagnosis(run).verdict.in_counts and not diagnosis(replace(run, state="running")).verdict.in_counts


def test_what_held_a_run_back_is_what_its_next_one_should_change(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"recipe": "world", "ppo": {"steps": STEPS, "learning_rate": 1e-9}}
    verdict = diagnose(Made(metrics={**FLAT, "lr": 1e-9}, settings=settings).write(tmp_path / "run")).verdict
    assert verdict.kind == "nothing learned" and list(verdict.changes) == ["ppo.learning_rate"]
    assert verdict.changes["ppo.learning_rate"] > 1e-6
