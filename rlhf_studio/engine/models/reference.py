"""The reference: the frozen model that the KL penalty compares the policy with.

It is one of three: a frozen model of its own; the policy's own base model with LoRA switched off; or the base model with a second,
frozen adapter. :meth:`Reference.active` switches LoRA off, or the adapters over, and back. :func:`load_reference` decides which of the
three it is, before LoRA is added to the policy.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import round_products
from rlhf_studio.engine.compute.sharding import local_part, shard_like
from rlhf_studio.engine.models.adapters import POLICY, REFERENCE, is_adapter
from rlhf_studio.engine.models.load_model import LoadedModel, adapter_base, check_same_tokens, fetch, load_causal_lm
from rlhf_studio.engine.models.policy import Policy, ResponseModel, plain_model
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.language import S_

FIELD = "model.reference"


class Reference:
    """The model that the policy is compared with.

    Args:
        policy: the policy before training.
        dtype: number format of the matrix products: a frozen copy of float32 weights keeps the matrices rounded to it
            (:func:`round_products`), so that both models round alike. float32 for a copy that moves or is sharded.
        model: the frozen model. None: the policy's own base model where it has LoRA, else a copy of the policy.
    """

    def __init__(self, policy: Policy, dtype: torch.dtype, model: PreTrainedModel | None = None):
        self._policy = policy
        self._copy: ResponseModel | None = None
        if model is None and not policy.has_lora:
            model = copy.deepcopy(plain_model(policy.model))
        if model is not None:
            self._copy = ResponseModel(round_products(model.requires_grad_(False), dtype)).eval()

    @contextlib.contextmanager
    def active(self) -> Iterator[ResponseModel]:
        """The reference model, for forward passes inside the block. Enter once per batch: switching adapters is slow.

        Without a frozen copy it is the policy itself: LoRA is switched off inside the block, or, where there is a reference adapter, that
        one is switched on instead of the policy's. Afterwards the policy's adapter is on again, and trainable.
        """
        if self._copy is not None:
            yield self._copy
            return
        model: Any = self._policy.model
        if REFERENCE not in model.peft_config:
            with model.disable_adapter():
                yield self._policy
            return
        model.base_model.set_adapter(REFERENCE, inference_mode=True)  # peft would make it trainable otherwise
        try:
            yield self._policy
        finally:
            model.base_model.set_adapter(POLICY)

    def enable_packing(self) -> None:
        """Let a frozen copy take batches as packed rows, as the policy does."""
        if self._copy is not None:
            self._copy.enable_packing()

    @property
    def frozen_copy(self) -> PreTrainedModel | None:
        """The frozen model; None where the reference is the policy's own base."""
        return None if self._copy is None else plain_model(self._copy.model)

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Move the frozen copy's weights towards the policy's by ``rate``, 0 to 1: an exponential moving average."""
        assert self._copy is not None, "a reference that follows is a copy"
        with self._policy.merged():
            ours = {name.replace(".base_layer.", "."): weight for name, weight in plain_model(self._policy.model).named_parameters()}
            for name, parameter in self._copy.model.named_parameters():
                local_part(parameter).lerp_(local_part(ours[name]).to(parameter.dtype), rate)

    def weights(self) -> dict[str, Tensor]:
        """The frozen copy's own weights by name, for a checkpoint; empty without a copy."""
        return {} if self._copy is None else dict(self._copy.model.named_parameters())

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor]) -> None:
        """Copy saved weights back, bit for bit."""
        for name, parameter in self.weights().items():
            local_part(parameter).copy_(local_part(shard_like(weights[name], parameter)))


@dataclass(frozen=True)
class LoadedReference:
    """What was loaded for the reference. At most one of the first two is set; with neither, it is the policy itself before training.

    Attributes:
        model: a model of its own, to be kept frozen.
        adapter: folder of an adapter to be loaded beside the policy's own.
        notes: sentences for people.
    """

    model: PreTrainedModel | None = None
    adapter: Path | None = None
    notes: list[str] = field(default_factory=list)


def load_reference(config: RunConfig, policy: LoadedModel, report: OnProgress, options: dict[str, Any]) -> LoadedReference:
    """Load what ``model.reference`` names; ``policy`` is as it was loaded, before LoRA is added. Both have one number format.

    Raises :class:`ConfigError` naming ``model.reference`` for what cannot be loaded or does not fit the policy.
    """
    name, lora = config.model.reference, config.lora
    if not name:
        if not lora.enabled or (lora.off_is_start and not config.ppo.reference_ema):
            return LoadedReference()
        why = S_("it follows the policy") if config.ppo.reference_ema else S_("biases of the base learn too")
        why = S_(f"the {lora.init_lora_weights} start changes the base") if lora.changes_base else why
        note = S_(f"The reference is a frozen copy of the starting model, because {why}: this takes its memory once more.")
        return LoadedReference(copy.deepcopy(policy.model), notes=[note])
    folder = fetch(name, config.model.reference_revision, report, FIELD)
    if lora.enabled and lora.off_is_start and not config.ppo.reference_ema and not policy.merged and _is_on_policy(folder, config, report):
        return LoadedReference(adapter=folder, notes=[S_(f"The reference is the adapter {name}, on the policy's own base.")])
    loaded = load_causal_lm(name, config.model.reference_revision, policy.model.dtype, report, FIELD, options)
    check_same_tokens(name, loaded, policy, FIELD, S_("so their log-probabilities cannot be compared"), outputs=True)
    return LoadedReference(loaded.model, notes=[S_(f"The reference is {name}, kept beside the policy.")])


def _is_on_policy(folder: Path, config: RunConfig, report: OnProgress) -> bool:
    """Whether the folder holds a plain LoRA adapter whose base is the policy's model: then no second model is needed."""
    if not is_adapter(folder):
        return False
    base, revision = adapter_base(config.model.reference, folder, FIELD)
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if settings.get("bias", "none") != "none" or settings.get("modules_to_save"):
        return False
    policy = fetch(config.model.policy, config.model.revision, report, "model.policy")
    return fetch(base, revision, report, FIELD).resolve() == policy.resolve()
