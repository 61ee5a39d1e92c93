"""What cannot be trained in leases of a minute. Asked before a lease, so that it costs nobody's quota."""

from __future__ import annotations

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError

MOST_PARAMETERS = 500_000_000 * 1.1
"""What is sold as 0.5 B has up to 494 million weights, and some models of that class a little more."""


def refusal(config: StageConfig) -> str:
    """Why this run cannot be trained on ZeroGPU, as a sentence; empty when it can."""
    if not isinstance(config, RunConfig):
        return "On ZeroGPU only PPO is trained. Train this stage on another machine."
    if config.engine.processes != 1 or config.engine.accelerate_config:
        return "On ZeroGPU a run has one process: set engine.processes to 1, without an accelerate configuration."
    if any(component.asks_people for component in config.reward.components):
        return "On ZeroGPU no run waits for people: a lease of a GPU lasts about a minute. Take another reward."
    try:
        parameters = check_causal_lm(config.model.policy, config.model.revision).parameters
    except ModelError as error:
        return str(error)
    if parameters and parameters > MOST_PARAMETERS:
        return f"{config.model.policy} has {parameters / 1e9:.1f} billion weights; on ZeroGPU a policy has at most half a billion."
    return ""
