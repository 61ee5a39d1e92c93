"""What the tests of the update share: gradients as one vector, and which weights moved."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.engine.loop.minibatch import MinibatchResult
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.objective import objective_settings
from rlhf_studio.engine.types import Rollout

LORA = {"enabled": True, "r": 4, "dropout": 0.3}
ALL = torch.arange(8)


def shift(trainer: Trainer, seed: int = 3, size: float = 0.05) -> None:
    """Move the policy away from the reference and from where its rollouts were sampled; the value head too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        policy = trainer.models.policy
        for parameter in [*policy.model_parameters(), *([] if policy.value_head is None else policy.value_head.parameters())]:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)


def gradients(trainer: Trainer, rollout: Rollout, index: Tensor = ALL, *, kl_coef: float = 0.1, warming_up: bool = False) -> Tensor:
    """The gradient of one minibatch as one long vector; zeros where a weight takes no part."""
    backward(trainer, rollout, index, kl_coef=kl_coef, warming_up=warming_up)
    return flat_gradient(trainer)


def flat_gradient(trainer: Trainer) -> Tensor:
    parameters = [parameter for group in trainer.updater.optimizer.param_groups for parameter in group["params"]]
    return torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in parameters])


def backward(trainer: Trainer, rollout: Rollout, index: Tensor = ALL, *, kl_coef: float = 0.1, warming_up: bool = False) -> MinibatchResult:
    """One minibatch's backward pass, from gradients of 0."""
    longest = trainer.config.generation.response_length
    objective = objective_settings(trainer.config.ppo, kl_coef, critic_only=warming_up, longest=longest)
    trainer.updater.optimizer.zero_grad()
    return trainer.updater.gradients.backward(rollout, index, objective, detach_trunk=warming_up)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.models.policy.state_dict().items()}


def changed(before: dict[str, Tensor], trainer: Trainer) -> set[str]:
    """The top-level parts of the policy that differ: model, value_head."""
    return {name.split(".")[0] for name, tensor in trainer.models.policy.state_dict().items() if not torch.equal(tensor, before[name])}


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())
