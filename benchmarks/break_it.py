"""Whether the experiments of "Break it on purpose" show what their texts say, on several seeds, and how long a pair of runs takes.

    python -m benchmarks.break_it --workspace DIR [--seeds 0 1 2] [--experiments no_kl ...] [--out benchmarks/results/break_it.json]

Each run is trained by the engine's own command. Runs that the workspace has already are not trained again, so a measurement that was
ended can be gone on with. The exit code is 1 when a claim does not hold on some seed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from rlhf_studio.lessons.faults.experiment import WHICH, Experiment, Which
from rlhf_studio.lessons.faults.pair import METRICS, Pair
from rlhf_studio.lessons.faults.runs import both_runs, has_ended, own_runs
from rlhf_studio.lessons.faults.shelf import said_of
from rlhf_studio.lessons.faults.table import EXPERIMENTS
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lab.fault import note_of
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace

Json = dict[str, Any]


def trained(workspace: Workspace, experiment: Experiment, which: Which, seed: int) -> RunStatus:
    """The run of one side, trained now where there is none. Raises RuntimeError when it does not end as it should."""
    found = both_runs(workspace, experiment, seed, own_runs(workspace))[which]
    if found is None or not has_ended(found):
        run_id = paths.new_run_id()
        folder = paths.run_dir(workspace.root, run_id)
        note = note_of(experiment.side(which).fault)
        create_run(folder, experiment.config(which, seed), name=experiment.run_name(which, seed), files=note)
        start_engine(folder).wait()
        found = workspace.status(run_id)
    if not has_ended(found):
        raise RuntimeError(f"{found.name} is {found.state}: {found.cause}")
    return found


def measured(workspace: Workspace, experiment: Experiment, seed: int) -> Json:
    """What two runs show: numbers, which claims hold, what the program said of them, and the seconds that they took."""
    runs = {which: trained(workspace, experiment, which, seed) for which in WHICH}
    readers = {which: workspace.reader(run.run_id) for which, run in runs.items()}
    pair = Pair(experiment, readers["first"], readers["second"])
    numbers = pair.numbers()
    kept = [f"{short}_{which}" for short in METRICS for which in WHICH] + ["token_step", "token_number", "token_first", "token_second"]
    said = said_of(readers["second"])
    return {
        "seed": seed,
        "answer": str(numbers["answer"]),
        "numbers": {name: round(numbers[name], 4) for name in kept if name in numbers},
        "starts": {f"{short}_{which}": round(numbers[f"{short}_{which}_start"], 4) for short in METRICS for which in WHICH
                   if f"{short}_{which}_start" in numbers},
        "claims": {text: _holds(claim, numbers) for text, claim in experiment.claims.items()},
        "states": {which: run.state for which, run in runs.items()},
        "seconds": {which: round((run.ended_at or math.nan) - (run.started_at or math.nan), 1) for which, run in runs.items()},
        "noticed": said["noticed"],
        "doctor": [one["check"] for one in said["found"]],
    }  # fmt: skip


def _holds(claim: Any, numbers: Json) -> bool:
    try:
        return bool(claim(numbers))
    except KeyError:  # a run that broke down has not recorded it
        return False


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing, and print what holds."""
    parser = argparse.ArgumentParser(description="Whether the experiments that break a run show what their texts say.")
    parser.add_argument("--workspace", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--experiments", nargs="+", default=[one.name for one in EXPERIMENTS], choices=[one.name for one in EXPERIMENTS])
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the figures here, as JSON")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else the machine did meanwhile; kept beside the figures")
    options = parser.parse_args(arguments)
    workspace = Workspace(options.workspace)
    chosen = [one for one in EXPERIMENTS if one.name in options.experiments]
    rows: dict[str, list[Json]] = {one.name: [] for one in chosen}
    for seed in options.seeds:
        for experiment in chosen:
            row = measured(workspace, experiment, seed)
            rows[experiment.name].append(row)
            false = [text for text, holds in row["claims"].items() if not holds]
            said = f"seed {seed}: {experiment.metric} ends {row['answer']}, {sum(row['seconds'].values()):.0f} s for the pair"
            print(f"{experiment.name:14} {said}; {'FALSE: ' + '; '.join(false) if false else 'all claims hold'}", flush=True)
            if options.out:
                found = {"machine": {"cpus": os.cpu_count()}, "note": options.note, "experiments": rows}
                options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(all(row["claims"].values()) for found in rows.values() for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
