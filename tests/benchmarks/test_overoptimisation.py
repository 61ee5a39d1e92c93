"""The benchmark of overoptimisation: best-of-n against brute force, fits against values worked by hand, the plan, one tiny cell."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.overoptimisation import judge, plan, report, work
from benchmarks.overoptimisation.fits import best_of, first_reaching, fit, kl_of_best, slope, top
from benchmarks.overoptimisation.plan import CLAIMS, GROUPS, NS, SIZES, Cell, cells


@pytest.mark.parametrize("n", range(1, 7))
def test_best_of_n_is_the_mean_over_all_ways_to_take_n(n: int) -> None:
    rng = np.random.default_rng(n)
    proxy, gold = rng.normal(size=(3, 6)), rng.normal(size=(3, 6))
    for row in range(3):
        all_ways = [gold[row, max(some, key=lambda place: proxy[row, place])] for some in combinations(range(6), n)]
        assert best_of(proxy, gold, n)[row] == pytest.approx(np.mean(all_ways))


def test_the_kl_of_best_of_n() -> None:
    assert kl_of_best(np.array([1, 2, 64])).tolist() == pytest.approx([0.0, 0.1931, 3.1745], abs=1e-4)  # log 64 = 4.1589, less 63 / 64


def test_fits_find_the_numbers_that_made_the_points() -> None:
    d = np.array([0.5, 1.0, 2.0, 4.0])
    assert fit(0, d, np.array([0.45, 0.8, 1.2, 0.8])) == pytest.approx((1.0, 0.2, 0.0), abs=1e-9)  # d (1 − 0.2 d)
    gains = [0.5 * (1 + 0.5 * 0.693147), 1.0, 2 * (1 - 0.5 * 0.693147), 4 * (1 - 0.5 * 1.386294)]  # d (1 − 0.5 log d)
    assert fit(1, d, np.array(gains)) == pytest.approx((1.0, 0.5, 0.0), abs=1e-5)
    # d = 1, 2 and gains 1, 1, 1 at d = 1, 2, 2 with β's column d²: (α, β) solves 9α − 17β = 5 and 17α − 33β = 9, so α = 3/2, β = 1/2.
    assert fit(0, np.array([1.0, 2.0, 2.0]), np.ones(3)) == pytest.approx((1.5, 0.5, 0.0), abs=1e-9)


def test_peaks_crossings_and_slopes_by_hand() -> None:
    assert top(np.array([0.0, 0.3, 0.6, 0.6, 0.0]), np.array([0.0, 1.0, 4.0, 7.0, 9.0]), 3) == pytest.approx((0.5, 2.0))
    assert first_reaching(0.5, np.array([0.0, 0.25, 0.75]), np.array([0.0, 1.0, 3.0])) == pytest.approx(2.0)
    assert np.isnan(first_reaching(0.9, np.array([0.0, 0.25, 0.75]), np.array([0.0, 1.0, 3.0])))
    first, second = np.array([0.0, 0, 1, 1]), np.array([0.0, 1, 0, 1])
    assert slope(3 * first - second + 7, first, second) == pytest.approx(3)


def test_the_plan_is_the_whole_grid_within_its_hour() -> None:
    made = cells()
    assert len(made) == len({cell.name for cell in made}) == 3 * 3 * 2 * 2 + 3 * 2
    assert [cell.seed for cell in made[:18]] == [0] * 18 and made[0].pairs == plan.BETA_AMOUNT
    assert [size.parameters for size in SIZES] == [3072, 55296, 921600]
    assert max(NS) == plan.ANSWERS and {cell.beta for cell in made} == {0.0, 0.03}


def invented(cell: Cell) -> dict[str, object]:
    """A cell whose gold follows the paper's forms with α 1, and β smaller for larger models and more pairs; every group alike."""
    beta = 0.6 - 0.05 * np.log10(cell.size.parameters * cell.pairs)
    if cell.method == "best of n":
        d = np.sqrt(kl_of_best(np.array(NS)))
        gain, rest = d * (1 - (beta + 0.2) * d), {"n": list(NS), "proxy": [0.0] * len(NS)}
    else:
        d = np.linspace(0, 6, 33)
        gain = 0.5 * d * (1 - beta * 2 * np.log(np.maximum(d, 1e-9)))
        rest = {"kl": (d**2)[:, None].repeat(GROUPS, axis=1).tolist(), "proxy": [0.0] * 33}
    return {"gold": gain[:, None].repeat(GROUPS, axis=1).tolist(), "accuracy": 0.9, "seconds": 36.0, **rest}


def test_a_world_that_is_as_the_paper_says_agrees_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "DRAWS", 20)
    scores = judge.computed({cell.name: invented(cell) for cell in cells()})
    verdicts = {name: said[-1] for name, said in scores["claims"].items()}
    assert verdicts == dict.fromkeys(CLAIMS, "agrees")
    assert scores["hours"] == pytest.approx(0.42) and "All 42 cells" in report.state(scores)[0]
    part = judge.computed({cell.name: invented(cell) for cell in cells()[:3]})
    assert "3 of 42 cells" in report.state(part)[0] and part["claims"]["pairs, gold"] == [""]
    assert all(block(part) for block in report.BLOCKS.values()) and "agrees |" not in "".join(report.claims(part))


@pytest.mark.parametrize(
    ("side", "low", "high", "said"),
    [("above", 0.1, 0.2, "agrees"), ("above", -0.1, 0.2, "open"), ("below", 0.1, 0.2, "disagrees"), ("below", -0.2, -0.1, "agrees"),
     ("around", -0.04, 0.04, "agrees"), ("around", -0.2, 0.1, "open"), ("around", 0.01, 0.02, "disagrees")],
)  # fmt: skip
def test_what_counts_as_agreeing(side: str, low: float, high: float, said: str) -> None:
    assert judge.verdict(side, low, high) == said


def test_the_page_says_what_the_scores_say() -> None:
    assert report.up_to_date()
    assert set(json.loads(report.DATA.read_text(encoding="utf-8"))) <= {cell.name for cell in cells()}


@pytest.mark.long
def test_one_tiny_reward_model_through_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AMOUNTS": (32,), "HELD_OUT_PAIRS": 16, "CALIBRATION": 16, "ANSWERS": 4, "NS": (1, 2, 4), "STEPS": 2}.items():
        monkeypatch.setattr(plan, name, value)
    monkeypatch.setattr(plan, "REVIEWS", 128)
    for method in ("best of n", "PPO"):
        cell = Cell(SIZES[0], 32, 7, method)  # type: ignore[arg-type]
        work.make(cell, tmp_path)
        before = work.path_of(cell, tmp_path).stat().st_mtime_ns
        work.make(cell, tmp_path)  # it is there: nothing is done again
        assert work.path_of(cell, tmp_path).stat().st_mtime_ns == before
    made = json.loads(work.path_of(cell, tmp_path).read_text(encoding="utf-8"))
    assert np.array(made["gold"]).shape == (3, GROUPS) and max(made["kl"][0]) == pytest.approx(0, abs=1e-3)
