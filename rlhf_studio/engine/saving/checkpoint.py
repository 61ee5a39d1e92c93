"""The checkpoints of a PPO run. How any checkpoint is written is in :mod:`rlhf_studio.engine.saving.folder`.

The folder ``policy/`` inside is an ordinary transformers model or peft adapter, with its tokenizer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.compute.sharding import full_state_dict
from rlhf_studio.engine.loop.state import TrainingState, replay, restore
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import save_model, saves_everything
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.saving.folder import contiguous, restore_optimizer, save_state, write_checkpoint, write_snapshot
from rlhf_studio.engine.saving.weights import restore_weights
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.create import first_settings
from rlhf_studio.runs.paths import checkpoint_dir
from rlhf_studio.runs.reader import RunReader


@dataclass(frozen=True)
class WholeWeights:
    """The full weights of the policy and of a critic's trunk by name; None where the models themselves have them in full."""

    policy: dict[str, Tensor] | None = None
    critic: dict[str, Tensor] | None = None


def put_together(run_dir: Path, policy: Policy, ranks: Ranks, *, critic_too: bool = True) -> WholeWeights:
    """The full weights that :func:`save_checkpoint` needs where they are sharded: all ranks call this, rank 0 gets them.

    :func:`save_snapshot` needs no critic.
    """
    if not ranks.sharded:
        return WholeWeights()
    # Only rank 0 knows whether the base has been written.
    everything = ranks.broadcast(saves_everything(policy.model, run_dir / "base"))
    names = None if everything else [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    critic = None if policy.critic is None or not critic_too else full_state_dict(policy.critic.model, keep=ranks.is_main)
    return WholeWeights(full_state_dict(policy.model, names, keep=ranks.is_main), critic)


def save_checkpoint(
    run_dir: Path,
    step: int,
    policy: Policy,
    tokenizer: PreTrainedTokenizerBase,
    state: TrainingState,
    keep: int,
    weights: WholeWeights = WholeWeights(),
    best_by: str | None = None,
) -> Path:
    """Write the checkpoint of ``step`` and remove older ones beyond ``keep``, but for the best by the metric ``best_by``.

    Returns its folder.

    If the process dies at any moment of this, the earlier checkpoint or this one is complete.

    Raises:
        OSError: the disk is full or fails, or the run folder is gone; it is not made again.
    """

    def fill(folder: Path) -> None:
        save_model(policy.model, folder / "policy", run_dir / "base", weights.policy)
        tokenizer.save_pretrained(folder / "policy")
        if policy.value_head is not None:
            save_file(contiguous(policy.value_head.state_dict()), folder / "value_head.safetensors")
        if policy.critic is not None:
            policy.critic.model.save_pretrained(folder / "critic", state_dict=weights.critic)
        if state.reference:
            save_file(contiguous(state.reference), folder / "reference.safetensors")
        if state.start_at_probes:
            save_file(contiguous(state.start_at_probes), folder / "probes.safetensors")
        save_state(folder, state.numbers, state.tensors, state.optimizer)

    return write_checkpoint(run_dir, step, fill, keep, best_by)


def save_snapshot(
    run_dir: Path,
    step: int,
    policy: Policy,
    tokenizer: PreTrainedTokenizerBase,
    settings: RunConfig,
    weights: WholeWeights = WholeWeights(),
) -> Path:
    """Write what is needed to sample from the policy of ``step``: its folder ``policy`` is that of a checkpoint. Returns the folder.

    ``settings``: those in force; they lie in the manifest.

    It is complete or absent, as a checkpoint is. Raises OSError as :func:`save_checkpoint` does.
    """

    def fill(folder: Path) -> None:
        save_model(policy.model, folder / "policy", run_dir / "base", weights.policy)
        tokenizer.save_pretrained(folder / "policy")

    return write_snapshot(run_dir, step, fill, settings)


# --- reading ---------------------------------------------------------------------------------------------------------------


def restore_policy(folder: Path, policy: Policy) -> None:
    """Copy the saved weights into ``policy``, bit for bit. Raises :class:`CheckpointError` when names or shapes do not fit."""
    restore_language_model(folder, policy)
    if policy.value_head is None:
        return
    try:
        with checkpoints.only_named(folder) as named:
            policy.value_head.load_state_dict(load_file(named / "value_head.safetensors"))
            if policy.critic is not None:
                restore_weights(policy.critic.model, named / "critic")
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{folder.name}: {error}") from error


def restore_language_model(folder: Path, policy: Policy) -> None:
    """As :func:`restore_policy`, without the critic: its value head and its trunk stay as they are."""
    try:
        with checkpoints.only_named(folder) as named:
            restore_weights(policy.model, named / "policy")
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{folder.name}: {error}") from error


def restore_reference(folder: Path, reference: Reference) -> None:
    """Give a reference that follows the policy the weights of the checkpoint. Raises :class:`CheckpointError`."""
    try:
        with checkpoints.only_named(folder) as named:
            weights = load_file(named / "reference.safetensors")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder.name}: {error}") from error
    if {name: weight.shape for name, weight in weights.items()} != {name: weight.shape for name, weight in reference.weights().items()}:
        raise CheckpointError(f"{folder.name}: the weights of its reference do not fit this model")
    reference.restore(weights)


def load_state(folder: Path, optimizer: torch.optim.Optimizer) -> TrainingState:
    """Numbers and random states; the optimizer's state is loaded into ``optimizer`` as well."""
    try:
        with checkpoints.only_named(folder) as named:
            numbers = json.loads(read_regular(named / "state.json"))
            numbers.setdefault("settings", first_settings(folder.parents[1]))  # checkpoints of earlier versions have none
            tensors = load_file(named / "random.safetensors")
            flat = load_file(named / "optimizer.safetensors")
            following = named / "reference.safetensors"
            reference = load_file(following) if following.exists() else {}
            probes = named / "probes.safetensors"
            start_at_probes = load_file(probes) if probes.exists() else {}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder.name}: {error}") from error
    return TrainingState(numbers, tensors, restore_optimizer(flat, optimizer), reference, start_at_probes)


def go_on_from(run_dir: Path, step: int | None, trainer: Trainer) -> list[str]:
    """Give a trainer the checkpoint of ``step``, and plan the changes of settings that later steps had when they were recorded.

    With None, for a run that ended before its first step, it stays as it is, and only the changes are planned.
    Returns what may differ from before, a clause each. Raises :class:`CheckpointError` and StoreError.
    """
    clauses: list[str] = []
    if step is not None:
        folder = checkpoint_dir(run_dir, step)
        restore_policy(folder, trainer.models.policy)
        clauses = restore(trainer, load_state(folder, trainer.updater.optimizer))
    replay(trainer, RunReader(run_dir).changes(later_too=True))
    return clauses
