"""Whether a separate critic can start from the model that the settings name."""

from __future__ import annotations

from rlhf_studio.config import RewardModelReward, RunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm, check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.language import S_


def check_critic(config: RunConfig, policy: ModelFacts | None, hub: Hub | None, problems: list[Problem]) -> ModelFacts | None:
    """Facts about the model that a separate critic starts from. What is wrong is added to ``problems``.

    None when the critic shares the policy's trunk, or when the model cannot be used.
    """
    if config.critic.kind == "shared":
        return None
    if config.critic.start == "policy":
        return policy
    field = "critic.start" if config.critic.start == "reward_model" else "critic.model"
    try:
        facts = _facts(config, hub)
    except ModelError as error:
        problems.append(Problem("critic.revision" if error.setting == "revision" else field, str(error)))
        return None
    if facts is None:
        message = (
            "there is no reward model among the rewards; start the critic as policy or as a model"
            if config.critic.start == "reward_model"
            else "name the model that the critic starts as, or start it as policy"
        )
        problems.append(Problem(field, message))
        return None
    problems.extend(_misfits(config, policy, facts, field))
    return facts


def _facts(config: RunConfig, hub: Hub | None) -> ModelFacts | None:
    if config.critic.start == "model":
        return check_causal_lm(config.critic.model, config.critic.revision, hub) if config.critic.model else None
    component = next((part for part in config.reward.components if isinstance(part, RewardModelReward)), None)
    return check_reward_model(component.model, component.revision, component.label, hub) if component else None


def _misfits(config: RunConfig, policy: ModelFacts | None, facts: ModelFacts, field: str) -> list[Problem]:
    problems = []
    own, others = facts.vocab_size, None if policy is None else policy.vocab_size
    if own is not None and others is not None and others > own:
        message = S_(f"this critic knows {own:,} tokens and the policy {others:,}; it must read the policy's tokens")
        problems.append(Problem(field, message))
    needed = config.generation.response_length + 1
    if facts.max_positions is not None and facts.max_positions < needed:
        message = S_(f"this critic has {facts.max_positions:,} positions, too few for responses of {needed - 1:,} tokens")
        problems.append(Problem(field, message))
    return problems
