"""Fixtures of the tests of run folders."""

from pathlib import Path

import pytest

from rlhf_studio.runs.feedback.store import Feedback
from tests.runs.store_helpers import new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A prepared run folder outside any workspace."""
    return new_run(tmp_path / "run-one")


@pytest.fixture
def feedback(tmp_path: Path) -> Feedback:
    """An empty store of feedback."""
    return Feedback(tmp_path)
