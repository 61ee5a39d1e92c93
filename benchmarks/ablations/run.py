"""One run of the benchmark, in a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from benchmarks.ablations.plan import ANSWERS, Planned
from benchmarks.tiny_world import HELD_OUT_PROMPTS, config_of, fresh_answers, held_out_prompts
from benchmarks.world_runs import write_whole
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.models.reference import Reference

CURVES = {
    "score": "objective/scores",
    "gold": "gold/score",
    "own_kl": "objective/kl",
    "clipped": "policy/clipfrac_avg",
    "value_fit": "val/explained_variance",
    "grad_norm": "optim/grad_norm",
}
"""What is kept of each step, and the metric that it is; ``own_kl`` is to the run's own reference, by its own estimator."""


def run_once(planned: Planned, path: Path) -> None:
    """Train, and leave the curves and the outcomes of the fresh answers in a file."""
    started = time.process_time()
    own = {"engine.seed": planned.seed, "engine.threads": 1, "engine.checkpoint_every": 0}
    config = config_of({**planned.arm.settings, **own})
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    trainer.first_answers()
    at_start = Reference(trainer.models.policy, torch.float32)
    steps = []
    while not trainer.finished:
        metrics = trainer.step().metrics
        steps.append({name: metrics.get(metric) for name, metric in CURVES.items()})
    asked = held_out_prompts(trainer, ANSWERS // HELD_OUT_PROMPTS)
    tokens, golds = fresh_answers(trainer, asked, torch.Generator().manual_seed(planned.seed + 1_000_000))
    kl = trainer.models.forward_pass.full_kl(trainer.models.policy, at_start, tokens)
    curves = {name: [None if step[name] is None else round(step[name], 5) for step in steps] for name in CURVES}
    fresh = {
        "gold": float(golds.mean()),
        "kl": float((kl * tokens.mask).sum() / len(tokens)),
        "length": float(tokens.lengths.double().mean()),
    }
    write_whole(path, {"arm": planned.arm.name, "seed": planned.seed, "fresh": fresh, "curves": curves, "seconds": _since(started)})


def _since(started: float) -> float:
    """Seconds of the processor, whatever else the machine does."""
    return round(time.process_time() - started, 1)
