"""Agreement against published examples, and against statsmodels 0.14 and krippendorff 0.9 on the same table."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.analysis.agreement import Share, cohens_kappa, fleiss_kappa, krippendorff_alpha

# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section E: four observers, twelve units, answers missing.
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
# A table of three raters with answers missing (0), given to both libraries; the numbers below are what they print.
TABLE = [
    [1, 0, 0, 4, 0, 0, 2, 2, 1, 4, 3, 4, 1, 0, 3, 3, 0, 2, 4, 0],
    [1, 2, 1, 4, 0, 2, 3, 0, 1, 0, 1, 4, 1, 0, 3, 4, 1, 3, 3, 4],
    [1, 2, 1, 4, 2, 0, 3, 4, 1, 3, 4, 4, 1, 2, 2, 4, 3, 1, 3, 0],
]
# Fleiss 1971, table 1 as it stands in textbooks: fourteen raters, ten subjects, five answers.
FLEISS = [
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
]  # fmt: skip


def units_of(table: list[list[Any]]) -> list[dict[str, Any]]:
    return [{f"r{rater}": row[unit] for rater, row in enumerate(table) if row[unit]} for unit in range(len(table[0]))]


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorffs_own_example(level: Any, alpha: float) -> None:
    assert krippendorff_alpha(units_of(PUBLISHED), level) == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.37869822485207094), ("ordinal", 0.6446463020065925), ("interval", 0.6419570051890289)]
)
def test_alpha_as_the_library_gives_it(level: Any, alpha: float) -> None:
    assert krippendorff_alpha(units_of(TABLE), level) == pytest.approx(alpha, abs=1e-12)


def test_fleiss_example() -> None:
    units = [{f"r{number}": answer for number, answer in enumerate(a for a, n in enumerate(row) for _ in range(n))} for row in FLEISS]
    kappa, items = fleiss_kappa(units)
    assert items == 10 and kappa == pytest.approx(0.210, abs=5e-4)


def test_kappas_as_the_library_gives_them() -> None:
    units = units_of(TABLE)
    assert fleiss_kappa([unit for unit in units if len(unit) == 3]) == (pytest.approx(0.4061696658097685, abs=1e-12), 11)
    pairs = [(unit["r0"], unit["r1"]) for unit in units if {"r0", "r1"} <= unit.keys()]
    assert len(pairs) == 11 and cohens_kappa(pairs) == pytest.approx(0.375, abs=1e-12)


def test_cohens_kappa_by_hand() -> None:
    """Fifty grants: 20 both yes, 15 both no, 5 and 10 apart. p_o = 0.7, p_e = 0.5, kappa = 0.4."""
    pairs = [("yes", "yes")] * 20 + [("no", "no")] * 15 + [("yes", "no")] * 5 + [("no", "yes")] * 10
    assert cohens_kappa(pairs) == pytest.approx(0.4)


def test_where_nothing_can_be_said() -> None:
    assert cohens_kappa([]) is None and cohens_kappa([("a", "a")] * 5) is None
    assert fleiss_kappa([]) == (None, 0) and fleiss_kappa([{"a": 1}]) == (None, 0)
    assert krippendorff_alpha([]) is None and krippendorff_alpha([{"a": 1}]) is None
    assert krippendorff_alpha([{"a": 1, "b": 1}] * 3) is None
    assert krippendorff_alpha([{"a": 1, "b": 1}, {"a": 2, "b": 2}]) == 1.0
    assert Share(0, 0).share is None and Share(0, 0).interval is None and not Share(0, 0).leans


def test_wilsons_interval() -> None:
    """The known interval of 8 of 10: 0.4902 to 0.9433."""
    assert Share(8, 10).interval == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert not Share(8, 10).leans and Share(80, 100).leans and Share(0, 10).interval[0] == 0.0  # type: ignore[index]
