"""The recipes without a critic teach what the others teach: the gold score rises by the margin that benchmarks/world.py asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.world import run_once


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("recipe", ["world-rloo", "world-grpo"])
def test_gold_rises_by_the_margin(recipe: str, seed: int, tmp_path: Path) -> None:
    outcome = run_once(recipe, seed, {}, tmp_path)
    print(outcome)
    assert outcome.holds, outcome
