"""Settings that a fork could try, as a remedy for a finding."""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.config import PPOConfig, RunConfig, StageConfig, stability
from rlhf_studio.config.usual import optimisation, other_rate, stronger_pull, usual_rate


def calmer(run: RecordedRun) -> dict[str, Any]:
    """A lower learning rate: see :func:`~rlhf_studio.config.stability.gentler`."""
    return other_rate(run.in_force, run.weights, stability.gentler, run.examples)


def bolder(run: RecordedRun) -> dict[str, Any]:
    """A higher learning rate: see :func:`~rlhf_studio.config.stability.bolder`."""
    return other_rate(run.in_force, run.weights, stability.bolder, run.examples)


def tighter(run: RunData) -> dict[str, Any]:
    """A stronger pull to the reference: see :func:`~rlhf_studio.config.usual.stronger_pull`.

    With a learning rate far above the usual one, that is what has to change first.
    """
    config, ppo = run.in_force, run.in_force.ppo
    usual = usual_rate(config, run.weights)
    if usual and ppo.learning_rate > stability.GENTLER * usual.rate:
        return calmer(run)
    return stronger_pull(config)


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
