"""From a configuration to a trainer: everything that must be loaded, in the order in which it can fail."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.compute.sharding import shard
from rlhf_studio.engine.ends import model_ends, sample_as, stop_ids
from rlhf_studio.engine.loop.models import Models, traced
from rlhf_studio.engine.loop.prompts import HeldOut, PromptStream, hold_out, prepare_prompts, read_held_out
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora, attach_reference, name_base
from rlhf_studio.engine.models.critic import load_critic
from rlhf_studio.engine.models.load_model import LoadedModel, load_causal_lm, load_options
from rlhf_studio.engine.models.merging import can_merge
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import LoadedReference, Reference, load_reference
from rlhf_studio.engine.rewards.kinds.python_function import begin_processes
from rlhf_studio.engine.rewards.scorer import Scorer, build_scorer
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.prompts import read_prompts
from rlhf_studio.inputs.prompts.prepare import Prepared
from rlhf_studio.language import S_


def build_trainer(
    config: RunConfig, compute: Compute, report: OnProgress, permissions: Permissions = NOTHING_ALLOWED
) -> tuple[Trainer, list[str]]:
    """Load everything that the configuration names. Returns the trainer and notes for people.

    ``permissions`` says which code and servers outside the program a reward may use.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    seed_everything(config.engine.seed)
    begun = begin_processes(config.reward.components, permissions)
    report("Reading the prompts", None)
    rows = read_prompts(config.data, tick=lambda text: report(S_(f"Reading the prompts: {text}"), None))
    eval_rows = read_held_out(config.data, report)
    # Weights that are trained stay float32 (autocast does the rest); a frozen base under LoRA takes the compute format.
    dtype, options = compute.dtype if config.lora.enabled else torch.float32, load_options(config, compute)
    loaded = load_causal_lm(config.model.policy, config.model.revision, dtype, report, options=options)
    prompts = prepare_prompts(rows, loaded.tokenizer, config, report)
    held_out = hold_out(prompts, eval_rows, loaded.tokenizer, config, report)
    start = load_reference(config, loaded, report, options)
    policy, reference = make_policy(config, compute, loaded, start, report)
    scorer = build_scorer(config.reward, compute, report, permissions, begun)
    report("Preparing to sample", None)
    models, notes = make_models(config, compute, policy, reference, scorer, loaded.tokenizer)
    sample_as(models.policy.model, config.generation, models.stop_ids)
    notes = [*_other_tokenizers(scorer, loaded.tokenizer), *notes]
    notes = [*loaded.notes, *start.notes, *prompts.notes(config.data), *held_out.notes, *notes]
    return make_trainer(models, prompts, held_out), notes + _few_prompts(config, len(prompts.ids) - len(held_out.aside))


def make_policy(
    config: RunConfig, compute: Compute, loaded: LoadedModel, start: LoadedReference, report: OnProgress
) -> tuple[Policy, Reference]:
    """The policy with its critic and adapters, and the reference that it is held to, where they are trained.

    ``loaded`` is the language model as it is before training, ``start`` what its reference is to be; the policy takes the model itself.
    Raises :class:`ConfigError` for settings that the model does not allow.
    """
    model = placed(loaded.model, compute.load_device)
    critic, head = load_critic(config, loaded, report)
    policy = Policy(with_lora(model, config, loaded, start), head, critic).to(compute.load_device)
    # A copy that moves would lose small steps in half precision; FSDP wants all weights of a block in one format.
    in_float32 = config.ppo.reference_ema or compute.ranks.sharded
    reference = Reference(policy, torch.float32 if in_float32 else compute.dtype, start.model and placed(start.model, compute.load_device))
    if config.model.gradient_checkpointing and not enable_gradient_checkpointing(policy):
        raise ConfigError([Problem("model.gradient_checkpointing", f"{config.model.policy} has no layers that can be computed again")])
    if config.ppo.reference_ema and policy.has_lora and not (can_merge(policy.model) and compute.dtype is torch.float32):
        needs = S_(
            "matrices and ordinary embeddings, no DoRA, no quantized or half-precision base, no adapted layer that shares its weights"
        )
        message = S_(f"a reference that follows needs plain LoRA on float32 weights: {needs}")
        raise ConfigError([Problem("ppo.reference_ema", message)])
    if compute.ranks.sharded:
        _shard(policy, reference, compute)
    if compute.device.type == "cpu" and not compute.ranks.sharded and not config.model.gradient_checkpointing:
        policy.enable_packing()
        reference.enable_packing()
    return policy, reference


def make_models(
    config: RunConfig,
    compute: Compute,
    policy: Policy,
    reference: Reference,
    scorer: Scorer,
    tokenizer: PreTrainedTokenizerBase,
    *,
    trace: bool = True,
) -> tuple[Models, list[str]]:
    """All models of a run, with the decoding step traced where that helps; and a note where a CPU has to do without.

    ``trace`` is off where others sample. Raises :class:`ConfigError` when there is no such stop token as the settings ask for.
    """
    step, notes = traced(policy, config, compute) if trace else (None, list[str]())
    ends = model_ends(policy.model, tokenizer, chat=config.data.chat_template)
    stops = stop_ids(config.generation, ends, policy.model)
    return Models(
        policy=policy,
        reference=reference,
        scorer=scorer,
        tokenizer=tokenizer,
        config=config,
        compute=compute,
        stop_ids=stops,
        ends=ends,
        pad_id=pad_id(tokenizer, policy.model),
        traced_step=step,
    ), notes


def make_trainer(models: Models, prompts: Prepared, held_out: HeldOut) -> Trainer:
    """A trainer at step 0."""
    config = models.config
    stream = PromptStream(
        prompts,
        pad_id=models.pad_id,
        shuffle=config.data.shuffle,
        seed=config.engine.seed,
        aside=held_out.aside,
        held_out=held_out.prompts,
    )
    return Trainer(config, models, stream, models.compute)


def seed_everything(seed: int) -> None:
    """Fix every global source of random numbers, in each process alike: whatever a library draws while models are built depends on it."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # all GPUs too


def with_lora(model: Any, config: RunConfig, loaded: LoadedModel, start: LoadedReference) -> Any:
    """The model with the adapters that the settings ask for, at their start; the model itself without LoRA."""
    if not config.lora.enabled:
        return model
    torch.manual_seed(config.engine.seed)  # peft draws the adapters' start from the global generator
    adapted = add_lora(model, config.lora)
    base_is_named = not (loaded.merged or config.lora.changes_base)
    name_base(adapted, config.model.policy if base_is_named else None, config.model.revision)
    if start.adapter is not None:
        attach_reference(adapted, start.adapter, config.model.reference, "model.reference")
    return adapted


def _shard(policy: Policy, reference: Reference, compute: Compute) -> None:
    """Split the weights of every model of a step over the ranks; the value head, one row of numbers, stays whole on each."""
    for model in (policy.model, policy.critic, reference.frozen_copy):
        if model is not None:
            shard(model, compute.ranks, compute.device, compute.dtype)
    if policy.value_head is not None:
        policy.value_head.to(compute.device)


def _other_tokenizers(scorer: Scorer, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    others = {model.name for _, model in scorer.reward_models() if not model.shares(tokenizer)}
    return [S_(f"{name} has another tokenizer than the policy: it reads each response as text, tokenised anew.") for name in sorted(others)]


def _few_prompts(config: RunConfig, prompts: int) -> list[str]:
    if prompts >= config.ppo.batch_size:
        return []
    return [S_(f"There are {prompts} prompts for a batch of {config.ppo.batch_size}: they repeat within each batch.")]


def pad_id(tokenizer: PreTrainedTokenizerBase, model: Any) -> int:
    """Any id that the model has a row for will do: masks come from lengths, and nothing reads what lies under them.

    A tokenizer's pad token may have no row: transformers adds one to some tokenizers that have none, Qwen 2's for example.
    """
    rows = len(model.get_input_embeddings().weight)
    return next((int(token) for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None and token < rows), 0)
