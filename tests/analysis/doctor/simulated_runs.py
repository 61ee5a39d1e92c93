"""PPO runs drawn by chance, of which is known how far the policy really rose: what a verdict says of many is right or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.config import RunConfig
from tests.analysis.test_trend import SHAPES, wandering

RISES = (0.0, 0.0, 0.0, 0.0, 0.25, 0.3, 0.4, 0.6, 0.9, 1.3)
"""Standard deviations of single responses' scores. Half of the runs that rise do so by little more than what matters."""


@dataclass(frozen=True)
class Simulated:
    """What a run is drawn from.

    Attributes:
        rise: of the policy's mean score from the first to the last step, in standard deviations of single scores.
        shape: when it rises, as in ``SHAPES``.
        spread: of single responses' scores, in points.
        prompts: share of the variance that lies between prompts.
        drift: how far a step's prompts are easier or harder than others, in standard errors of a step; neighbours correlate by ``alike``.
        seed: of all that is drawn.
    """

    rise: float
    steps: int = 25
    batch: int = 16
    shape: str = "steady"
    spread: float = 0.5
    prompts: float = 0.3
    drift: float = 0.5
    alike: float = 0.6
    seed: int = 0

    def run(self) -> RunData:
        """The run, finished; its KL is that of the cheapest policy that rose so far, and a little more."""
        draw = np.random.default_rng(self.seed)
        per_response = np.sqrt(self.prompts) * draw.normal(size=(self.steps, self.batch))
        per_response += np.sqrt(1 - self.prompts) * draw.normal(size=(self.steps, self.batch))
        drift = self.drift / np.sqrt(self.batch) * wandering(draw, self.steps, self.alike)
        risen = self.rise * np.asarray(SHAPES[self.shape](self.steps))
        scores = self.spread * (per_response + (drift + risen - risen[0])[:, None])
        errors = scores.std(axis=1, ddof=1)
        metrics = {
            "objective/scores": scores.mean(axis=1),
            "objective/scores_std": errors,
            "objective/scores_se": errors / np.sqrt(self.batch),
            "objective/kl_k3": risen**2 / 2 + np.linspace(0, 0.1, self.steps),
        }
        settings = {"ppo": {"steps": self.steps, "batch_size": self.batch, "mini_batch_size": self.batch}}
        config = RunConfig.model_validate(settings)
        return RunData(config, "finished", "", "cpu", self.steps, np.arange(1, self.steps + 1), metrics)


def many(count: int, seed: int = 0) -> Iterator[Simulated]:
    """Runs of all kinds: 8 to 60 steps of 8 to 64 responses, of which two in five learn nothing."""
    draw = np.random.default_rng(seed)
    for number in range(count):
        yield Simulated(
            rise=float(draw.choice(RISES)),
            steps=int(draw.integers(8, 61)),
            batch=int(draw.choice([8, 16, 32, 64])),
            shape=str(draw.choice(list(SHAPES))),
            spread=float(draw.choice([0.2, 0.5, 2.0])),
            prompts=float(draw.uniform(0, 0.6)),
            drift=float(draw.choice([0.0, 0.5])),
            alike=float(draw.choice([0.3, 0.6, 0.8])),
            seed=1000 * seed + number,
        )
