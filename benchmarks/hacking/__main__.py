"""Reward hacking on the review world: train the runs, judge the monitors, write docs/hacking.md.

    python -m benchmarks.hacking --folder RUNS                    # all runs, one after the other; go on by the same command
    python -m benchmarks.hacking --folder RUNS --part train       # some of them: train, test, "held out"; --jobs 2 for two at a time
    python -m benchmarks.hacking --folder RUNS --tables           # data, tables and figure from the runs that are finished
    python -m benchmarks.hacking --tables                         # tables and figure from the data of the repository
    python -m benchmarks.hacking --check                          # exit code 1 when the page does not say what the scores say

Every run is a process of its own, with one thread. It may be killed at any point: what is unfinished is made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.hacking import data, report
from benchmarks.hacking.plan import Planned, planned_runs
from benchmarks.world_runs import Progress, start

ROWS = "rows.json"


def is_done(run: Planned, folder: Path) -> bool:
    """Whether a run is finished."""
    return (folder / "runs" / run.name / ROWS).is_file()


def train(runs: Sequence[Planned], folder: Path, jobs: int) -> int:
    """Make the runs that are not there yet. Those of one reward model go one after the other: the first of them trains it."""
    progress = Progress(len(runs), sum(is_done(run, folder) for run in runs))
    by_judge: dict[str, list[Planned]] = {}
    for run in runs:
        if not is_done(run, folder):
            by_judge.setdefault(run.judge_name, []).append(run)

    def of_one_judge(own: Sequence[Planned]) -> int:
        failed = 0
        for run in own:
            started = time.monotonic()
            if start("benchmarks.hacking", run.name, folder):
                failed += 1
            else:
                progress.one_more(run.name, time.monotonic() - started)
        return failed

    with ThreadPoolExecutor(jobs) as pool:
        return min(sum(pool.map(of_one_judge, by_judge.values())), 1)


def one(run: Planned, folder: Path) -> None:
    """A run, in this process."""
    import torch

    from benchmarks.hacking.reward_models import reward_model
    from benchmarks.hacking.run import run_once, settings_of

    torch.set_num_threads(1)
    judges = folder / "reward-models"
    judges.mkdir(parents=True, exist_ok=True)
    judge = reward_model(run.judge, run.seed, judges / run.judge_name)
    run_once(folder / "runs" / run.name, settings_of(run, judge))


def gathered(folder: Path) -> list[data.Run]:
    """The runs that are finished, in the order of the plan."""
    runs = []
    for run in planned_runs():
        if is_done(run, folder):
            try:
                runs.append(_finished(run, folder))
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                redo = f"remove runs/{run.name} and reward-models/{run.judge_name} there, and train them again"
                raise SystemExit(f"the files of {run.name} in {folder} are damaged ({type(error).__name__}: {error}); {redo}") from None
    return runs


def _finished(run: Planned, folder: Path) -> data.Run:
    told = json.loads((folder / "runs" / run.name / ROWS).read_text(encoding="utf-8"))
    accuracy = json.loads((folder / "reward-models" / run.judge_name / "accuracy.json").read_text(encoding="utf-8"))
    about = {name: getattr(run, name) for name in ("name", "beta", "rate", "part", "seed")}
    about |= {"judge": run.judge.name, "kind": run.judge.kind, "seconds": told["seconds"]}
    return data.judged({**about, "accuracy": round(accuracy["held_out_accuracy"], 4)}, told["rows"])


def tables(folder: Path | None) -> None:
    """Data, where a folder of runs is given; scores, page and figure."""
    if folder is not None:
        runs = gathered(folder)
        if not runs:
            raise SystemExit(f"no run in {folder} is finished")
        data.write(runs, data.FOLDER, len(planned_runs()))
    stored, planned = data.read()
    report.write_page(report.computed(stored, planned))
    if len(stored) < planned:
        print(f"unfinished: {len(stored)} of {planned} runs; the page says so")


def check() -> int:
    """1 when the page or the figure is out of date."""
    scores = json.loads(report.SCORES.read_text(encoding="utf-8"))
    page = report.PAGE.read_text(encoding="utf-8")
    same = page == report.filled(page, scores) and report.FIGURE.read_text(encoding="utf-8") == report.figure.drawn(scores)
    print("up to date" if same else "out of date; run: python -m benchmarks.hacking --tables")
    return int(not same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where runs and reward models are kept")
    parser.add_argument("--part", choices=["train", "test", "held out"], help="only the runs of this part")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--tables", action="store_true", help="train nothing: write data, tables and figure")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        return check()
    if options.tables:
        tables(options.folder)
        return 0
    if options.folder is None:
        parser.error("--folder is needed: runs and reward models are kept there")
    if options.one:
        one(next(run for run in planned_runs() if run.name == options.one), options.folder)
        return 0
    return train([run for run in planned_runs() if options.part in (None, run.part)], options.folder, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
