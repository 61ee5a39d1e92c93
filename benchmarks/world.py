"""What PPO does on the bundled world: gold reward, KL and seconds, for several seeds.

    python -m benchmarks.world                      # the recipe, seeds 0 1 2
    python -m benchmarks.world --recipe world-lora
    python -m benchmarks.world --over-optimise      # no KL charge, more steps: the proxy rises while gold falls

Each run is the real command line in its own process. A run holds when its mean gold score over the last tenth of the steps is
above the first step's by at least two standard errors and a quarter of the gold range, with a final KL between 2 and 20.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.inputs.world.gold import HIGHEST, LOWEST
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.rows import tenth

OVER_OPTIMISE = {"ppo.kl_coef": "0", "ppo.steps": "300", "engine.watch_every": "50", "engine.checkpoint_every": "0"}


@dataclass(frozen=True)
class Outcome:
    """One run, first step against the last tenth of the steps.

    Attributes:
        gold_error: standard error of the difference of the two gold means, from the episodes' spread.
        seconds: the whole process, with its start.
    """

    seed: int
    steps: int
    proxy: tuple[float, float]
    gold: tuple[float, float]
    gold_peak: tuple[int, float]
    gold_error: float
    kl: float
    seconds: float

    @property
    def holds(self) -> bool:
        gain = self.gold[1] - self.gold[0]
        return gain >= 2 * self.gold_error and gain >= 0.25 * (HIGHEST - LOWEST) and 2 <= self.kl <= 20


def run_once(recipe: str, seed: int, settings: dict[str, str], folder: Path) -> Outcome:
    """Train in a process of its own and read what it recorded."""
    run_dir = folder / f"{recipe}-{seed}"
    options = [part for name, value in {**settings, "engine.seed": str(seed)}.items() for part in (f"--{name}", value)]
    started = time.perf_counter()
    command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", recipe, "--run-dir", str(run_dir), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_outcome(run_dir, seed, time.perf_counter() - started)


def read_outcome(run_dir: Path, seed: int, seconds: float) -> Outcome:
    """The figures of a finished run."""
    rows = RunReader(run_dir).metrics_since(0, limit=1_000_000)
    values = [metrics for _, metrics in rows]
    last = values[-tenth(len(values)) :]

    def ends(name: str) -> tuple[float, float]:
        return float(values[0][name] or 0), sum(float(row[name] or 0) for row in last) / len(last)

    variance = sum(float(row["gold/score_se"] or 0) ** 2 for row in last) / len(last) ** 2
    error = math.sqrt(float(values[0]["gold/score_se"] or 0) ** 2 + variance)
    smooth = [
        sum(float(row["gold/score"] or 0) for row in values[max(index - 4, 0) : index + 1]) / min(index + 1, 5)
        for index in range(len(values))
    ]
    peak = max(range(len(smooth)), key=smooth.__getitem__)
    kl = ends("objective/kl")[1]
    return Outcome(seed, rows[-1][0], ends("objective/scores"), ends("gold/score"), (peak + 1, smooth[peak]), error, kl, seconds)


def print_table(outcomes: list[Outcome], over: bool) -> None:
    """A Markdown table, ready for the README."""
    print("| seed | steps | reward | gold | standard error | gold's peak (step) | KL | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for run in outcomes:
        print(
            f"| {run.seed} | {run.steps} | {run.proxy[0]:.2f} → {run.proxy[1]:.2f} | {run.gold[0]:.2f} → {run.gold[1]:.2f} | "
            f"{run.gold_error:.3f} | {run.gold_peak[1]:.2f} ({run.gold_peak[0]}) | {run.kl:.1f} | {run.seconds:.0f} |"
        )
    if not over:
        print(f"\n{sum(run.holds for run in outcomes)} of {len(outcomes)} runs hold.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="world")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--over-optimise", action="store_true", help="kl_coef 0 and 300 steps")
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    options = parser.parse_args()
    settings = OVER_OPTIMISE if options.over_optimise else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        outcomes = [run_once(options.recipe, seed, settings, folder) for seed in options.seeds]
    print_table(outcomes, options.over_optimise)
    return 0 if options.over_optimise or all(run.holds for run in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
