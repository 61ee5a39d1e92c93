"""Settings that a fork could try, as a remedy for a finding."""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.config import PPOConfig, RunConfig, StageConfig, stability
from rlhf_studio.config.usual import optimisation, other_rate, recipe_of, usual_rate

USUAL_KL_COEF = 0.05  # of InstructGPT-style recipes: Huang et al. 2024, arXiv:2403.17031


def calmer(run: RecordedRun) -> dict[str, Any]:
    """A lower learning rate: see :func:`~rlhf_studio.config.stability.gentler`."""
    return other_rate(run.in_force, run.weights, stability.gentler, run.examples)


def bolder(run: RecordedRun) -> dict[str, Any]:
    """A higher learning rate: see :func:`~rlhf_studio.config.stability.bolder`."""
    return other_rate(run.in_force, run.weights, stability.bolder, run.examples)


def tighter(run: RunData) -> dict[str, Any]:
    """A stronger pull to the reference: twice the KL coefficient; the recipe's or the usual one where there is none.

    With a learning rate far above the usual one, that is what has to change first.
    """
    config, ppo = run.in_force, run.in_force.ppo
    usual = usual_rate(config, run.weights)
    if usual and ppo.learning_rate > stability.GENTLER * usual.rate:
        return calmer(run)
    if ppo.kl_controller == "adaptive" and ppo.kl_coef > 0:
        return {"ppo.kl_target": ppo.kl_target / 2}
    if ppo.kl_coef == 0:
        return usual_price(config)
    return {"ppo.kl_coef": min(100.0, 2 * ppo.kl_coef)}


def usual_price(config: RunConfig) -> dict[str, Any]:
    """The recipe's KL coefficient; the usual one where it has none."""
    recipe = recipe_of(config)
    return {"ppo.kl_coef": recipe.ppo.kl_coef if recipe and recipe.ppo.kl_coef > 0 else USUAL_KL_COEF}


def neutral_sampling(config: RunConfig) -> dict[str, Any]:
    """Top-k and top-p switched off, where they are on."""
    changes: dict[str, Any] = {"generation.top_k": 0} if config.generation.top_k else {}
    return changes | ({"generation.top_p": 1.0} if config.generation.top_p < 1 else {})


def less_memory(config: StageConfig) -> dict[str, Any]:
    """Half the micro-batch, where it can be halved; else gradient checkpointing."""
    own = optimisation(config)
    if own is None:
        return {}
    section, settings = own
    minibatch = settings.mini_batch_size if isinstance(settings, PPOConfig) else 0  # which micro-batches must divide; 0: any size will do
    half = next((size for size in range(settings.micro_batch // 2, 0, -1) if minibatch % size == 0), 0)
    return {f"{section}.micro_batch_size": half} if half else {"model.gradient_checkpointing": True}
