"""Benchmarks are run by hand, and seldom: each must still find what it imports."""

from __future__ import annotations

import importlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
OF_PEERS = ("trl_", "handover_")  # for programs in environments of their own


def test_every_benchmark_finds_what_it_imports() -> None:
    for path in FOLDER.rglob("*.py"):
        if not path.name.startswith((*OF_PEERS, "__main__")):
            importlib.import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts).removesuffix(".__init__"))
