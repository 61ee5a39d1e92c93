"""Choices of RLHF that people argue about, one at a time on the review world. :mod:`benchmarks.ablations.plan` says what is compared.

    python -m benchmarks.ablations --folder RUNS            # all 30 runs, one after the other; go on by the same command
    python -m benchmarks.ablations --folder RUNS --tables   # the data of the repository, from the runs that are finished
    python -m benchmarks.ablations --tables                 # the cards of docs/gallery.md from the data of the repository
    python -m benchmarks.ablations --check                  # exit code 1 when docs/gallery.md does not say what the data says

Every run is a process of its own, with one thread. It may be killed at any point: what is unfinished is made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablations.plan import Planned, planned_runs
from benchmarks.world_runs import Progress, start

DATA = Path(__file__).resolve().parents[1] / "results" / "ablations.json"


def file_of(run: Planned, folder: Path) -> Path:
    """Where a finished run's numbers are."""
    return folder / f"{run.name}.json"


def train(folder: Path, runs: Sequence[Planned]) -> int:
    """Make the runs that are not there yet; 1 when one of them failed."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not file_of(run, folder).is_file()]
    progress, failed = Progress(len(runs), len(runs) - len(missing)), 0
    for run in missing:
        started = time.monotonic()
        if start("benchmarks.ablations", run.name, folder):
            failed = 1
        else:
            progress.one_more(run.name, time.monotonic() - started)
    return failed


def gathered(folder: Path) -> dict[str, Any]:
    """The finished runs in the order of the plan, and how many are planned."""
    files = [file_of(run, folder) for run in planned_runs()]
    return {"planned": len(files), "runs": [json.loads(path.read_text(encoding="utf-8")) for path in files if path.is_file()]}


def stored() -> dict[str, Any]:
    """The data of the repository."""
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def write(data: dict[str, Any]) -> None:
    """The data of the repository: one line for each run. The same runs give the same bytes."""
    rows = ",\n".join(json.dumps(run) for run in data["runs"])
    DATA.write_text(f'{{"planned": {data["planned"]}, "runs": [\n{rows}\n]}}\n', encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the runs' numbers are kept")
    parser.add_argument("--tables", action="store_true", help="train nothing: write data and cards")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tables and options.folder:
        write(gathered(options.folder))
    if options.tables or options.check:
        from benchmarks.gallery import __main__ as gallery

        return gallery.check() if options.check else gallery.tables()
    if options.folder is None:
        parser.error("--folder is needed: runs are kept there")
    if options.one:
        from benchmarks.ablations.run import run_once

        chosen = next(run for run in planned_runs() if run.name == options.one)
        run_once(chosen, file_of(chosen, options.folder))
        return 0
    return train(options.folder, planned_runs())


if __name__ == "__main__":
    sys.exit(main())
