"""The helpers lie beside the tests and are imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from store_helpers import new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A prepared run folder outside any workspace."""
    return new_run(tmp_path / "run-one")
