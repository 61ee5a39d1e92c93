"""Judge the doctor and "what did it learn" on runs that are trained for it, healthy ones and ill ones.

    python -m benchmarks.trials                          # the main trials, seeds 21 to 25 of the healthy ones and 21 of the others
    python -m benchmarks.trials world beta-0 --seeds 31 32
    python -m benchmarks.trials --all --keep FOLDER      # keeps the runs; those that are there are judged without training them again
    python -m benchmarks.trials --permute 100            # and: with the steps of a healthy run permuted, in how many is anything claimed

One line for each run. The exit code is 0 when every line is right, else 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trials import permuted
from benchmarks.trials.cases import DEFAULT, TRIALS, Trial
from benchmarks.trials.judge import Judgement, judge
from rlhf_studio.recipes import load_recipe
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED

SEEDS = (21, 22, 23, 24, 25)
MOST_SHOWN = 2


def train(name: str, seed: int, folder: Path, models: Path, threads: int = 0) -> Path:
    """The run of a trial, trained with the real command in a process of its own, or the one that is there already."""
    run = folder / "runs" / f"{name}-{seed}"
    if run.is_dir() and RunReader(run).status().state in ENDED:
        return run
    trial = TRIALS[name]
    for made in filter(None, (trial.policy, trial.reward)):
        from benchmarks.trials.worlds import make  # loads torch, which most trials do not need here

        make(made, models)
    settings = folder / f"{name}-{seed}.yaml"
    settings.write_text(yaml.safe_dump(settings_of(trial, seed, models, threads)), encoding="utf-8")
    command = [sys.executable, "-m", "rlhf_studio", "train", "--config", str(settings), "--run-dir", str(run)]
    done = subprocess.run(command, capture_output=True, text=True)
    if not run.is_dir():
        raise RuntimeError(f"{name}-{seed} could not be trained: {done.stderr.strip()[-1000:]}")
    return run


def settings_of(trial: Trial, seed: int, models: Path, threads: int) -> dict[str, Any]:
    """The whole configuration of a run, nested as in YAML."""
    values = load_recipe(trial.recipe).config.model_dump(mode="json")
    if trial.policy:
        values["model"]["policy"] = str((models / trial.policy).resolve())
    if trial.reward:
        made = str((models / trial.reward).resolve())
        values["reward"]["components"] = [{"kind": "reward_model", "name": trial.reward, "model": made}]
    if trial.components:
        values["reward"]["components"] = [dict(one) for one in trial.components]
    for name, value in {**trial.settings, "engine.seed": seed, "engine.threads": threads}.items():
        section, field = name.split(".")
        values[section][field] = value
    return values


def line(name: str, seed: int, found: Judgement) -> str:
    """One row of the table."""
    graver = ", ".join(f"{check} ({level}, {step})" for level, check, step in found.graver) or "none"
    phrases = "; ".join(
        f"“{one.text}” {one.before}/{one.before_of} → {one.after}/{one.after_of}" for one in found.learned.phrases[:MOST_SHOWN]
    )
    traits = ", ".join(f"{one.name} {one.before:.2f} → {one.after:.2f}" for one in found.learned.traits if one.changed)
    cells = (name, seed, found.figures, found.said[-1], found.first_said, graver, phrases or "nothing", traits or "nothing")
    right = "right" if not found.wrong else "WRONG: " + "; ".join(found.wrong)
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in (*cells, right)) + " |"


HEAD = (
    "| trial | seed | first step → last tenth | verdict | first said | warnings and alarms (first said) | phrases | traits | |\n"
    + "|---" * 9
    + "|"
)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    names = tuple(options.trials) or (tuple(TRIALS) if options.all else DEFAULT)
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(HEAD, flush=True)
        for name in names:
            for seed in options.seeds or (SEEDS if TRIALS[name].quiet and not TRIALS[name].policy else SEEDS[:1]):
                found = judge(train(name, seed, folder, folder / "models", options.threads), TRIALS[name], not options.quick)
                wrong += bool(found.wrong)
                print(line(name, seed, found), flush=True)
        if options.permute:
            run = train(names[0], (options.seeds or SEEDS)[0], folder, folder / "models", options.threads)
            claims = permuted.claims(run, options.permute)
            print(f"\nSteps of {run.name} permuted: something is claimed in {claims} of {options.permute} tries; 5 % are allowed.")
            wrong += claims > 0.05 * options.permute
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trials", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="*", choices=[*TRIALS, []], metavar="TRIAL", help=f"of {', '.join(TRIALS)}")
    parser.add_argument("--all", action="store_true", help="every trial")
    parser.add_argument("--seeds", type=int, nargs="+", help="for every trial")
    parser.add_argument("--keep", type=Path, help="keep the runs here, as a workspace")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of a run; PyTorch chooses if left out")
    parser.add_argument("--permute", type=int, default=0, metavar="TRIES", help="permute the steps of the first run so many times")
    parser.add_argument("--quick", action="store_true", help="leave out the comparison of doctor, runs show, report and Live")
    return parser


if __name__ == "__main__":
    sys.exit(main())
