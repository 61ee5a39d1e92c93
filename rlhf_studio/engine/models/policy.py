"""The policy with its value head, and the reference it is held to.

One forward pass through the trunk gives both the next-token logits and the values, unless the critic has a trunk of its own.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from rlhf_studio.engine.compute.device import placed
from rlhf_studio.engine.compute.packing import attending_within, pack, pack_rows
from rlhf_studio.engine.distributed.sharding import alike, part
from rlhf_studio.engine.models.adapters import reference_switched_on
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.kv_cache import new_cache
from rlhf_studio.engine.models.merging import merged_adapters
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.types import TokenBatch


def plain_model(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The transformers model itself, LoRA layers inside it or not."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def spread(x: Tensor, mask: Tensor) -> Tensor:
    """(N,) numbers, one per response token in the mask's order, to (B, T) with 0 behind the mask. Gradients pass through."""
    return torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_scatter(mask, x)


class _OutputReads:
    """Cuts down what a model's output layer reads, for the calling thread alone: lanes use one model at the same time.

    Args:
        layer: the output layer; it keeps a hook that does nothing outside of the block.
    """

    def __init__(self, layer: nn.Module):
        self._here = here = threading.local()

        def cut(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if getattr(here, "choose", None) is None:
                return None
            here.read.append(here.choose(inputs[0]))
            return here.read[0].unsqueeze(0), *inputs[1:]

        layer.register_forward_pre_hook(cut)

    @contextlib.contextmanager
    def __call__(self, choose: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
        """Inside, the layer reads ``choose(hidden)`` (N, H) instead of all hidden states (B, L, H), as a batch of one."""
        self._here.choose, self._here.read = choose, []
        try:
            yield self._here.read
        finally:
            self._here.choose, self._here.read = None, []


class ResponseModel(nn.Module):
    """A causal language model that is asked for its response tokens only.

    What the model's own output layer reads is cut down to the positions that are wanted, so that no logits are computed for
    prompts and padding, and whatever a family does to its logits afterwards still happens.

    Args:
        model: any causal LM of transformers, with or without LoRA.
    """

    def __init__(self, model: PreTrainedModel | PeftModel):
        super().__init__()
        self.model = model
        self.output_reads = _OutputReads(plain_model(model).get_output_embeddings())
        self.position_scheme = position_scheme_of(model)
        self.packs = False

    def pack_rows(self) -> None:
        """From now on read batches without their padding, where the model can."""
        self.packs = pack_rows(self.model)

    def forward(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and hidden states (N, H) that predict the N response tokens, in the order of ``batch.mask``."""
        layout = pack(batch) if self.packs else batch
        with self.output_reads(layout.predicting) as read, attending_within(layout):
            output = self.model(**self.position_scheme.of_inputs(layout.model_inputs()), use_cache=False)
        return output.logits.squeeze(0), read[0]  # a view: an index's backward pass would fill a copy

    def new_cache(self, room: int) -> Cache:
        """An empty key-value cache for :meth:`next_logits`, for up to ``room`` tokens."""
        return new_cache(self.model.config, room)

    @torch.no_grad()
    def next_logits(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
        """One decoding step: logits (B, V) and hidden states (B, H) after the last of ``ids`` (B, L); ``cache`` grows by L."""
        with self.output_reads(lambda hidden: hidden[:, -1]) as read:
            output = self.model(input_ids=ids, attention_mask=attention, position_ids=positions, past_key_values=cache, use_cache=True)
        return output.logits.squeeze(0), read[0]


class Policy(ResponseModel):
    """The model that learns, and the critic that learns beside it.

    Args:
        model: a causal LM, already wrapped with LoRA where wanted.
        value_head: linear layer from the policy's hidden size to 1; or, with ``critic``, from the critic's.
        critic: a trunk of its own for the values; None shares the policy's.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, value_head: nn.Linear, critic: Trunk | None = None):
        super().__init__(model)
        self.value_head, self.critic = value_head, critic
        self.eval()  # dropout stays off: the ratio of the first minibatch must be exactly 1

    @property
    def has_lora(self) -> bool:
        return isinstance(self.model, PeftModel)

    def pack_rows(self) -> None:
        super().pack_rows()
        if self.critic is not None:
            self.critic.packs = pack_rows(self.critic.model)

    def logits_and_values(self, batch: TokenBatch, *, detach_trunk: bool = False) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and float32 values (N,) of the N response tokens: the value of the state before each."""
        logits, hidden = self(batch)
        if self.critic is not None:
            hidden = self.critic(batch)
        elif detach_trunk:
            hidden = hidden.detach()
        return logits, self.values(hidden)

    def values(self, hidden: Tensor) -> Tensor:
        """The value head in float32, whatever the trunk's precision: (N, H) to (N,)."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.value_head(hidden.float()).squeeze(-1)

    def model_parameters(self) -> list[nn.Parameter]:
        """Trainable weights of the language model (or its adapters)."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Trainable weights of the critic: the value head, and the trunk when it has its own."""
        trunk = [] if self.critic is None else [parameter for parameter in self.critic.parameters() if parameter.requires_grad]
        return [*trunk, *self.value_head.parameters()]

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Inside, LoRA is added into the base weights: one matrix product per layer instead of three. For sampling only.

        The base weights themselves are put back afterwards, not subtracted back, so that nothing drifts.
        """
        with merged_adapters(self.model) if self.has_lora else contextlib.nullcontext():
            yield


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
            self._copy = ResponseModel(placed(model.requires_grad_(False), dtype)).eval()

    @contextlib.contextmanager
    def active(self) -> Iterator[ResponseModel]:
        """The reference model; with LoRA the adapters are switched inside the block. Enter once per batch: switching is slow."""
        if self._copy is not None:
            yield self._copy
        else:
            with reference_switched_on(self._policy.model):
                yield self._policy

    def pack_rows(self) -> None:
        """Let a frozen copy read batches without padding, as the policy does."""
        if self._copy is not None:
            self._copy.pack_rows()

    @property
    def frozen_copy(self) -> PreTrainedModel | None:
        """The frozen model, where it is one of its own."""
        return self._copy and self._copy.model

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Mix ``share`` of the policy into the frozen copy: an exponential moving average of its weights."""
        assert self._copy is not None, "a reference that follows is a copy"
        with self._policy.merged():
            ours = {name.replace(".base_layer.", "."): weight for name, weight in plain_model(self._policy.model).named_parameters()}
            for name, parameter in self._copy.model.named_parameters():
                part(parameter).lerp_(part(ours[name]).to(parameter.dtype), share)

    def weights(self) -> dict[str, Tensor]:
        """The frozen copy's own weights by name, for a checkpoint; empty without a copy."""
        return {} if self._copy is None else dict(self._copy.model.named_parameters())

    @torch.no_grad()
    def restore(self, weights: dict[str, Tensor]) -> None:
        """Copy saved weights back, bit for bit."""
        for name, parameter in self.weights().items():
            part(parameter).copy_(part(alike(weights[name], parameter)))
