"""Models that lessons look into: real architectures without weights, and a tiny language model whose weights are drawn once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from rlhf_studio.config import LoraConfig
from rlhf_studio.engine.models.adapters import POLICY, add_lora
from rlhf_studio.engine.models.policy import ResponseModel, to_padded
from rlhf_studio.engine.types import TokenBatch

ARCHITECTURES: dict[str, Callable[[], PreTrainedConfig]] = {
    "gpt2": GPT2Config,
    "gpt2_medium": lambda: GPT2Config(n_embd=1024, n_layer=24, n_head=16),
    "pythia_160m": lambda: GPTNeoXConfig(
        vocab_size=50304, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, tie_word_embeddings=False
    ),
    "llama_1b": lambda: LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
}
"""Shapes of published models, written out: nothing is downloaded."""
ATTENTION = {"gpt2": "c_attn", "gpt2_medium": "c_attn", "pythia_160m": "query_key_value", "llama_1b": "q_proj,k_proj,v_proj"}
"""What makes queries, keys and values: one layer, or three."""
WORDS = ("<end>", "the", "film", "is", "dull", "fine", "superb", ".")
"""The vocabulary of the tiny model."""
WIDTH = 6


@dataclass(frozen=True)
class Adapted:
    """A layer with an adapter: its name in the block, its inputs and outputs, and the numbers in its two factors."""

    name: str
    inputs: int
    outputs: int
    values: int


def without_weights(config: PreTrainedConfig) -> PreTrainedModel:
    """The model that a config describes, with shapes and no numbers."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


@cache
def all_parameters(name: str) -> int:
    """Weights of the whole model."""
    return sum(parameter.numel() for parameter in without_weights(ARCHITECTURES[name]()).parameters())


@cache
def adapted_layers(name: str, targets: str, rank: int) -> tuple[Adapted, ...]:
    """The layers of one block of the model to which the engine adds an adapter."""
    config = ARCHITECTURES[name]()
    config.num_hidden_layers = 1
    adapted = add_lora(without_weights(config), LoraConfig(enabled=True, r=rank, target_modules=targets))
    layers = []
    for path, layer in adapted.named_modules():
        if isinstance(layer, LoraLayer):
            down, up = factors(layer)
            values = sum(factor.numel() for factor in (down, up) if factor.requires_grad)
            layers.append(Adapted(".".join(path.split(".")[-2:]), down.shape[1], up.shape[0], values))
    return tuple(layers)


@cache
def _tiny() -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=16, n_embd=WIDTH, n_layer=1, n_head=1, initializer_range=0.5, bos_token_id=0, eos_token_id=0
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = GPT2LMHeadModel(config)
    model.eval().double().requires_grad_(False)
    return model


def tiny_model() -> GPT2LMHeadModel:
    """A language model over :data:`WORDS`, one block, in float64. A copy: change it as you like."""
    return copy.deepcopy(_tiny())


def adapt(model: PreTrainedModel, settings: LoraConfig) -> PeftModel:
    """The model with adapters at their start, as the engine adds them; what is drawn for them has a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return add_lora(model, settings)


@cache
def _adapted(rank: int, alpha: float, targets: str) -> PeftModel:
    return adapt(tiny_model(), LoraConfig(enabled=True, r=rank, alpha=alpha, target_modules=targets)).double()


def tiny_adapted(rank: int, alpha: float, targets: str = "auto") -> PeftModel:
    """:func:`tiny_model` with adapters at their start. A copy."""
    return copy.deepcopy(_adapted(rank, alpha, targets))


def layers_of(model: nn.Module) -> list[Any]:
    """The layers that have adapters."""
    return [layer for layer in model.modules() if isinstance(layer, LoraLayer)]


def factors(layer: Any, adapter: str = POLICY) -> tuple[Tensor, Tensor]:
    """A (r, inputs) and B (outputs, r) of an adapter in a layer: the parameters themselves."""
    return layer.lora_A[adapter].weight, layer.lora_B[adapter].weight


@torch.no_grad()
def move(model: PeftModel, amount: float, adapter: str = POLICY, seed: int = 2) -> PeftModel:
    """Give every B of an adapter the values that training might give it: ``amount`` times numbers drawn with a fixed seed."""
    generator = torch.Generator().manual_seed(seed)
    for layer in layers_of(model):
        _, factor = factors(layer, adapter)
        factor.copy_(amount * torch.randn(factor.shape, generator=generator, dtype=torch.float64))
    return model


FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "gpt2": lambda: GPT2Config(vocab_size=len(WORDS), n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0),
    "llama": lambda: LlamaConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, eos_token_id=0
    ),
    "gpt_neox": lambda: GPTNeoXConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, eos_token_id=0
    ),
}
"""Tiny shapes of three families that name their parts differently."""


@cache
def _pair(family: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    config = FAMILIES[family]()
    config.num_labels, config.pad_token_id = 1, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = AutoModelForCausalLM.from_config(config), AutoModelForSequenceClassification.from_config(config)
    for model in made:
        model.eval()
    return made


def language_model_and_classifier(family: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A language model and a classifier with one score, of one family and of different weights. Copies."""
    return copy.deepcopy(_pair(family))


class TwoModels(nn.Module):
    """Policy and critic in one module, the way TRL wraps them: each with a backbone of its own."""

    def __init__(self, policy: Any, value_model: Any):
        super().__init__()
        self.policy, self.value_model = policy, value_model
        self.critic_backbone = getattr(value_model, value_model.base_model_prefix)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, L, V) and values (B, L, 1)."""
        hidden = self.critic_backbone(input_ids=ids).last_hidden_state
        return self.policy(input_ids=ids).logits, self.value_model.score(hidden)


def sentence(prompt: list[int], response: list[int]) -> TokenBatch:
    """One prompt and its response, as the engine takes them."""
    ids, answer = torch.tensor([prompt]), torch.tensor([response])
    return TokenBatch(ids, torch.ones_like(ids).bool(), answer, torch.ones_like(answer).bool())


def response_logits(model: ResponseModel, batch: TokenBatch) -> Tensor:
    """(B, T, V) logits that predict each response token."""
    logits, _ = model(batch)
    return torch.stack([to_padded(column, batch.mask) for column in logits.unbind(dim=-1)], dim=-1)
