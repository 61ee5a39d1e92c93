"""Whether a run is stable in its first steps: the one rule of the engine, the doctor and the trial.

A rate that is too high shows at once: minibatches are left out, the policy runs away from its reference, or the loss rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log, nan

from rlhf_studio.config.run import RunConfig
from rlhf_studio.config.stages import StageConfig
from rlhf_studio.language import S_

AFTER_WARM_UP = 3
"""Steps at the full rate that still count as first ones. In the next ones a good run may pass 10 nats and come back: of the kept runs
(tests/analysis/stores) one of the recipe world-lora has 27 in step 5, and none that is healthy more than 2 up to step 3; a tenfold rate has
17 in step 2."""
KL_WITHOUT_TARGET = 10.0
"""Nats per answer: what good runs come to at their end (Huang et al. 2024, arXiv:2403.17031), and no good run passes in its first steps."""
KL_PER_TOKEN = 0.2
"""Nats: of long answers so much for each token."""
LOSS_TIMES = 2.0
"""Times the first step's loss: of minibatches of four examples, a stable run's loss may be half as large again by chance."""
LOSS_AT_CHANCE = {"reward_model": log(2), "dpo": log(2)}
"""Nats per pair of a model that cannot tell the two answers apart. A loss that was below it by chance may come back to it."""
GENTLER = 3.0
"""The factor by which a lower learning rate is lower, and a higher one higher."""
RULE = (
    f"up to the {AFTER_WARM_UP}rd step after the warm-up: a minibatch left out for its ratio or for a number that is not finite, or a KL "
    f"above its target (without an adaptive controller: above {KL_WITHOUT_TARGET:g} nats per answer and {KL_PER_TOKEN:g} per token); in "
    f"other stages a loss above {LOSS_TIMES:g} times that of the first step, and of chance"
)


@dataclass(frozen=True)
class EarlyStep:
    """What one step tells of stability.

    Attributes:
        left_out: minibatches, for their ratio or for a number that is not finite.
        kl: mean KL of the answers to the reference, nats per answer; NaN where there is none.
        length: mean tokens of an answer.
        loss, first_loss: of this step and of the first, in stages that learn from examples; NaN in PPO.
    """

    step: int
    left_out: int = 0
    kl: float = nan
    length: float = 0.0
    loss: float = nan
    first_loss: float = nan


def early_step(config: StageConfig, step: int, metrics: Mapping[str, float | None], left_out: int, first_loss: float = nan) -> EarlyStep:
    """What a step's metrics tell, with the number of minibatches that were left out and the loss of the first step."""
    known = {name: value for name, value in metrics.items() if value is not None}
    kl, length = known.get("objective/kl", nan), known.get("tokens/response_length", 0.0)
    return EarlyStep(step, left_out, kl, length, known.get(f"{config.stage}/loss", nan), first_loss)


def last_early_step(config: StageConfig) -> int:
    """The last step that the rule looks at; 0 for a stage in which nothing learns."""
    section = getattr(config, config.stage)
    if not hasattr(section, "warmup_steps"):
        return 0
    return int(max(section.warmup_steps, getattr(section, "critic_warmup_steps", 0))) + AFTER_WARM_UP


def unstable(config: StageConfig, step: EarlyStep) -> str:
    """Why a step shows that a run is not stable, a sentence without its full stop, in English; empty where it does not."""
    if step.step > last_early_step(config):
        return ""
    if step.left_out:
        one = S_(f"1 minibatch was left out in step {step.step}")
        return one if step.left_out == 1 else S_(f"{step.left_out} minibatches were left out in step {step.step}")
    limit = kl_limit(config, step.length)
    if isfinite(step.kl) and step.kl > limit:
        if _has_target(config):
            return S_(f"the KL was {step.kl:.3g} nats in step {step.step}; its target is {limit:.3g}")
        return S_(f"the KL was {step.kl:.3g} nats in step {step.step}; a stable start stays below {limit:.3g}")
    most = LOSS_TIMES * max(step.first_loss, LOSS_AT_CHANCE.get(config.stage, 0.0))
    if isfinite(step.loss) and isfinite(step.first_loss) and step.loss > most:
        return S_(f"the loss rose from {step.first_loss:.3g} in the first step to {step.loss:.3g} in step {step.step}")
    return ""


def kl_limit(config: StageConfig, length: float) -> float:
    """The KL that a run should not pass in its first steps, nats per answer of ``length`` tokens; infinity in stages without one."""
    if not isinstance(config, RunConfig):
        return float("inf")
    return config.ppo.kl_target if _has_target(config) else max(KL_WITHOUT_TARGET, KL_PER_TOKEN * length)


def _has_target(config: StageConfig) -> bool:
    return isinstance(config, RunConfig) and config.ppo.kl_controller == "adaptive"


def gentler(rate: float, usual: float | None = None) -> float:
    """A lower learning rate: a third, or the ``usual`` one where that is known and lower still."""
    third = float(f"{rate / GENTLER:.2g}")
    return min(third, usual or third)


def bolder(rate: float, usual: float | None = None) -> float:
    """A higher learning rate, at most 1: three times as much, or the ``usual`` one where that is known and higher still."""
    return min(1.0, max(float(f"{rate * GENTLER:.2g}"), usual or 0.0))
