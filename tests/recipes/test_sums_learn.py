"""The recipes with a right answer: the share of right answers to held-out sums rises, with a critic and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.runs.reader import RunReader

MOST_RIGHT, RISE = 0.5, 0.15
"""Of the start, and the least rise. 256 questions, asked once each, give a share to within 0.03 (its standard error)."""


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["sums", "sums-rloo", "sums-grpo"])
def test_more_held_out_sums_are_right(recipe: str, tmp_path: Path) -> None:
    assert main(["train", "--recipe", recipe, "--run-dir", str(tmp_path / "run")]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--count", "0", "--run-dir", str(tmp_path / "asked")]) == 0
    scores: dict[str, list[float]] = {}
    for answer in RunReader(tmp_path / "asked").answers():
        scores.setdefault(answer.policy, []).append(answer.score)
    assert all(len(values) == 256 and set(values) <= {0.0, 1.0} for values in scores.values())
    shares = {name: sum(values) / len(values) for name, values in scores.items()}
    print(recipe, shares)
    start, trained = sorted(shares.values())
    assert "start" in min(shares, key=lambda name: shares[name])
    assert start < MOST_RIGHT and trained - start > RISE
