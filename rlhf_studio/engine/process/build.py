"""From a configuration to a trainer: everything that must be loaded, in the order in which it can fail."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RunConfig
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.distributed.sharding import shard
from rlhf_studio.engine.loop.prompts import PromptStream, hold_out, prepare_prompts, read_held_out
from rlhf_studio.engine.loop.rollout import Models
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora, attach_reference, name_base
from rlhf_studio.engine.models.critic import load_critic
from rlhf_studio.engine.models.load_model import LoadedModel, load_causal_lm, load_options
from rlhf_studio.engine.models.merging import can_merge
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import LoadedReference, Reference, load_reference
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.engine.sampling.traced_step import CannotTrace, TracedStep, trace_step
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.prompts import read_prompts


def build_trainer(
    config: RunConfig, compute: Compute, report: OnProgress, permissions: Permissions = NOTHING_ALLOWED
) -> tuple[Trainer, list[str]]:
    """Load everything that the configuration names. Returns the trainer and notes for people.

    ``permissions`` says which code and servers outside the program a reward may use.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    seed_everything(config.engine.seed)
    report("ForwardOutput the prompts", None)
    rows = read_prompts(config.data, tick=lambda text: report(f"ForwardOutput the prompts: {text}", None))
    eval_rows = read_held_out(config.data, report)
    # Weights that are trained stay float32 (autocast does the rest); a frozen base under LoRA takes the compute format.
    dtype, options = compute.dtype if config.lora.enabled else torch.float32, load_options(config, compute)
    loaded = load_causal_lm(config.model.policy, config.model.revision, dtype, report, options=options)
    prompts = prepare_prompts(rows, loaded.tokenizer, config, report)
    held_out = hold_out(prompts, eval_rows, loaded.tokenizer, config, report)
    held_to = load_reference(config, loaded, compute, report, options)
    model = placed(loaded.model, compute.load_device)
    critic, head = load_critic(config, loaded, report)
    policy = Policy(_with_lora(model, config, loaded, held_to), head, critic).to(compute.load_device)
    reference = Reference(policy, compute.dtype, held_to.model and placed(held_to.model, compute.load_device))
    if config.model.gradient_checkpointing and not enable_gradient_checkpointing(policy):
        raise ConfigError([Problem("model.gradient_checkpointing", f"{config.model.policy} has no layers that can be computed again")])
    if config.ppo.reference_ema and policy.has_lora and not can_merge(policy.model):
        needs = "matrices and ordinary embeddings, no DoRA, no quantized or half-precision base, no adapted layer that shares its weights"
        message = f"a reference that follows needs plain LoRA on float32 weights: {needs}"
        raise ConfigError([Problem("ppo.reference_ema", message)])
    if compute.ranks.sharded:
        _split(policy, reference, compute)
    if compute.device.type == "cpu" and not compute.ranks.sharded and not config.model.gradient_checkpointing:
        policy.enable_packing()
        reference.enable_packing()
    scorer = Scorer(config.reward, compute, report, permissions)
    step, step_notes = _recorded(policy, config, compute)
    models = Models(
        policy=policy,
        reference=reference,
        scorer=scorer,
        tokenizer=loaded.tokenizer,
        config=config,
        compute=compute,
        stop_id=stop_id(config, loaded),
        pad_id=pad_id(loaded),
        traced_step=step,
    )
    order = {"shuffle": config.data.shuffle, "seed": config.engine.seed}
    stream = PromptStream(prompts, pad_id=models.pad_id, **order, aside=held_out.aside, held_out=held_out.prompts)
    said = [*loaded.notes, *held_to.notes, *prompts.notes(config.data), *held_out.notes]
    notes = [*said, *step_notes, *_notes(config, len(prompts.ids) - len(held_out.aside))]
    return Trainer(config, models, stream, compute), notes


def seed_everything(seed: int) -> None:
    """Fix every global source of random numbers, in each process alike: whatever a library draws while models are built depends on it."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # all GPUs too


def _with_lora(model: Any, config: RunConfig, loaded: LoadedModel, held_to: LoadedReference) -> Any:
    if not config.lora.enabled:
        return model
    torch.manual_seed(config.engine.seed)  # peft draws the adapters' start from the global generator
    adapted = add_lora(model, config.lora)
    base_is_named = not (loaded.merged or config.lora.changes_base)
    name_base(adapted, config.model.policy if base_is_named else None, config.model.revision)
    if held_to.adapter is not None:
        attach_reference(adapted, held_to.adapter, config.model.reference, "model.reference")
    return adapted


def _split(policy: Policy, reference: Reference, compute: Compute) -> None:
    """Split every model that a step reads or trains over the processes; the value head, one row of numbers, stays whole in each."""
    for model in (policy.model, policy.critic, reference.frozen_copy):
        if model is not None:
            shard(model, compute.ranks, compute.device, compute.dtype)
    policy.value_head.to(compute.device)


def _recorded(policy: Policy, config: RunConfig, compute: Compute) -> tuple[TracedStep | None, list[str]]:
    """The policy's decoding step for lanes, and a note where a CPU has to do without."""
    if compute.device.type != "cpu" or compute.ranks.sharded or compute.dtype is not torch.float32:
        return None, []
    try:
        return trace_step(policy, config.generation), []
    except CannotTrace as error:
        return None, [f"Sampling goes through the model step by step, which is slower: {error}."]


def _notes(config: RunConfig, prompts: int) -> list[str]:
    notes = []
    if prompts < config.ppo.batch_size:
        notes.append(f"There are {prompts} prompts for a batch of {config.ppo.batch_size}: they repeat within each batch.")
    return notes


def stop_id(config: RunConfig, loaded: LoadedModel) -> int | None:
    """The token that ends a response. Raises :class:`ConfigError` when there is no such token."""
    wanted = config.generation.stop_token
    if wanted == "none":
        return None
    if wanted == "eos":
        if loaded.tokenizer.eos_token_id is None:
            raise ConfigError([Problem("generation.stop_token", "the tokenizer has no end token; use none or a token id")])
        return int(loaded.tokenizer.eos_token_id)
    size = loaded.model.get_input_embeddings().weight.shape[0]
    if int(wanted) >= size:
        raise ConfigError([Problem("generation.stop_token", f"{wanted} is outside the vocabulary of {size} tokens")])
    return int(wanted)


def pad_id(loaded: LoadedModel) -> int:
    """Any id will do: masks come from lengths, and nothing reads what lies under them."""
    tokenizer = loaded.tokenizer
    return next((int(token) for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None), 0)
