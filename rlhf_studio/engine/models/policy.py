"""A causal LM that computes logits for response tokens only, and the policy: that model with its value head.

One forward pass through the trunk gives both the next-token logits and the values, unless the critic has a trunk of its own.

Shapes: B episodes, T longest response, L tokens of a row, N response tokens of the whole batch, H hidden size, V vocabulary.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from rlhf_studio.engine.compute.packing import attention_for, enable_packing, pack
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.kv_cache import new_cache
from rlhf_studio.engine.models.merging import merged_adapters
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.types import TokenBatch


def plain_model(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model inside peft's wrapper; its layers keep their LoRA. A model without LoRA as it is."""
    plain: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    return cast(PreTrainedModel, plain)


def to_padded(x: Tensor, mask: Tensor) -> Tensor:
    """(N,) numbers, one per True entry of ``mask`` (B, T) in its order, to (B, T) with 0 where the mask is False. Keeps gradients."""
    return torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_scatter(mask, x)


class OutputSelector:
    """Lets a model's output layer compute logits for some positions only.

    The selection belongs to the calling thread: lanes use the same model at the same time.

    Args:
        layer: the output layer. It gets a forward pre-hook, which does nothing outside of the ``with`` block.
    """

    def __init__(self, layer: nn.Module):
        self._thread = thread = threading.local()

        def select_inputs(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if getattr(thread, "select", None) is None:
                return None
            thread.selected.append(thread.select(inputs[0]))
            return thread.selected[0].unsqueeze(0), *inputs[1:]

        layer.register_forward_pre_hook(select_inputs)

    @contextlib.contextmanager
    def __call__(self, select: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
        """Inside, the layer gets ``select(hidden)`` (N, H), as a batch of one, instead of all hidden states (B, L, H).

        The list that is yielded holds the selected states after the forward pass.
        """
        self._thread.select, self._thread.selected = select, []
        try:
            yield self._thread.selected
        finally:
            self._thread.select, self._thread.selected = None, []


class ResponseModel(nn.Module):
    """A causal language model that computes logits for response tokens only.

    The model's own output layer is called at the response's positions only, so no logits are computed for prompts and padding. What the
    model does to its logits afterwards (a cap, a scale) still happens.

    Args:
        model: any causal LM of transformers, with or without LoRA.
    """

    def __init__(self, model: PreTrainedModel | PeftModel):
        super().__init__()
        self.model = model
        self.select_outputs = OutputSelector(plain_model(model).get_output_embeddings())
        self.position_scheme = position_scheme_of(model)
        self.packs = False

    def enable_packing(self) -> None:
        """From now on compute batches as packed rows, without padding, where the model's family allows it."""
        self.packs = enable_packing(self.model)

    def forward(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and hidden states (N, H) that predict the N response tokens, in the order of ``batch.mask``."""
        layout = pack(batch) if self.packs else batch
        with self.select_outputs(layout.predicting) as selected, attention_for(layout):
            output = self.model(**self.position_scheme.of_inputs(layout.model_inputs()), use_cache=False)
        return output.logits.squeeze(0), selected[0]  # squeeze is a view; the backward pass of an index would fill a copy of the logits

    def new_cache(self, max_length: int) -> Cache:
        """An empty key-value cache for :meth:`next_logits`, for rows of up to ``max_length`` tokens."""
        return new_cache(self.model.config, max_length)

    @torch.no_grad()
    def next_logits(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
        """One decoding step: logits (B, V) and hidden states (B, H) at the last of ``ids`` (B, L); L tokens are added to ``cache``.

        ``attention`` is the mask (B, tokens in the cache + L) of what is attended to, ``positions`` the position ids (B, L) of ``ids``.
        """
        with self.select_outputs(lambda hidden: hidden[:, -1]) as selected:
            output = self.model(input_ids=ids, attention_mask=attention, position_ids=positions, past_key_values=cache, use_cache=True)
        return output.logits.squeeze(0), selected[0]


class Policy(ResponseModel):
    """The model that learns, and the critic that learns beside it, where there is one.

    Args:
        model: a causal LM; with LoRA, already wrapped.
        value_head: linear layer from the policy's hidden size to 1; or, with ``critic``, from the critic's. None: there is no critic.
        critic: a trunk of its own for the values; None: the value head uses the policy's hidden states.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, value_head: nn.Linear | None, critic: Trunk | None = None):
        super().__init__(model)
        self.value_head, self.critic = value_head, critic
        self.eval()  # dropout stays off: the ratio of the first minibatch must be exactly 1

    @property
    def has_lora(self) -> bool:
        return isinstance(self.model, PeftModel)

    @property
    def has_critic(self) -> bool:
        """Whether there are values at all."""
        return self.value_head is not None

    @property
    def values_while_sampling(self) -> bool:
        """Whether the pass that samples a token gives its value too: the critic uses the policy's own hidden states."""
        return self.value_head is not None and self.critic is None

    def enable_packing(self) -> None:
        super().enable_packing()
        if self.critic is not None:
            self.critic.enable_packing()

    def logits_and_values(self, batch: TokenBatch, *, detach_trunk: bool = False) -> tuple[Tensor, Tensor | None]:
        """Logits (N, V) and float32 values (N,) for the N response tokens; a token's value is that of the state before it.

        Without a critic the values are None, and nothing is computed for them.
        With ``detach_trunk`` the value loss trains the value head only, not the trunk that it shares with the policy.
        """
        logits, hidden = self(batch)
        if not self.has_critic:
            return logits, None
        if self.critic is not None:
            hidden = self.critic(batch)
        elif detach_trunk:
            hidden = hidden.detach()
        return logits, self.values(hidden)

    def values(self, hidden: Tensor) -> Tensor:
        """The value head in float32, whatever the trunk's precision: (N, H) to (N,). Only with a critic."""
        assert self.value_head is not None
        with torch.autocast(hidden.device.type, enabled=False):
            values: Tensor = self.value_head(hidden.float())
            return values.squeeze(-1)

    def model_parameters(self) -> list[nn.Parameter]:
        """Trainable weights of the language model (or its adapters)."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Trainable weights of the critic: the value head, and the trunk when it has its own. None without a critic."""
        trunk = [] if self.critic is None else [parameter for parameter in self.critic.parameters() if parameter.requires_grad]
        return [*trunk, *([] if self.value_head is None else self.value_head.parameters())]

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Inside, LoRA is added into the base weights: one matrix product per layer instead of three. For sampling only.

        Afterwards the original weights are back. ΔW is not subtracted again, which would leave a rounding error each time.
        """
        with merged_adapters(self.model) if self.has_lora else contextlib.nullcontext():
            yield
