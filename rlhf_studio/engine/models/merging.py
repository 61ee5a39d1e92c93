"""LoRA added into the base weights: while sampling, after which the base weights are bit for bit what they were; or for good.

While sampling, only layers where the adapter's effect is fully known are merged: a linear layer or an embedding of the ordinary kind, with
the two LoRA factors and no other parameter. A layer whose adapter has anything else, now or in a later version of peft, is not merged.
For good, peft merges all that it can, and one forward pass shows whether the model is still the same function.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import Embedding, Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlhf_studio.language import S_

FACTORS = {
    Linear: ("lora_A.{}.weight", "lora_B.{}.weight"),
    Embedding: ("lora_embedding_A.{}", "lora_embedding_B.{}"),
}
"""peft's layer classes that can be merged -> the names of all parameters that an adapter has in such a layer."""
TIED = "Model with `tie_word_embeddings=True`|Input and output embeddings are no longer tied"
SIGHT = 16  # tokens of the row by which two models are compared
SAME = 1e-4  # of the largest logit: thirty times what rounding in float32 does (see parity.tolerance)


@contextlib.contextmanager
def merged_adapters(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Inside, every plain LoRA layer computes with W + ΔW as one matrix; afterwards the original tensor W is back.

    Layers where this is not possible, or not the same function up to rounding, stay as they are: DoRA, quantised weights, trained biases,
    weights that another layer uses too, and adapters with unknown parameters. In bfloat16 the sum is rounded once. What a layer then
    computes is no further from float32 than what base and adapter give apart (docs/models.md), since there each result is rounded.
    """
    shared = _shared_weights(model)
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer) and _can_merge(layer, shared)]
    weights = [_base_weight(layer) for layer in layers]
    originals = [weight.data for weight in weights]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                weight.data = (weight.data.float() + sum(_delta_weight(layer, name) for name in _active(layer))).to(weight.dtype)
                layer._disable_adapters = True  # peft's own method would also switch off the adapters' gradients
        yield
    finally:
        for layer, weight, original in zip(layers, weights, originals, strict=True):
            weight.data = original
            layer._disable_adapters = False


def can_merge(model: PreTrainedModel | PeftModel) -> bool:
    """Whether :func:`merged_adapters` merges every layer that peft has changed."""
    shared = _shared_weights(model)
    changed: list[object] = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper)]
    return all(isinstance(layer, LoraLayer) and _can_merge(layer, shared) for layer in changed)


def merged_for_good(model: PeftModel) -> PreTrainedModel:
    """The plain model with its adapters added into the weights; ``model`` must not be used any more.

    A weight that another layer uses too, such as an output layer that is tied to the embedding, is given to the adapted layer as a copy of
    its own first: ΔW belongs to that layer alone. ``tie_word_embeddings`` of the model's settings is then False.

    Raises:
        ValueError: the merged model is not the same function, beyond rounding (this is measured for float32 weights), or cannot be saved.
    """
    before = logits_at_sight(model) if _is_float32(model) else None
    untied = _untie(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=TIED)  # peft advises to untie, which is done
        plain: PreTrainedModel = model.merge_and_unload(safe_merge=True)
    if untied:
        for config in (plain.config, plain.config.get_text_config()):
            config.tie_word_embeddings = False
        plain.all_tied_weights_keys = plain.get_expanded_tied_weights_keys(all_submodels=True)
        if _shared_weights(plain):
            raise ValueError(S_("other layers of this model share weights as well, and a model folder cannot say that only those do"))
    if before is not None:
        require_same(logits_at_sight(plain), before, S_("the merged model"))
    return plain


def _is_float32(model: PeftModel) -> bool:
    return all(parameter.dtype is torch.float32 for parameter in model.parameters())


@torch.no_grad()
def _untie(model: PeftModel) -> bool:
    """Give each adapted layer whose weight has another name too a copy of its own. Whether there was one."""
    layers = layers_that_share(model)
    for layer in layers.values():
        weight = _base_weight(layer)
        layer.get_base_layer().weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
    return bool(layers)


def layers_that_share(model: PeftModel) -> dict[str, LoraLayer]:
    """The adapted layers by name whose base weight another layer of the model uses too."""
    shared = _shared_weights(model)
    layers = {name: layer for name, layer in model.get_base_model().named_modules() if isinstance(layer, LoraLayer)}
    return {name: layer for name, layer in layers.items() if id(getattr(layer.get_base_layer(), "weight", None)) in shared}


@torch.no_grad()
def logits_at_sight(model: PreTrainedModel | PeftModel) -> Tensor:
    """(1, L, V) float32 logits of a row of tokens from all over the vocabulary: what tells one model from another."""
    embedding: Any = model.get_input_embeddings().weight
    ids = torch.linspace(0, len(embedding) - 1, SIGHT, device=embedding.device).long()[None]
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return logits.float()


def require_same(now: Tensor, before: Tensor, what: str) -> None:
    """Raises ValueError when logits differ by more than rounding explains in float32."""
    difference, most = float((now - before).abs().max()), SAME * max(1.0, float(before.abs().max()))
    if not difference <= most:  # NaN is no agreement either
        raise ValueError(S_(f"{what} gives logits that are {difference:.2g} off those of the adapter, and rounding explains {most:.2g}"))


def _shared_weights(model: nn.Module) -> set[int]:
    """``id`` of every parameter that the model has under more than one name: tied embeddings, blocks that use the same matrices."""
    counts = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {number for number, count in counts.items() if count > 1}


def _can_merge(layer: LoraLayer, shared: set[int]) -> bool:
    weight = getattr(layer.base_layer, "weight", None)
    plain_lora = _is_known(layer) and not layer.lora_variant and not layer.merged and not layer.disable_adapters
    plain_weight = isinstance(weight, nn.Parameter) and type(weight) is nn.Parameter and weight.dtype in (torch.float32, torch.bfloat16)
    return plain_lora and plain_weight and id(weight) not in shared


def _base_weight(layer: LoraLayer) -> nn.Parameter:
    """The weight of the layer that the adapter changes."""
    weight = layer.get_base_layer().weight
    assert isinstance(weight, nn.Parameter)
    return weight


def _delta_weight(layer: LoraLayer, adapter: str) -> Tensor:
    """ΔW of one adapter, float32."""
    plain: Any = layer  # each kind of layer that is merged has the method; their common class does not declare it
    change: Tensor = plain.get_delta_weight(adapter)
    return change.float()


def _is_known(layer: LoraLayer) -> bool:
    """Whether the layer computes f(W + ΔW), and each adapter has exactly two factors in it and no other parameter or buffer."""
    base = layer.base_layer
    if type(layer) is Embedding:
        ordinary = type(base) is nn.Embedding and base.max_norm is None  # others scale or renormalise their output
    else:
        ordinary = type(layer) is Linear and isinstance(base, nn.Linear | Conv1D)
    module: Any = layer
    tensors = itertools.chain(module.named_parameters(), module.named_buffers())
    names = {name for name, _ in tensors if not name.startswith("base_layer.")}
    return ordinary and names == {name.format(adapter) for adapter in layer.scaling for name in FACTORS[type(layer)]}


def _active(layer: LoraLayer) -> list[str]:
    """Names of the adapters that are switched on and have factors in this layer."""
    return [name for name in layer.active_adapters if name in layer.scaling]
