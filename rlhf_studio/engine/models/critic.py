"""The critic: a value head on the policy's own trunk, or on a separate trunk. And what a separate critic starts from."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_studio.config import RewardModelReward, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.packing import attention_for, enable_packing, pack
from rlhf_studio.engine.models.heads import HiddenHead
from rlhf_studio.engine.models.load_model import LoadedModel, check_same_tokens, load_causal_lm, load_reward_model
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.types import OnProgress, TokenBatch
from rlhf_studio.language import S_

WHY = S_("and a critic reads the policy's tokens; start as policy")


def make_value_head(hidden_size: int, init: str, seed: int) -> nn.Linear:
    """A linear layer from hidden states (H) to one value. ``zero`` predicts 0 everywhere; ``normal`` draws with variance 1 / (H + 1).

    ``seed`` is used for the head's weights only. Sources: Ziegler et al. 2019 (zero); Huang et al. 2024, arXiv:2403.17031 (normal).
    """
    head = nn.Linear(hidden_size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    if init == "normal":
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            head.weight.copy_(torch.randn(1, hidden_size, generator=generator) * (hidden_size + 1) ** -0.5)
    return head


class Trunk(nn.Module):
    """A transformer without its output layer, whose hidden states before each response token are used.

    Args:
        model: any decoder of transformers that returns ``last_hidden_state`` (B, L, H).
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model.float().requires_grad_(True)
        self.position_scheme = position_scheme_of(model)
        self.packs = False
        self.eval()  # dropout stays off, as in the policy

    def enable_packing(self) -> None:
        """From now on take batches as packed rows, where the model's family allows it."""
        self.packs = enable_packing(self.model)

    def forward(self, batch: TokenBatch | Tensor) -> Tensor:
        """Hidden states (N, H) of the states before the N response tokens, in the order of ``batch.mask``.

        For a row of token ids (1, L) instead of a batch: the model's plain hidden states (L, H).
        """
        if isinstance(batch, Tensor):
            hidden: Tensor = self.model(input_ids=batch).last_hidden_state
            return hidden[0]
        layout = pack(batch) if self.packs else batch
        with attention_for(layout):
            output = self.model(**self.position_scheme.of_inputs(layout.model_inputs()), use_cache=False)
        return layout.predicting(output.last_hidden_state)


def load_critic(config: RunConfig, policy: LoadedModel, report: OnProgress) -> tuple[Trunk | None, nn.Linear | None]:
    """The critic's own trunk (None when it shares the policy's) and its value head; two times None for a run without a critic.

    A separate critic starts as the reward model (its score head becomes the value head), as the policy, or as another model.
    ``policy`` is as it was loaded, before LoRA. Raises :class:`ConfigError` naming the critic's field for what cannot be used.
    """
    settings, init, seed = config.critic, config.model.value_head_init, config.engine.seed
    if not config.ppo.has_critic:
        return None, None
    if settings.kind == "shared":
        return None, make_value_head(_hidden_size(policy.model), init, seed)
    if settings.start == "reward_model":
        return _from_reward_model(config, policy, report)
    source = policy.model
    if settings.start == "model":
        loaded = load_causal_lm(settings.model, settings.revision, torch.float32, report, "critic.model")
        check_same_tokens(settings.model, loaded, policy, "critic.model", WHY)
        source = loaded.model
    return Trunk(copy.deepcopy(trunk_of(source))), make_value_head(_hidden_size(source), init, seed)


def trunk_of(model: PreTrainedModel) -> PreTrainedModel:
    """The model without its output layer."""
    trunk = model.base_model
    assert isinstance(trunk, PreTrainedModel)
    return trunk


def _hidden_size(model: PreTrainedModel) -> int:
    """Size of the hidden states that the output layer takes."""
    return int(model.get_output_embeddings().weight.shape[1])


def _from_reward_model(config: RunConfig, policy: LoadedModel, report: OnProgress) -> tuple[Trunk, nn.Linear]:
    """Huang et al. 2024, arXiv:2403.17031: the critic starts as the reward model, so that its first values are already scores."""
    index, component = next(
        ((index, part) for index, part in enumerate(config.reward.components) if isinstance(part, RewardModelReward)), (0, None)
    )
    if component is None:
        raise ConfigError([Problem("critic.start", "there is no reward model among the rewards; start the critic as policy or as a model")])
    loaded = load_reward_model(component.model, component.revision, component.label, torch.float32, report, f"reward.components.{index}")
    score = getattr(loaded.model, "score", None)
    if isinstance(score, HiddenHead):
        message = S_(f"the score head of {component.model} has a hidden layer, and a value head is one linear layer; start as policy")
        raise ConfigError([Problem("critic.start", message)])
    if not isinstance(score, nn.Linear):
        message = S_(f"{component.model} reads texts in both directions, so it would see tokens before they are written; start as policy")
        raise ConfigError([Problem("critic.start", message)])
    check_same_tokens(component.model, loaded, policy, "critic.start", WHY)
    head = nn.Linear(score.in_features, 1)
    with torch.no_grad():
        head.weight.copy_(component.weight * score.weight[loaded.label : loaded.label + 1])
        head.bias.copy_(component.weight * score.bias[loaded.label : loaded.label + 1] if score.bias is not None else torch.zeros(1))
    return Trunk(trunk_of(loaded.model)), head
