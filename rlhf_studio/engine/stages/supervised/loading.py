"""The model that a supervised stage trains: with its weights or with new random ones, and with LoRA if the settings ask for it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.config import DPORunConfig, SFTRunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.compute.fused import fuse_activations
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.ends import model_ends, sample_as, stop_ids
from rlhf_studio.engine.models.adapters import add_lora, name_base
from rlhf_studio.engine.models.load_model import UNUSABLE, LoadedModel, fetch, load_causal_lm, load_options, load_tokenizer
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.ends import Ends
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Learner:
    """A causal language model, ready to be trained.

    Attributes:
        model: with its adapters where LoRA is on; its trained weights are float32.
        start: a frozen copy of the model before LoRA. Only DPO needs it, and only if switching the adapters off does not give that model.
        notes: sentences for people.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    notes: list[str]
    start: Any | None = None


def load_learner(config: SFTRunConfig | DPORunConfig, compute: Compute, report: OnProgress) -> Learner:
    """The policy of a supervised stage on its device. Raises :class:`ConfigError` for what cannot be loaded or does not fit together."""
    # Weights that are trained stay float32 (autocast does the rest); a frozen base under LoRA takes the compute format.
    dtype = compute.dtype if config.lora.enabled else torch.float32
    if isinstance(config, SFTRunConfig) and config.model.fresh:
        loaded = draw_model(config.model.policy, config.model.revision, config.engine.seed, dtype, report)
    else:
        loaded = load_causal_lm(config.model.policy, config.model.revision, dtype, report, options=load_options(config, compute))
    model: PreTrainedModel | PeftModel = placed(loaded.model, compute.load_device)
    start = None
    if isinstance(config, DPORunConfig) and not config.model.reference and config.lora.enabled and not config.lora.off_is_start:
        start = copy.deepcopy(model).requires_grad_(False)
    if config.lora.enabled:
        torch.manual_seed(config.engine.seed)  # peft draws the adapters' start from the global generator
        model = adapted = add_lora(loaded.model, config.lora)
        in_memory = loaded.merged or config.lora.changes_base or getattr(config.model, "fresh", False)
        name_base(adapted, None if in_memory else config.model.policy, config.model.revision)
    if config.model.gradient_checkpointing and not enable_gradient_checkpointing(ResponseModel(model)):
        raise ConfigError([Problem("model.gradient_checkpointing", f"{config.model.policy} has no layers that can be computed again")])
    return Learner(model.eval(), loaded.tokenizer, list(loaded.notes), start)


def ends_in_training(config: SFTRunConfig | DPORunConfig, learner: Learner) -> tuple[Ends, tuple[int, ...]]:
    """(the model's end tokens, the tokens at which answers end), as they are saved with it. Raises :class:`ConfigError` for a wrong one."""
    ends = model_ends(learner.model, learner.tokenizer, chat=config.data.chat_template)
    stops = stop_ids(config.generation, ends, learner.model)
    sample_as(learner.model, config.generation, stops)
    return ends, stops


def draw_model(name: str, revision: str, seed: int, dtype: torch.dtype, report: OnProgress) -> LoadedModel:
    """A model of the shape that a config.json gives, with new weights drawn by the seed; and its tokenizer. Raises :class:`ConfigError`."""
    folder = fetch(name, revision, report, "model.policy", weights=False)
    report(S_(f"Drawing new weights in the shape of {name}"), None)
    try:
        shape = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(shape, dtype=dtype, trust_remote_code=False)
        tokenizer = load_tokenizer(folder)
    except UNUSABLE as error:
        raise ConfigError(
            [Problem("model.policy", f"cannot draw a model in the shape of {name}: {' '.join(str(error).split())[:300]}")]
        ) from error
    fuse_activations(model)
    return LoadedModel(model.eval(), tokenizer, [S_(f"The weights are new: only the shape and the tokenizer of {name} were taken over.")])
