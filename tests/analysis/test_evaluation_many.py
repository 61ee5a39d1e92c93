"""The frontier claims that a reward is over-optimised by chance in at most 5 % of cases, however many policies are compared."""

from __future__ import annotations

import numpy as np
import pytest

from rlhf_studio.analysis.evaluation.answers import GOLD, SCORE, PolicyAnswers
from rlhf_studio.analysis.evaluation.frontier import frontier
from rlhf_studio.analysis.evaluation.many import LEVEL, p_values


def policies(gold: np.ndarray, score: np.ndarray) -> dict[str, PolicyAnswers]:
    """One answer to each prompt; both tables have shape (prompts, policies)."""
    prompts, nothing = np.arange(len(gold)), np.full(len(gold), np.nan)
    return {
        f"p{k}": PolicyAnswers(f"p{k}", [], prompts, {GOLD: gold[:, k], SCORE: score[:, k]}, np.full(len(gold), k + 1.0), nothing, nothing)
        for k in range(gold.shape[1])
    }


def arena(draw: np.random.Generator, prompts: int, count: int, alike: float, fall: float = 0.0) -> dict[str, PolicyAnswers]:
    """Policies on the same prompts, their scores rising by one standard deviation from each to the next.

    ``alike`` is the correlation of two policies' golds on a prompt; gold has a standard deviation of 1 and falls by ``fall`` at the last.
    """
    shared, own = draw.normal(size=(prompts, 1)), draw.normal(size=(prompts, count))
    gold = np.sqrt(alike) * shared + np.sqrt(1 - alike) * own
    gold[:, -1] -= fall
    return policies(gold, np.arange(count) + draw.normal(size=(prompts, count)))


def claimed(draw: np.random.Generator, tries: int, **of: float) -> float:
    """The share of arenas in which something is called over-optimised."""
    arenas = (arena(draw, **of) for _ in range(tries))  # type: ignore[arg-type]
    return float(np.mean([bool(frontier(answers, [SCORE, GOLD]).over_optimised) for answers in arenas]))


def test_p_values_of_two_policies_are_those_of_all_sign_changes() -> None:
    """Six prompts have 64 sign changes; the test of all of them is exact (Fisher 1935). Here two measures share them."""
    gap = np.array([1.0, 2.0, 0.5, 1.5, 0.2, -0.3])
    signs = np.array([[1 if number >> bit & 1 else -1 for bit in range(6)] for number in range(64)])
    exact = float((np.abs(signs @ gap) >= abs(gap.sum()) - 1e-9).mean())  # |t| rises with the size of the sum
    matrix = p_values({"gold": np.stack([gap, np.zeros(6)], axis=1)})["gold"]
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(exact, abs=0.02)  # 2,000 draws: a standard error of 0.0065
    assert p_values({"gold": np.full((6, 2), np.nan)})["gold"].min() == 1.0


@pytest.mark.long
def test_equal_policies_are_seldom_called_over_optimised() -> None:
    """Ten policies of equal gold, 100 times: corrected for all pairs 5 % are allowed, uncorrected it is a third of them."""
    assert claimed(np.random.default_rng(0), 100, prompts=64, count=10, alike=0.3) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 100)


@pytest.mark.long
@pytest.mark.parametrize("alike", [0.0, 0.6], ids=["independent", "alike"])
@pytest.mark.parametrize("count", [2, 5, 10, 30])
def test_the_level_holds_and_a_real_fall_is_found(count: int, alike: float) -> None:
    """The figures of docs/evaluation.md. ``pytest -m long -s tests/analysis/test_evaluation_many.py`` prints them."""
    draw, tries = np.random.default_rng(1), 300 if count == 30 else 1000
    wrong = claimed(draw, tries, prompts=128, count=count, alike=alike)
    shares = [claimed(draw, tries // 5, prompts=prompts, count=count, alike=alike, fall=0.3) for prompts in (128, 300, 600)]
    print(f"\n| {count} | {alike:g} | {wrong:.1%} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    assert wrong <= LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / tries)
    assert shares[-1] >= 0.8


@pytest.mark.long
@pytest.mark.parametrize("prompts", [30, 64, 128, 300])
@pytest.mark.parametrize("count", [2, 10])
def test_the_level_where_differences_are_not_symmetric(count: int, prompts: int) -> None:
    """The test assumes symmetric differences. Here one policy's golds are exponential, the others' normal, all with a mean of 0."""
    draw, wrong = np.random.default_rng(1), 0
    for _ in range(1000):
        table = draw.normal(size=(prompts, count))
        table[:, 0] = draw.exponential(size=prompts) - 1
        wrong += bool(p_values({GOLD: table})[GOLD].min() <= LEVEL)
    print(f"\n| {count} | {prompts} | {wrong / 1000:.1%} |", end="")
    assert wrong / 1000 <= 0.1
