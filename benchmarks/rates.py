"""Which learning rate is best for a model, and how far the one that fits by the rule lies from it.

    python -m benchmarks.rates --recipe own --minutes 10 --json OUT.json --model.policy MODEL --data.prompts FILE --reward.components '[…]'
    python -m benchmarks.rates --recipe own-sft --minutes 10 --json OUT.json --model.policy MODEL --data.source FILE

Each rate is a run of the real command line, one after the other, with everything else as the recipe fits it, stopped after so many minutes.
Of PPO counts the mean reward after the price of the KL (``objective/rlhf_reward``) of the last fifth of the steps; of the other stages the
loss on held-out examples. The rule holds when no rate is better that is more than three times off.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rlhf_studio.cli.main import split_overrides
from rlhf_studio.config.io import apply_overrides
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.fitted import own_config
from rlhf_studio.runs.reader import RunReader

TIMES = (1 / 3, 1.0, 3.0, 10.0)
"""The rates that are tried, as shares of the one that fits."""
LAST = 5  # a fifth of the steps
FAR = 3.01


@dataclass(frozen=True)
class Outcome:
    """What a rate came to: ``result`` is better when it is higher."""

    rate: float
    steps: int
    result: float
    kl: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, choices=["own", "own-sft", "own-reward", "own-dpo"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=float, nargs="+", default=list(TIMES), help="shares of the fitted rate")
    parser.add_argument("--allow-custom-rewards", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    rest, overrides = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    given = [part for name, value in overrides.items() for part in (f"--{name}", value)]
    given += [part for path in options.allow_custom_rewards for part in ("--allow-custom-rewards", str(path))]
    stage = load_recipe(options.recipe).stage
    with tempfile.TemporaryDirectory() as folder:
        fitted = fitted_rate(options.recipe, overrides)
        outcomes: list[Outcome] = []
        for times in options.times:
            outcomes.append(tried(options.recipe, stage, given, fitted * times, options.minutes, Path(folder)))
            if options.json:  # after each rate: a sweep that is cut off leaves what it has measured
                options.json.write_text(as_json(fitted, outcomes), encoding="utf-8")
    best = max(outcomes, key=lambda outcome: outcome.result)
    holds = max(best.rate / fitted, fitted / best.rate) <= FAR
    print(f"best {best.rate:g}, fitted {fitted:g}: {'holds' if holds else 'DOES NOT HOLD'}")
    return 0 if holds else 1


def as_json(fitted: float, outcomes: list[Outcome]) -> str:
    """The file of ``--json``."""
    return json.dumps({"fitted": fitted, "outcomes": [asdict(one) for one in outcomes]}, indent=1)


def fitted_rate(name: str, overrides: dict[str, str]) -> float:
    """The rate that the rule gives. Raises :class:`ConfigError` for settings that cannot be used."""
    recipe = load_recipe(name)
    _, fitted = own_config(recipe, apply_overrides(recipe.config.model_dump(mode="json"), overrides), overrides)
    return float(fitted[f"{recipe.stage}.learning_rate"].value)


def tried(recipe: str, stage: str, given: list[str], rate: float, minutes: float, folder: Path) -> Outcome:
    """One run with this rate, stopped after so many minutes."""
    run = folder / f"{rate:g}"
    command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", recipe, *given, f"--{stage}.learning_rate", f"{rate:g}"]
    with subprocess.Popen([*command, "--run-dir", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, said = process.communicate(timeout=60 * minutes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate()
    if process.returncode not in (0, 3):
        raise SystemExit(said)
    outcome = outcome_of(RunReader(run), stage, rate)
    kl = "" if outcome.kl is None else f", KL {outcome.kl:.2f}"
    print(f"{outcome.rate:g}: {outcome.result:.4f} after {outcome.steps} steps{kl}", flush=True)
    return outcome


def outcome_of(reader: RunReader, stage: str, rate: float) -> Outcome:
    """The result of a run, as the docstring of this module says. Raises SystemExit for a run that was stopped before it had one."""
    names = ["objective/rlhf_reward", "objective/kl"] if stage == "ppo" else [f"{stage}/eval_loss"]
    steps, columns = reader.columns(names)
    if missing := [name for name in names if not np.isfinite(columns[name]).any()]:
        longer = "give more --minutes" if stage == "ppo" else f"give more --minutes, or a smaller --{stage}.eval_every"
        raise SystemExit(f"with the rate {rate:g} the run was stopped after {len(steps)} steps, before its first {missing[0]}: {longer}")
    first, *others = (columns[name][np.isfinite(columns[name])] for name in names)
    if stage != "ppo":
        return Outcome(rate, len(steps), -float(first[-1]), None)
    last = -max(1, len(steps) // LAST)
    return Outcome(rate, len(steps), float(first[last:].mean()), float(others[0][last:].mean()))


if __name__ == "__main__":
    sys.exit(main())
