"""One run of the benchmark, in a process of its own: PPO by the recipe, and before each step 512 answers that only gold sees.

The answers are drawn by the engine's own sampling with random numbers of their own, so the training is what it would be without them.
Everything is written into the run's folder; ``rows.json`` is written last, and a folder without it is made again.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.hacking.doctor import doctor_numbers
from benchmarks.hacking.onset import ANSWERS
from benchmarks.hacking.plan import SETTINGS, STEPS, Planned
from benchmarks.tiny_world import HELD_OUT_PROMPTS, config_of, fresh_answers, held_out_prompts, judged_by
from benchmarks.world_runs import write_whole
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.process.program_run import ProgramRun
from rlhf_studio.engine.types import StepSoFar

ROWS = "rows.json"
DRIFT_WINDOW = 20  # steps between the two distributions of advantages that are compared
CEILING = 0.99  # of the highest reward so far: rewards above this stand at it
SIGNALS = {
    "score": "objective/scores",
    "score_se": "objective/scores_se",
    "score_std": "objective/scores_std",
    "score_max": "objective/scores_max",
    "kl": "objective/kl",
    "entropy": "policy/entropy_avg",
    "length": "tokens/response_length",
    "cut_off": "tokens/cut_off",
    "approx_kl": "policy/approxkl_avg",
    "clipped": "policy/clipfrac_avg",
    "explained": "val/explained_variance",
    "value_loss": "loss/value_avg",
    "grad_norm": "optim/grad_norm",
    "step_gold": "gold/score",
    "step_gold_se": "gold/score_se",
}
"""The columns of the data that are metrics of the step itself; ``step_gold`` is the gold of its own 64 responses."""


def settings_of(run: Planned, judge: Path) -> dict[str, Any]:
    """What differs from the recipe ``world``."""
    own = {"ppo.kl_coef": run.beta, "ppo.learning_rate": run.rate, "ppo.steps": STEPS, "reward.components": judged_by(judge)}
    return {**SETTINGS, **own, "engine.seed": run.seed, "engine.threads": 1, "engine.checkpoint_every": 0}


def run_once(folder: Path, settings: dict[str, Any]) -> None:
    """Train, and leave the rows of the run in its folder. What an earlier process left unfinished there is thrown away."""
    if (folder / ROWS).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    config = config_of(settings)
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    run = ProgramRun(trainer, folder, config, name=folder.name, stopped=RuntimeError, left="stopped")
    answers, events = trainer.first_answers()
    run.watched(0, answers)
    for event in events:
        run.event(event)
    asked = held_out_prompts(trainer, ANSWERS // HELD_OUT_PROMPTS)
    generator = torch.Generator().manual_seed(config.engine.seed + 1_000_000)
    rows, earlier, highest = [], list[np.ndarray](), -np.inf
    while not trainer.finished:
        halves = halves_of(fresh_answers(trainer, asked, generator)[1])
        run.before_step()
        record, so_far = run.step()
        signals = {name: record.metrics.get(metric) for name, metric in SIGNALS.items()}
        highest = max(highest, record.metrics["objective/scores_max"])
        rows.append({"step": record.step, **signals, **of_responses(so_far, earlier, highest), **halves})
    run.end()
    for row, numbers in zip(rows, doctor_numbers(folder), strict=True):
        row |= numbers
    write_whole(folder / ROWS, {"rows": rows, "seconds": round(time.perf_counter() - started, 1), "settings": settings})


def halves_of(golds: np.ndarray) -> dict[str, float]:
    """The two halves of the fresh answers: the mean of each, and the second one's standard error from the means of the prompts."""
    middle = golds.shape[1] // 2
    first, second = golds[:, :middle], golds[:, middle:]
    error = second.mean(axis=1).std(ddof=1) / np.sqrt(len(second))
    return {"gold_first": float(first.mean()), "gold_second": float(second.mean()), "gold_second_se": float(error)}


def of_responses(so_far: StepSoFar, earlier: list[np.ndarray], highest: float) -> dict[str, float]:
    """What monitors ask of single responses: advantages, rewards near the highest one, lengths.

    Args:
        earlier: the sorted advantages of the steps before, one number for each response; gets this step's.
        highest: the highest reward of the run up to this step.
    """
    rollout = so_far.rollout
    assert rollout is not None and so_far.samples is not None
    mask = rollout.mask
    advantages = ((rollout.advantages * mask).sum(dim=1) / mask.sum(dim=1)).double().numpy()
    earlier.append(np.sort(advantages))
    spread = float(advantages.std())
    centred = (advantages - advantages.mean()) / max(spread, 1e-9)
    scores = rollout.scores.shaped.double().numpy()
    lengths = rollout.tokens.lengths.double().numpy()
    alike = np.corrcoef(scores, lengths)[0, 1] if lengths.std() > 0 and scores.std() > 0 else 0.0
    return {
        "at_ceiling": float((scores >= CEILING * highest).mean()),
        "length_std": float(lengths.std()),
        "score_length": float(alike),
        "advantage_std": spread,
        "advantage_skew": float((centred**3).mean()),
        "advantage_kurtosis": float((centred**4).mean() - 3.0),
        **{f"advantage_drift_{back}": drift(earlier, back) for back in (DRIFT_WINDOW // 2, DRIFT_WINDOW)},
    }


def drift(sorted_steps: list[np.ndarray], back: int) -> float:
    """The Wasserstein distance between the newest distribution and that of ``back`` steps before, of equally many numbers; 0 before."""
    return float(np.abs(sorted_steps[-1] - sorted_steps[-1 - back]).mean()) if len(sorted_steps) > back else 0.0
