"""The loops that kill runs at random moments, as tests; see kill_checkpoints.py and kill_loop.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.stage_settings import STAGES


@pytest.mark.long
def test_forty_kills_lose_nothing() -> None:
    command = [sys.executable, "-m", "tests.engine.kill_checkpoints", "--kills", "40"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=1800)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "something was lost in 0" in result.stdout


@pytest.mark.long
@pytest.mark.parametrize("way", [[], ["--lora"]], ids=["full", "lora"])
@pytest.mark.parametrize("stage", STAGES)
def test_ten_kills_of_a_stage_end_with_the_same_weights(stage: str, way: list[str]) -> None:
    command = [sys.executable, "-m", "tests.engine.kill_loop", "--kills", "10", "--stage", stage, *way]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10 of 10 runs equal" in result.stdout


@pytest.mark.long
@pytest.mark.parametrize("way", [[], ["--lora"]], ids=["full", "lora"])
@pytest.mark.parametrize("advantage", ["rloo", "grpo"])
def test_ten_kills_without_a_critic_end_with_the_same_weights(advantage: str, way: list[str]) -> None:
    command = [sys.executable, "-m", "tests.engine.kill_loop", "--kills", "10", "--advantage", advantage, *way]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10 of 10 runs equal" in result.stdout
