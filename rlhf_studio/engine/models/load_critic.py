"""Where a separate critic starts: the reward model (head included), the policy, or another model."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers import PreTrainedModel

from rlhf_studio.config import RewardModelReward, RunConfig
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.models.critic import Trunk, make_value_head
from rlhf_studio.engine.models.load_model import LoadedModel, check_same_tokens, load_causal_lm, load_reward_model
from rlhf_studio.engine.types import OnProgress

WHY = "and a critic reads the policy's tokens; start as policy"


def load_critic(config: RunConfig, policy: LoadedModel, report: OnProgress) -> tuple[Trunk | None, nn.Linear]:
    """The critic's own trunk (None: the policy's is shared) and its value head.

    ``policy`` is as it was loaded, before LoRA. Raises :class:`ConfigError` naming the critic's field for what cannot be used.
    """
    settings, init, seed = config.critic, config.model.value_head_init, config.engine.seed
    if settings.kind == "shared":
        return None, make_value_head(_width(policy.model), init, seed)
    if settings.start == "reward_model":
        return _from_reward_model(config, policy, report)
    source = policy.model
    if settings.start == "model":
        loaded = load_causal_lm(settings.model, settings.revision, torch.float32, report, "critic.model")
        check_same_tokens(settings.model, loaded, policy, "critic.model", WHY)
        source = loaded.model
    return Trunk(copy.deepcopy(source.base_model)), make_value_head(_width(source), init, seed)


def _width(model: PreTrainedModel) -> int:
    return int(model.get_output_embeddings().weight.shape[1])


def _from_reward_model(config: RunConfig, policy: LoadedModel, report: OnProgress) -> tuple[Trunk, nn.Linear]:
    """Huang et al. 2024, arXiv:2403.17031: the critic starts as the reward model, so that its first values are already scores."""
    place, component = next(
        ((place, part) for place, part in enumerate(config.reward.components) if isinstance(part, RewardModelReward)), (0, None)
    )
    if component is None:
        raise ConfigError([Problem("critic.start", "there is no reward model among the rewards; start the critic as policy or as a model")])
    loaded = load_reward_model(component.model, component.revision, component.label, torch.float32, report, f"reward.components.{place}")
    score = getattr(loaded.model, "score", None)
    if not isinstance(score, nn.Linear):
        message = f"{component.model} reads texts in both directions, so it would see tokens before they are written; start as policy"
        raise ConfigError([Problem("critic.start", message)])
    check_same_tokens(component.model, loaded, policy, "critic.start", WHY)
    head = nn.Linear(score.in_features, 1)
    with torch.no_grad():
        head.weight.copy_(component.weight * score.weight[loaded.label : loaded.label + 1])
        head.bias.copy_(component.weight * score.bias[loaded.label : loaded.label + 1] if score.bias is not None else torch.zeros(1))
    return Trunk(loaded.model.base_model), head
