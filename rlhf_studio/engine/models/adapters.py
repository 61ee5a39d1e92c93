"""LoRA: adding adapters to a model, merging adapters that were trained before, and saving adapters so that other programs can load them.

Traps of peft, and how the engine avoids them:

- A model with its adapters switched off is the starting model only if no bias is trained and the adapters' initialisation has not
  changed the base weights (``LoraConfig.off_is_start``). Otherwise the reference is a copy, made before LoRA is added.
- peft makes the adapter that is switched on trainable. The reference's adapter is switched on frozen (:meth:`Reference.active`).
- A saved adapter names its base model. When the base in memory is not the model of that name (an adapter was merged into it, or PiSSA or
  OLoRA has changed it), the base is saved once beside the checkpoints, and the adapter names that folder.
- The adapter of a bare parameter (the experts of a mixture) takes the place of that parameter while its layer computes, by means that
  know nothing of threads. Lanes, which share the model, go through such layers one at a time.
"""

from __future__ import annotations

import copy
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora.layer import Linear, ParamWrapper
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlhf_studio.config import LoraConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.models.merging import layers_that_share, merged_for_good
from rlhf_studio.inputs.families import BYPASSED, BYPASSING
from rlhf_studio.inputs.models.lora_targets import target_names
from rlhf_studio.inputs.trained import resolve

POLICY, REFERENCE = "default", "reference"
"""peft's names for the adapter that is trained, and for the reference's frozen adapter."""
STARTS: dict[str, Any] = {"default": True}  # our name of an initialisation -> peft's, where they differ
UNUSABLE = (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError)
"""What peft raises for adapters that are damaged or do not fit their base."""


def add_lora(model: PreTrainedModel, settings: LoraConfig, head: str | None = None) -> PeftModel:
    """Add trainable low-rank adapters to the model; the base weights are frozen.

    ``head`` names the layer of a sequence classifier that is trained whole and saved with the adapters; None for a language model.

    Raises :class:`ConfigError` for target layers that do not exist, or for which the chosen initialisation is not possible.
    """
    names = target_names(settings)
    transposed = any(isinstance(module, Conv1D) for module in model.modules())  # GPT-2 stores its matrices transposed
    if settings.init_lora_weights == "olora" and transposed:
        message = "olora does not work with this model's layers (GPT-2's Conv1D); use pissa or default"
        raise ConfigError([Problem("lora.init_lora_weights", message)])
    config = PeftLoraConfig(
        task_type="CAUSAL_LM" if head is None else "SEQ_CLS",
        modules_to_save=None if head is None else [head],
        r=settings.r,
        lora_alpha=settings.alpha,  # type: ignore[arg-type] # peft scales by any number, and annotates an int
        lora_dropout=settings.dropout,
        target_modules="all-linear" if names == ["auto"] else names,
        exclude_modules=_unsuitable(model, head) if names == ["auto"] else None,
        fan_in_fan_out=transposed,
        bias=settings.bias,
        use_rslora=settings.use_rslora,
        use_dora=settings.use_dora,
        init_lora_weights=STARTS.get(settings.init_lora_weights, settings.init_lora_weights),
    )
    try:
        adapted = get_peft_model(model, config, adapter_name=POLICY)
    except ValueError as error:
        raise ConfigError([Problem("lora.target_modules", str(error).splitlines()[0])]) from error
    except AttributeError as error:  # peft looks for the matrix of a layer that has none, or more than one
        message = f"{settings.init_lora_weights} does not work with all of these layers ({error}); use default"
        raise ConfigError([Problem("lora.init_lora_weights", f"{message}, or other lora.target_modules")]) from error
    shared = [name for name, layer in layers_that_share(adapted).items() if isinstance(layer, Linear)]  # peft starts embeddings at 0
    if settings.changes_base and shared:
        message = f"{settings.init_lora_weights} changes the weight of {shared[0]}, which another layer uses too; use default"
        raise ConfigError([Problem("lora.init_lora_weights", f"{message}, or other lora.target_modules")])
    _fill_ranks(adapted)
    config.init_lora_weights = True  # a saved adapter is loaded onto the base as it is now, not initialised again
    return _safe_for_lanes(adapted)


@torch.no_grad()
def _fill_ranks(model: PeftModel) -> None:
    """Give factors of fewer than r rows, which PiSSA and OLoRA make of a matrix with fewer, rows of zeros up to r: peft saves them as
    they are and then does not load them again.
    """
    for layer in model.modules():
        if not isinstance(layer, Linear):
            continue
        factors: Any = (layer.lora_A[POLICY], layer.lora_B[POLICY])
        first, second = (factor.weight for factor in factors)
        if (missing := layer.r[POLICY] - len(first)) > 0:
            first.data, second.data = pad(first.data, (0, 0, 0, missing)), pad(second.data, (0, missing))


@torch.no_grad()
def _unsuitable(model: PreTrainedModel, head: str | None) -> list[str] | None:
    """Names of linear layers that take no adapter: routers whose output is more than a matrix product, layers that are never called, and
    those of a head that is trained whole.
    """
    bypassed = BYPASSED if model.config.model_type in BYPASSING else ()
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    of_head = [] if head is None else [name for name, _ in layers if name == head or name.startswith(f"{head}.")]
    return [*of_head, *(name for name, layer in layers if name.rsplit(".", 1)[-1] in bypassed or not _is_plain(layer))] or None


def _is_plain(layer: nn.Linear) -> bool:
    """Whether the layer's output for (1, in) is one tensor (1, out). Only classes from transformers' model files are tried: some differ."""
    if ".models." not in type(layer).__module__:
        return True
    try:
        output = layer(torch.zeros(1, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device))
    except RuntimeError:  # the layer does not take this shape
        return False
    return isinstance(output, Tensor) and output.shape == (1, layer.out_features)


def name_base(model: PeftModel, name: str | None, revision: str) -> None:
    """Write the base model's name into the adapter's settings. None: the base exists only in memory (see :func:`save_model`)."""
    config = model.peft_config[POLICY]
    config.base_model_name_or_path, config.revision = None, None
    if name is not None:
        path = Path(resolve(name))
        config.base_model_name_or_path = str(path.resolve()) if path.is_dir() else name
        config.revision = None if path.is_dir() else revision


def is_adapter(folder: Path) -> bool:
    """Whether transformers would load the folder as an adapter. It does so even when the folder also holds a full model."""
    return (folder / "adapter_config.json").is_file()


def merge_adapter(base: PreTrainedModel, folder: Path, name: str, field: str) -> PreTrainedModel:
    """``base`` with the adapter in ``folder`` added into its weights. Raises :class:`ConfigError` naming ``field`` if they do not fit."""
    adapted = _on_base(lambda: PeftModel.from_pretrained(base, folder), name, field)
    merged: PreTrainedModel = _on_base(lambda: merged_for_good(adapted), name, field)
    return merged.requires_grad_(True)


def load_adapter(base: PreTrainedModel, folder: Path, name: str, field: str) -> PeftModel:
    """``base`` with the adapter in ``folder`` switched on, frozen. Raises :class:`ConfigError` naming ``field`` if they do not fit."""
    adapted: PeftModel = _on_base(lambda: PeftModel.from_pretrained(base, folder, adapter_name=POLICY), name, field)
    return _safe_for_lanes(adapted)


_ONE_AT_A_TIME = threading.RLock()  # one for all: torch keeps the parameters that were replaced in one table


def _safe_for_lanes(model: PeftModel) -> PeftModel:
    """Let one thread at a time compute a layer whose bare parameters have adapters."""
    for module in model.modules():
        if isinstance(module, ParamWrapper):
            module.register_forward_pre_hook(_take_turn)
            module.register_forward_hook(_end_turn, always_call=True)
    return model


def _take_turn(module: nn.Module, inputs: Any) -> None:
    _ONE_AT_A_TIME.acquire()


def _end_turn(module: nn.Module, inputs: Any, output: Any) -> None:
    _ONE_AT_A_TIME.release()


def sharing(model: PreTrainedModel) -> Any:
    """A copy of the model whose parameters are its own, but lie in the same memory as long as nobody writes into them."""
    if getattr(model, "is_quantized", False):  # packed weights carry more than a tensor
        return copy.deepcopy(model)
    parameters = {id(parameter): nn.Parameter(parameter.data, requires_grad=False) for parameter in model.parameters()}
    return copy.deepcopy(model, memo=dict(parameters))


def attach_reference(model: PeftModel, folder: Path, name: str, field: str) -> None:
    """Load the adapter in ``folder`` beside the trained one, frozen. Raises :class:`ConfigError` naming ``field`` if it does not fit."""
    _on_base(lambda: model.load_adapter(folder, REFERENCE, is_trainable=False), name, field)


def _on_base(load: Callable[[], Any], name: str, field: str) -> Any:
    try:
        return load()
    except UNUSABLE as error:
        cause = " ".join(str(error).split())[:300]
        raise ConfigError([Problem(field, f"the adapter {name} does not fit its base model: {cause}")]) from error


def save_model(model: PreTrainedModel | PeftModel, folder: Path, base_folder: Path, weights: dict[str, Tensor] | None = None) -> None:
    """Write an ordinary transformers or peft folder.

    An adapter's base that exists only in memory is written to ``base_folder``, once; it never changes.
    ``weights``: the full state dict, where the model's own weights are sharded.
    """
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder, state_dict=weights)
        return
    config = model.peft_config[POLICY]
    if config.base_model_name_or_path is None:
        if not base_folder.exists():
            _save_base(model, base_folder, weights)
        config.base_model_name_or_path = str(base_folder.resolve())
    model.save_pretrained(str(folder), selected_adapters=[POLICY], save_embedding_layers=False, state_dict=weights)
    if sampling := vars(model).get("generation_config"):  # the run's, see sample_as; peft does not save it
        sampling.save_pretrained(folder)


def saves_everything(model: PreTrainedModel | PeftModel, base_folder: Path) -> bool:
    """Whether :func:`save_model` needs all weights. It needs the adapter's only when the base is saved already."""
    return not isinstance(model, PeftModel) or (model.peft_config[POLICY].base_model_name_or_path is None and not base_folder.exists())


def adapter_weights(model: PreTrainedModel | PeftModel) -> dict[str, Tensor]:
    """The trained adapter's state dict, under the names in which it is saved. The tensors are the model's own, not copies."""
    # "auto" instead of False would connect to the hub
    weights: dict[str, Tensor] = get_peft_model_state_dict(model, adapter_name=POLICY, save_embedding_layers=False)
    return weights


def _save_base(model: PeftModel, folder: Path, weights: dict[str, Tensor] | None) -> None:
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    everything = model.state_dict() if weights is None else weights
    base = {
        name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".original_module.", "."): tensor
        for name, tensor in everything.items()
        if ".lora_" not in name and ".modules_to_save." not in name
    }
    plain: Any = model.get_base_model()
    plain.save_pretrained(temporary, state_dict=base)
    os.replace(temporary, folder)
