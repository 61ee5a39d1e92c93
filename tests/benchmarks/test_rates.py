"""What a rate came to, and what is said of a run that was stopped before it came to anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rates import Outcome, outcome_of
from tests.runs.stage_helpers import write_stage_run


def test_the_result_of_a_rate_is_its_last_held_out_loss(tmp_path: Path) -> None:
    losses: list[dict[str, float]] = [{"sft/loss": 3.0, "sft/eval_loss": 2.5}, {"sft/loss": 2.0}, {"sft/loss": 1.5, "sft/eval_loss": 2.0}]
    assert outcome_of(write_stage_run(tmp_path / "a", "sft", losses), "sft", 1e-3) == Outcome(1e-3, 3, -2.0, None)
    with pytest.raises(SystemExit, match=r"rate 0\.001 .* after 1 steps, before its first sft/eval_loss: give more --minutes"):
        outcome_of(write_stage_run(tmp_path / "b", "sft", [{"sft/loss": 3.0}]), "sft", 1e-3)
