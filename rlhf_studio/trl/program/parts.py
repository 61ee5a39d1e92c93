"""From models in memory to the engine's trainer. They are trained in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import Compute, choose_compute, moved, placed
from rlhf_studio.engine.compute.fused import fuse_activations
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.loop.build import make_models
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import name_base
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.policy import Policy, plain_model
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.inputs.families import family_problem
from rlhf_studio.inputs.prompts.prepare import Prepared
from rlhf_studio.trl.program.settings import MEMORY, name_of


@dataclass(frozen=True)
class Parts:
    """What a program gives to its trainer.

    Attributes:
        model: the language model, inside a ``PeftModel`` where adapters are trained.
        reference: the model to compare it with; None: its base with adapters, else a copy.
        value_head: from hidden states (N, H) to values (N, 1).
        critic: the trunk whose hidden states the head reads; None: the model's own.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    reference: Any
    value_head: nn.Linear
    critic: PreTrainedModel | None = None

    def settings(self) -> dict[str, dict[str, Any]]:
        """The sections of the settings that say which models these are."""
        plain, sections = plain_model(self.model), dict[str, dict[str, Any]]()
        policy, reference = name_of(plain), name_of(self.reference) if self.reference is not None else ""
        sections["model"] = {"policy": policy, "reference": "" if reference in (policy, MEMORY) else reference}
        if self.critic is not None:
            critic = name_of(self.critic)
            start = {"start": "policy"} if critic in (policy, MEMORY) else {"start": "model", "model": critic}
            sections["critic"] = {"kind": "separate", **start}
        if isinstance(self.model, PeftModel):
            sections["lora"] = _lora(self.model)
        return sections


def engine_trainer(parts: Parts, config: RunConfig, components: Sequence[Component], *, samples: bool) -> tuple[Trainer, list[str]]:
    """The engine's trainer, and notes for people; ``samples``: whether the engine draws the responses.

    Raises ValueError for a model that cannot be trained here, and :class:`ConfigError` for settings that this machine does not allow.
    """
    plain = plain_model(parts.model)
    if problem := family_problem(plain.config.model_type, type(plain).__name__):
        raise ValueError(f"the model {problem}")
    compute = choose_compute(config)
    policy, reference = _policy_and_reference(parts, config, compute)
    if parts.reference is not None:  # which weights it has is the program's affair: the KL need not begin at 0
        config = config.model_copy(update={"model": config.model.model_copy(update={"reference": f"reference {MEMORY}"})})
    scorer = Scorer(config.reward, components, compute.ranks)
    models, notes = make_models(config, compute, policy, reference, scorer, parts.tokenizer, trace=samples)
    return Trainer(config, models, stream_of([[models.pad_id]], models.pad_id, parts.tokenizer), compute), notes


def learn_with(trainer: Trainer, optimizer: Any) -> None:
    """Learn with a program's own optimizer, at its own rates. Raises ValueError for what is none."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"PPOTrainer: the optimizer is a {type(optimizer).__name__}; give one of torch.optim")
    keep_rates(optimizer)
    trainer.updater.optimizer = optimizer  # type: ignore[assignment]
    trainer.updater.gradients.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]


def keep_rates(optimizer: torch.optim.Optimizer) -> None:
    """Take the learning rates as they are now for the full ones: the engine's own schedule is constant then."""
    for group in optimizer.param_groups:
        group["full_lr"] = group["lr"]


def stream_of(ids: list[list[int]], pad: int, tokenizer: PreTrainedTokenizerBase) -> PromptStream:
    """Prompts as the engine's checks read them."""
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    prepared = Prepared(texts, ids, [len(row) for row in ids], None, Counter())
    return PromptStream(prepared, pad_id=pad, shuffle=False, seed=0)


def _policy_and_reference(parts: Parts, config: RunConfig, compute: Compute) -> tuple[Policy, Reference]:
    model = parts.model
    if not isinstance(model, PeftModel) and not getattr(model, "is_quantized", False):
        moved(model, torch.float32)  # weights that are trained stay float32; autocast does the rest
    fuse_activations(plain_model(model))
    placed(plain_model(model), compute.device)
    if isinstance(model, PeftModel):
        placed(model, compute.device)  # type: ignore[arg-type]
        base = name_of(plain_model(model))
        name_base(model, None if base == MEMORY else base, config.model.revision)
    critic = None if parts.critic is None else Trunk(parts.critic)
    policy = Policy(model.eval(), parts.value_head.float(), critic).to(compute.device)
    frozen = parts.reference
    if frozen is not None and not getattr(frozen, "is_quantized", False):
        frozen = moved(placed(frozen, compute.device), torch.float32)  # rounded again as the policy's products are
    reference = Reference(policy, compute.dtype, frozen)
    if config.model.gradient_checkpointing and not enable_gradient_checkpointing(policy):
        raise ValueError(f"gradient_checkpointing: {name_of(model)} has no layers that can be computed again")
    if compute.device.type == "cpu" and not config.model.gradient_checkpointing:
        policy.enable_packing()
        reference.enable_packing()
    return policy, reference


def _lora(model: PeftModel) -> dict[str, Any]:
    settings: Any = model.peft_config["default"]
    modules = settings.target_modules
    names = ["auto"] if modules in (None, "all-linear") else [modules] if isinstance(modules, str) else sorted(modules)
    return {
        **{"enabled": True, "r": settings.r, "alpha": float(settings.lora_alpha), "dropout": settings.lora_dropout},
        **{"target_modules": ",".join(names), "bias": settings.bias, "use_rslora": settings.use_rslora, "use_dora": settings.use_dora},
    }
