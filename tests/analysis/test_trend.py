"""The test of a trend: against sums by hand, and how often it is wrong on series that are made by chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlhf_studio.analysis.doctor.judges import ScoreSeries, sureness
from rlhf_studio.analysis.trend import LIKELY, SURE, _powers, _shape, _spread, trend, variance_of_mean

SHAPES = {
    "steady": lambda n: np.linspace(0, 1, n),
    "early": lambda n: 1 - np.exp(-np.arange(n) / (n / 10)),
    "late": lambda n: np.linspace(0, 1, n) ** 4,
}


def wandering(draw: np.random.Generator, steps: int, alike: float) -> np.ndarray:
    """Noise with a standard deviation of 1 in which neighbours correlate by ``alike``."""
    noise = draw.normal(size=steps)
    for step in range(1, steps):
        noise[step] = alike * noise[step - 1] + np.sqrt(1 - alike**2) * noise[step]
    return noise


def slow(draw: np.random.Generator, steps: int, alike: float = 0.8) -> np.ndarray:
    """Scores of new responses at each step, and below them a policy that wanders half as far, in steps that correlate by ``alike``."""
    return draw.normal(size=steps) + 0.5 * wandering(draw, steps, alike)


def test_a_straight_line_with_known_errors_by_hand() -> None:
    """Slope 0.1 over 20 steps, errors 0.2: 0.1 · √Σ(i − 10.5)² / 0.2 = 0.1 · √665 / 0.2; no other curve fits a line better."""
    rises, falls = trend(0.1 * np.arange(1, 21), np.full(20, 0.2))
    assert rises[-1] == pytest.approx(0.1 * np.sqrt(665) / 0.2)
    assert trend(-0.1 * np.arange(1, 21), np.full(20, 0.2))[1][-1] == pytest.approx(-rises[-1]) and falls[-1] > 0
    assert np.isnan(rises[:4]).all() and np.isfinite(rises[4:]).all()
    assert abs(trend(np.full(9, 3.0))[0][-1]) < 1e-3  # what never changes has no trend


def test_the_variance_is_that_of_the_whole_matrix_of_correlations() -> None:
    x, alike = np.log(np.arange(1.0, 31.0)), np.linspace(0.1, 0.6, 30)
    matrix = alike[-1] ** np.abs(np.subtract.outer(np.arange(30), np.arange(30)))
    centred = x - x.mean()
    assert _spread(_shape(np.log, 30), _powers(alike))[-1] == pytest.approx(centred @ matrix @ centred, rel=1e-4)
    draw = np.random.default_rng(2)
    guessed = [variance_of_mean(wandering(draw, 30, 0.5), 6) for _ in range(200)]
    real = np.var([wandering(draw, 30, 0.5)[-6:].mean() for _ in range(4000)])
    assert 0.7 * real < np.median(guessed) < 2 * real  # plain independence would say 0.17 instead of 0.38


def test_what_it_says_of_a_step_does_not_depend_on_later_ones() -> None:
    values = np.random.default_rng(3).normal(size=120)
    assert trend(values[:50])[0] == pytest.approx(trend(values)[0][:50], nan_ok=True)


def rises_by(values: np.ndarray, known: bool) -> np.ndarray:
    """How surely the verdict takes a score for rising, at each step; with errors of 1 where they are known."""
    errors = np.ones(len(values)) if known else np.full(len(values), np.nan)
    return sureness(ScoreSeries("score", "objective/scores", values, errors, spread=1.0, first_steps=1, by_steps=not known))[0]


def shares(known: bool, alike: float | None, steps: int, tries: int) -> tuple[float, float, float]:
    """Of series without a trend: how many were ever called rising, how many in the end, how many likely rising in the end."""
    draw, ever, sure, likely = np.random.default_rng(steps), 0, 0, 0
    for _ in range(tries):
        values = slow(draw, steps) if alike is None else wandering(draw, steps, alike)
        rises = rises_by(values, known)
        ever, sure, likely = ever + bool(np.nanmax(rises) > SURE), sure + bool(rises[-1] > SURE), likely + bool(rises[-1] > LIKELY)
    return ever / tries, sure / tries, likely / tries


def missed(known: bool, alike: float, shape: str, steps: int, tries: int, size: float) -> float:
    """How often a series that rises by so many standard deviations of one step is called neither rising nor likely rising."""
    draw = np.random.default_rng(steps)
    rising = [rises_by(size * SHAPES[shape](steps) + wandering(draw, steps, alike), known)[-1] for _ in range(tries)]
    return float(np.mean(np.array(rising) <= LIKELY))


def test_chance_is_seldom_called_a_trend_and_a_trend_seldom_chance() -> None:
    ever, sure, likely = shares(True, 0.3, 60, 200)
    assert ever <= 0.05 and sure <= 0.01 and likely <= 0.05
    assert missed(True, 0.3, "steady", 60, 100, 5.0) <= 0.05 and missed(False, 0.3, "early", 60, 100, 8.0) <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["errors known", "errors unknown"])
@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6, None], ids=["independent", "alike 0.3", "alike 0.6", "slow below fast"])
def test_the_level_of_error_for_5_to_1000_steps(known: bool, alike: float | None) -> None:
    """The figures of docs/doctor.md. ``pytest -m long -s tests/analysis/test_trend.py`` prints them."""
    for steps in (5, 10, 20, 60, 300, 1000):
        tries = 1000 if steps <= 300 else 300
        rates = shares(known, alike, steps, tries)
        print(
            f"\n| {'known' if known else 'unknown'} | {alike} | {steps} | " + " | ".join(f"{share:.1%}" for share in rates) + " |", end=""
        )
        assert rates[0] <= 0.05 + 0.014 and rates[1] <= 0.01 + 0.006 and rates[2] <= 0.05 + 0.014  # two standard errors of 1,000 tries


def noisy_end(draw: np.random.Generator, steps: int) -> np.ndarray:
    """Independent noise that is ten times as large in the last quarter."""
    return draw.normal(size=steps) * np.where(np.arange(steps) < 0.75 * steps, 1.0, 10.0)


def ever_either_way(known: bool, make: Callable[[np.random.Generator, int], np.ndarray], tries: int) -> float:
    """The share of series of 300 steps without a trend that are ever called rising or falling."""
    draw, count = np.random.default_rng(300), 0
    for _ in range(tries):
        values = make(draw, 300)
        count += bool(max(np.nanmax(rises_by(values, known)), np.nanmax(rises_by(-values, known))) > SURE)
    return count / tries


@pytest.mark.long
@pytest.mark.parametrize("alike", [0.9, 0.95, 0.99])
def test_a_slower_wander_is_taken_for_a_trend(alike: float) -> None:
    """What the test cannot tell from a trend, as docs/doctor.md says; printed with ``-s``."""
    share = ever_either_way(True, lambda draw, steps: slow(draw, steps, alike), 1000)
    print(f"\n| slower wander | {alike:g} | {share:.0%} |", end="")
    assert share > 0.1


@pytest.mark.long
def test_noise_that_grows_and_a_small_rise_without_known_errors() -> None:
    """Two more limits of docs/doctor.md: false claims in noise that grows tenfold, and how often a small rise in 60 steps is found."""
    false = ever_either_way(False, noisy_end, 1000)
    draw = np.random.default_rng(60)
    small = [rises_by(np.linspace(0, 2, 60) + draw.normal(size=60), False)[-1] for _ in range(1000)]
    share = float(np.mean(np.array(small) > SURE))
    print(f"\n| noise grows tenfold | {false:.0%} |\n| rise of 2 in 60 steps, found | {share:.0%} |", end="")
    assert false > 0.1 and share < 0.3


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_a_clear_rise_is_found(shape: str) -> None:
    for steps in (5, 10, 20, 60, 300, 1000):
        for alike in (0.0, 0.6):
            share = missed(True, alike, shape, steps, 300, 8.0)
            print(f"\n| {shape} | {alike} | {steps} | {share:.1%} |", end="")
            assert share <= 0.05
