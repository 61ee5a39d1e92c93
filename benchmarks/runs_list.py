"""How long the Runs page waits for its table: many small finished runs, read for the first time and again.

``python -m benchmarks.runs_list --runs 300`` makes the runs in a temporary folder and prints the seconds.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rlhf_studio.metrics.table import METRICS
from rlhf_studio.recipes import load_recipe
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.finding.folders import SETTLED_SECONDS
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.runs_page import LISTING_SECONDS, RunsPage


def make(root: Path, runs: int, steps: int) -> None:
    """``runs`` finished runs of ``steps`` steps with every metric, each in a folder of its own; every third with a tag."""
    first = root / "runs" / "20260101-000000-aaaaaa"
    create_run(first, load_recipe("world").config, name="a run")
    with RunWriter(first) as writer:
        for step in range(1, steps + 1):
            writer.commit_step(StepRecord(step, {metric.name: float(step) for metric in METRICS}, []))
        writer.set_state("finished")
    for number in range(1, runs):
        shutil.copytree(first, first.with_name(f"20260101-{number:06d}-aaaaaa"))
    for number in range(0, runs, 3):
        Workspace(root).mark(f"20260101-{number:06d}-aaaaaa", tags=["third"])


def seconds(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.runs, options.steps)
        time.sleep(SETTLED_SECONDS)  # a run that has just changed is read again
        page = RunsPage(Workspace(Path(folder)), Access())
        print(f"{options.runs} runs of {options.steps} steps: first time {seconds(page._rows):.2f} s", end=", ")
        time.sleep(LISTING_SECONDS + 0.1)
        print(f"again {seconds(page._rows):.3f} s")


if __name__ == "__main__":
    main()
