"""Optimise against reward models of several sizes, by best-of-n and by PPO; fit the paper's forms; write docs/overoptimisation.md.

python -m benchmarks.overoptimisation --folder RUNS            # all cells, one after the other; killed, it goes on by the same command
python -m benchmarks.overoptimisation --folder RUNS --tables   # data, tables and figure from the cells that are finished
python -m benchmarks.overoptimisation --tables                 # tables and figure from the data of the repository
python -m benchmarks.overoptimisation --check                  # exit code 1 when the page does not say what the scores say
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.overoptimisation import report
from benchmarks.overoptimisation.plan import cells


def run(folder: Path) -> None:
    """Make what is not there yet, with one thread."""
    import torch

    from benchmarks.overoptimisation.work import make

    torch.set_num_threads(1)
    for cell in cells():
        make(cell, folder)
        print(f"{cell.name} is there", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where cells and reward models are kept")
    parser.add_argument("--tables", action="store_true", help="train nothing: write data, tables and figure")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.check:
        same = report.up_to_date()
        print("up to date" if same else "out of date; run: python -m benchmarks.overoptimisation --tables")
        return int(not same)
    if options.tables:
        if options.folder:
            report.write_data(options.folder)
        report.write_page()
    elif options.folder:
        run(options.folder)
    else:
        parser.error("--folder is needed: cells and reward models are kept there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
