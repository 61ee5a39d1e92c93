"""The loop that kills runs at random moments, as a test; see kill_loop.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.config import Stage
from tests.engine.kill_loop import run_loop
from tests.engine.stage_settings import STAGES

CASES = [("ppo", "gae"), ("ppo", "rloo"), ("ppo", "grpo"), *((stage, "gae") for stage in STAGES)]


@pytest.mark.long
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize(("stage", "advantage"), CASES)
def test_ten_kills_end_with_the_same_weights_and_records(tmp_path: Path, stage: Stage, advantage: str, lora: bool) -> None:
    results = run_loop(tmp_path, 10, 0, lora, stage, advantage)
    assert [row for row in results if not (row["equal"] and row["history_equal"] and row["resume_exit"] == 0)] == []
