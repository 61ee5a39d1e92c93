"""The policy with its value head, and the reference it is held to.

One forward pass through the trunk gives both the next-token logits and the values. The hidden states are caught where the
model's own output layer reads them, so that every model family works, whatever it does to its logits afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlhf_studio.config import ModelConfig
from rlhf_studio.engine.adapters import reference_switched_on
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.ppo.logprobs import token_logprobs_and_entropy
from rlhf_studio.ppo.masking import masked_select


def response_logprobs(logits: Tensor, batch: TokenBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token and the entropy there, both (B, T) float32; 0 behind the mask.

    Only the rows of ``logits`` (B, T, V) that the mask keeps are read: the others cost nothing and may hold anything.
    """
    mask = batch.mask
    chosen = token_logprobs_and_entropy(logits[mask][None].float(), batch.response_ids[mask][None], temperature)
    nothing = torch.zeros(mask.shape, device=mask.device)
    logprobs, entropy = (nothing.masked_scatter(mask, x) for x in chosen)
    return logprobs, entropy


class ResponseModel(nn.Module):
    """A causal language model that is asked for its response positions only.

    Args:
        model: any causal LM of transformers, with or without LoRA.
    """

    def __init__(self, model: PreTrainedModel | PeftModel):
        super().__init__()
        self.model = model
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        self._can_keep = "logits_to_keep" in inspect.signature(base.forward).parameters
        self._output_layer = [base.get_output_embeddings()]  # in a list: not a submodule twice

    def forward(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) and hidden states (B, T, H) that predict each response token."""
        ids, attention, positions = batch.model_inputs()
        length = batch.response_ids.shape[1]
        keep = {"logits_to_keep": length + 1} if self._can_keep else {}
        with self._catch_hidden() as caught:
            output = self.model(input_ids=ids, attention_mask=attention, position_ids=positions, use_cache=False, **keep)
        # The logits at position t predict token t + 1: start one before the response, leave out the last.
        return output.logits[:, -length - 1 : -1], caught[0][:, -length - 1 : -1]

    @torch.no_grad()
    def next_logits(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One decoding step: logits (B, V) after the last of ``ids`` (B, L), and the grown key-value cache."""
        keep = {"logits_to_keep": 1} if self._can_keep else {}
        output = self.model(
            input_ids=ids, attention_mask=attention.long(), position_ids=positions, past_key_values=cache, use_cache=True, **keep
        )
        return output.logits[:, -1], output.past_key_values

    @contextlib.contextmanager
    def _catch_hidden(self) -> Iterator[list[Tensor]]:
        caught: list[Tensor] = []
        hook = self._output_layer[0].register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        try:
            yield caught
        finally:
            hook.remove()


class Policy(ResponseModel):
    """The model that learns, with a linear value head on its last hidden states.

    Args:
        model: a causal LM, already wrapped with LoRA where wanted.
        settings: how the value head starts.
        seed: seeds the value head alone.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, settings: ModelConfig, seed: int):
        super().__init__(model)
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        hidden_size = base.get_output_embeddings().weight.shape[1]
        self.value_head = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        if settings.value_head_init == "normal":
            generator = torch.Generator().manual_seed(seed)
            std = (hidden_size + 1) ** -0.5
            with torch.no_grad():
                self.value_head.weight.copy_(torch.randn(1, hidden_size, generator=generator) * std)
        self.eval()  # dropout stays off: the ratio of the first minibatch must be exactly 1

    @property
    def has_lora(self) -> bool:
        return isinstance(self.model, PeftModel)

    def logits_and_values(self, batch: TokenBatch, *, detach_trunk: bool = False) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) and float32 values (B, T): the value of the state before each response token."""
        logits, hidden = self(batch)
        return logits, self.values(hidden.detach() if detach_trunk else hidden, batch.mask)

    def values(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Value head in float32, whatever the trunk's precision: (B, T, H) to (B, T). What the mask hides may be anything."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.value_head(masked_select(hidden, mask.unsqueeze(-1)).float()).squeeze(-1)

    def model_parameters(self) -> list[nn.Parameter]:
        """Trainable weights of the language model (or its adapters)."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]


class Reference:
    """What the policy is held to: a frozen model, or the policy itself with other adapters or none.

    Args:
        policy: as it is before training.
        dtype: number format of a frozen copy.
        model: the frozen model; None takes the policy's own base under LoRA, and a copy of the policy without.
    """

    def __init__(self, policy: Policy, dtype: torch.dtype, model: PreTrainedModel | None = None):
        self._policy = policy
        self._copy: ResponseModel | None = None
        if model is None and not policy.has_lora:
            model = copy.deepcopy(policy.model)
        if model is not None:
            self._copy = ResponseModel(model.requires_grad_(False).to(dtype)).eval()

    @contextlib.contextmanager
    def active(self) -> Iterator[ResponseModel]:
        """The reference model; with LoRA the adapters are switched inside the block. Enter once per batch: switching is slow."""
        if self._copy is not None:
            yield self._copy
        else:
            with reference_switched_on(self._policy.model):
                yield self._policy
