"""The numbers of the cards, from what ships with the program or from experiments made again in a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ablations import __main__ as ablations
from benchmarks.ablations.plan import ANSWERS, ARMS, BASELINE, planned_runs
from benchmarks.ablations.results import differences
from benchmarks.hacking import __main__ as hacking
from benchmarks.hacking import report
from benchmarks.overoptimisation import __main__ as overoptimisation
from benchmarks.overoptimisation import judge
from benchmarks.overoptimisation import report as cells
from rlhf_studio.config.bundled import LESSON_RUN, ONE_BATCH, RECORDED, WITHOUT_KL
from rlhf_studio.runs.finding.unpack import Bundle, unpack
from rlhf_studio.runs.reader import RunReader

Json = dict[str, Any]
MONITORS = ("KL", "length slope", "doctor", "contraction tube", "KL CUSUM", "entropy fall", "clock")
FIGURES = ("title", "reward_change", "reward_error", "gold_change", "gold_error")

OVER_OPTIMISED = {"ppo": "large-500-0-ppo-0", "with_kl": "large-500-0-ppo-0.03", "best_of_n": "large-500-0-bon"}
CURVES = {"score": "objective/scores", "gold": "gold/score"}


def recorded(folder: Path | None, run: str) -> Json:
    """Score and gold of a run of the lesson run; with a folder, of one that is made there."""
    archive = LESSON_RUN
    if folder is not None and not (archive := folder / "lesson-run.zip").is_file():
        from rlhf_studio.lessons.world_build.lesson_run import build_lesson_run

        build_lesson_run(archive, lambda text: print(text, flush=True))
    rows = [
        values
        for _, values in RunReader(unpack(Bundle(archive, "The lesson run", "lesson-run", {}), folder) / run).metrics_since(0, limit=1000)
    ]
    return {name: [round(float(row[metric] or 0), 4) for row in rows] for name, metric in CURVES.items()}


def one_batch(folder: Path | None) -> Json:
    """What seven algorithms made of one batch."""
    file = ONE_BATCH
    if folder is not None and not (file := folder / ONE_BATCH.name).is_file():
        command = [sys.executable, "-m", "rlhf_studio", "compare-updates", "--fresh", "1024", "--out", str(file)]
        subprocess.run(command, check=True)
    data = json.loads(file.read_text(encoding="utf-8"))
    sizes = {"responses": data["batch"]["responses"], "prompts": data["batch"]["prompts"], "fresh": data["before"]["fresh"]}
    return {**sizes, "algorithms": [{name: row[name] for name in FIGURES} for row in data["algorithms"]]}


def monitors(folder: Path | None) -> Json:
    """What the benchmark of docs/hacking.md has found."""
    if folder is None:
        scores = json.loads(report.SCORES.read_text(encoding="utf-8"))
    else:
        hacking.train(hacking.planned_runs(), folder / "hacking", jobs=1)
        scores = report.computed(hacking.gathered(folder / "hacking"), len(hacking.planned_runs()))
    tests = {name: scores["monitors"][name]["test"] for name in MONITORS}
    return {
        "made": scores["runs"],
        "planned": scores["planned"],
        "hours": round(scores["hours"] / scores["runs"] * scores["planned"], 1),
        "test_runs": tests["KL"]["runs"],
        "hacked": tests["KL"]["hacked"],
        "rows": [{"name": name, "in_time": own["caught"][0], "false": own["false"][0]} for name, own in tests.items()],
    }


def over_optimised(folder: Path | None) -> Json:
    """Gain in gold against d, the root of the KL in nats, for one reward model of docs/overoptimisation.md."""
    if folder is None:
        scores = json.loads(cells.SCORES.read_text(encoding="utf-8"))
    else:
        overoptimisation.run(folder / "overoptimisation")
        scores = judge.computed(cells.gathered(folder / "overoptimisation"))
    return {"hours": scores["hours"], **{name: scores["curves"][cell] for name, cell in OVER_OPTIMISED.items()}}


def of_ablations(folder: Path | None, arms: tuple[str, ...] = ()) -> Json:
    """The paired differences of all choices, and where each run ended; with a folder, those of some arms are made there."""
    data = ablations.stored()
    if folder is not None:
        runs = [run for run in planned_runs() if not arms or run.arm.name in (BASELINE, *arms)]
        if ablations.train(folder / "ablations", runs):
            raise SystemExit("a run failed")
        data = ablations.gathered(folder / "ablations")
    ends = {
        arm.name: [[round(run["fresh"][of], 4) for of in ("kl", "gold")] for run in data["runs"] if run["arm"] == arm.name] for arm in ARMS
    }
    found = differences(data["runs"])
    seconds = median(run["seconds"] for run in data["runs"])
    return {
        "made": len(data["runs"]),
        "planned": data["planned"],
        "answers": ANSWERS,
        "hours": round(3 * seconds / 3600, 4),
        "unchanged": ends[BASELINE],
        "arms": {
            arm.name: {
                "settings": {name: str(value).lower() for name, value in arm.settings.items()},
                "points": ends[arm.name],
                "differences": [_plain(one) for one in found[arm.name]],
            }
            for arm in ARMS
            if arm.name in found
        },
    }


def _plain(one: Any) -> Json:
    interval = None if one.interval is None else [round(value, 4) for value in one.interval]
    return {"outcome": one.outcome, "mean": round(one.mean, 4), "interval": interval, "word": one.word}


SOURCES: dict[str, Callable[[Path | None], Json]] = {
    "fooled": lambda folder: recorded(folder, WITHOUT_KL),
    "healthy": lambda folder: recorded(folder, RECORDED),
    "one-batch": one_batch,
    "ablations": of_ablations,
    "monitors": monitors,
    "over-optimised": over_optimised,
}
"""An entry of ``numbers.json``: its numbers, made again in a folder where one is given."""
