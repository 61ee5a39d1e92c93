"""Fixtures of the tests of run folders."""

from pathlib import Path

import pytest

from tests.runs.store_helpers import new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A prepared run folder outside any workspace."""
    return new_run(tmp_path / "run-one")
