"""What a resumed run needs beside the weights: taken from a trainer, and given back to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.live import LIVE_SETTINGS, with_changes
from rlhf_studio.engine.compute.sharding import full_optimizer_state, full_tensor
from rlhf_studio.engine.loop.changed_settings import changed
from rlhf_studio.engine.loop.trainer import Progress, Trainer
from rlhf_studio.engine.loop.watching.probes import restored_probes
from rlhf_studio.language import S_
from rlhf_studio.runs.records import SettingChange

START = "start"  # the name of the only tensor in TrainingState.start_at_probes


@dataclass(frozen=True)
class TrainingState:
    """A trainer's state.

    Attributes:
        numbers: JSON values: step, KL controller, running moments, place in the prompts, thread count.
        tensors: random states (uint8), by name.
        optimizer: AdamW's state dict.
        reference: weights of a reference that follows the policy, by name; empty for one that stays.
        start_at_probes: the starting policy's distribution at the probes, by a name of its own, where it cannot be computed again; else
            empty.
    """

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]
    reference: dict[str, Tensor] = field(default_factory=dict)
    start_at_probes: dict[str, Tensor] = field(default_factory=dict)


def training_state(trainer: Trainer) -> TrainingState:
    """All that :func:`restore` needs, beside the weights. Where weights are sharded, all ranks call this and rank 0 gets it."""
    numbers: dict[str, Any] = {
        "step": trainer.progress.step,
        "settings": trainer.live.started_with.model_dump(mode="json"),
        "live": dict(trainer.live.values),
        "elapsed": trainer.progress.elapsed,
        "episodes": trainer.progress.episodes,
        "skips": trainer.skips.count,
        "told": sorted(trainer.health.reported),
        "controller": trainer.controller.state_dict(),
        "moments": trainer.models.scorer.moments.state_dict(),
        "prompts": trainer.prompts.state(),
        "probes": trainer.probes.state() if trainer.probes else None,
        "threads": torch.get_num_threads(),
        "device": trainer.compute.device.type,
    }
    generators = {"sampling": trainer.sampling_generator.get_state(), "shuffling": trainer.shuffling_generator.get_state()}
    keep = trainer.compute.ranks.is_main
    following = trainer.models.reference.weights() if trainer.config.ppo.reference_ema else {}
    following = {name: full_tensor(weight, keep=keep) for name, weight in following.items()}
    tensors = {**generators, "torch": torch.get_rng_state()}
    start = trainer.probes.lasting_start() if trainer.probes else None
    lasting = {} if start is None else {START: start}
    return TrainingState(numbers, tensors, full_optimizer_state(trainer.updater.optimizer, keep=keep), following, lasting)


def restore(trainer: Trainer, state: TrainingState) -> list[str]:
    """Give a trainer its saved state; weights and optimizer are restored already. Returns what may differ from before, a clause each."""
    numbers = state.numbers
    trainer.progress = Progress(numbers["step"], numbers["elapsed"], _episodes(trainer, numbers))
    trainer.skips.count = numbers["skips"]
    trainer.health.reported = set(numbers["told"] if "told" in numbers else numbers["said"])  # the first versions called it said
    _restore_settings(trainer, numbers.get("settings"), numbers.get("live", {}))
    if not changed(trainer.live.before, trainer.config, "ppo.kl_coef", "ppo.kl_controller"):  # else β starts from its new setting
        trainer.controller.load_state_dict(numbers["controller"])
    trainer.models.scorer.moments.load_state_dict(numbers["moments"])
    changes = trainer.prompts.restore(numbers["prompts"])
    if state.reference:
        trainer.models.reference.restore(state.reference)
    trainer.probes = restored_probes(trainer.models, numbers.get("probes"), state.start_at_probes.get(START))  # earlier versions had none
    trainer.shuffling_generator.set_state(state.tensors["shuffling"])
    torch.set_rng_state(state.tensors["torch"])
    device = trainer.compute.device.type
    if numbers["device"] == device:
        trainer.sampling_generator.set_state(state.tensors["sampling"])
    else:
        changes.append(S_(f"the run was on {numbers['device']} and goes on with {device}: other random numbers"))
    threads = torch.get_num_threads()
    if numbers["threads"] != threads:
        changes.append(S_(f"CPU threads: {numbers['threads']} before, {threads} now, so results may differ in the last bits"))
    return changes


def _episodes(trainer: Trainer, numbers: Mapping[str, Any]) -> int:
    """The responses that were sampled up to the checkpoint. Earlier versions did not count them, and had one batch size throughout."""
    batch = (numbers.get("settings") or {}).get("ppo", {}).get("batch_size", trainer.config.ppo.batch_size)
    return int(numbers.get("episodes", numbers["step"] * batch))


def _restore_settings(trainer: Trainer, before: Mapping[str, Any] | None, live: Mapping[str, float]) -> None:
    """Go on with the settings that were changed while the run went on, but for those that the resume itself gives another value.

    Args:
        before: what config.yaml said when the checkpoint was written; None when that is not known.
        live: the values that were in force instead.
    """
    if before is None:
        return
    given = {change.setting for change in changes_between(before, trainer.config.model_dump(mode="json"))}
    trainer.use({setting: value for setting, value in live.items() if setting not in given})
    trainer.live.before = with_changes(before, live)
    changes = changes_between(trainer.live.before, trainer.config.model_dump(mode="json"))
    first = trainer.progress.step + 1
    trainer.live.at_resume = [
        SettingChange(first, change.setting, change.old, change.new) for change in changes if change.setting in LIVE_SETTINGS
    ]


def replay(trainer: Trainer, recorded: Iterable[SettingChange]) -> None:
    """Plan the changes of steps after the checkpoint that are on record, so that training these steps again is the same.

    Not those of a setting that the resume gave another value, and none where it gave another ``ppo.schedule``.
    """
    if changed(trainer.live.before, trainer.config, "ppo.schedule"):
        return
    given = {change.setting for change in trainer.live.at_resume}
    trainer.live.recorded = [change for change in recorded if change.step > trainer.progress.step and change.setting not in given]
