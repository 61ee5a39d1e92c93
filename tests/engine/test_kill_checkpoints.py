"""The loop that kills one run and spoils its checkpoints, as a test; see kill_checkpoints.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_forty_kills_lose_nothing() -> None:
    command = [sys.executable, "-m", "tests.engine.kill_checkpoints", "--kills", "40"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=1800)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "something was lost in 0" in result.stdout
