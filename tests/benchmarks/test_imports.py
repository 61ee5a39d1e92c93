"""Benchmarks are run by hand, and seldom: each must still find what it imports."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
OF_PEERS = ("trl_",)  # for programs in environments of their own


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_benchmark_finds_what_it_imports(path: Path) -> None:
    if not path.name.startswith((*OF_PEERS, "__main__")):
        importlib.import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts).removesuffix(".__init__"))
