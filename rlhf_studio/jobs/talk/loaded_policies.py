"""Which policies stay loaded: those of the last two pairs, as far as memory allows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm, check_reward_model
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.jobs.talk.loaded import CannotTalk, Start, Talker, load_start, load_talker, settings_of, weights_folder
from rlhf_studio.language import S_
from rlhf_studio.runs.paths import CONFIG, MANIFEST
from rlhf_studio.units import format_bytes

MOST = 4  # policies: two pairs
FLOAT32 = 4  # bytes
SPARE = 0.1  # of the free memory: key-value caches and what a forward pass needs


@dataclass(frozen=True)
class _Key:
    """A policy as it lies on the disk: a file that was written anew is another policy."""

    run_dir: Path
    step: int | None
    settings: int
    weights: int


class LoadedPolicies:
    """Loads policies when they are requested, and keeps the newest ones."""

    def __init__(self, permissions: Permissions, report: OnProgress):
        self._permissions, self._report = permissions, report
        self._talkers: dict[_Key, Talker] = {}
        self._starts: dict[tuple[Path, int], Start] = {}

    def get(self, run_dir: Path, step: int | None) -> Talker:
        """The policy of a step, None for the starting one.

        Raises :class:`CannotTalk` when it is not there or does not fit into memory, and what :mod:`.loaded` raises.
        """
        key = _Key(run_dir, step, _changed(run_dir / CONFIG), 0 if step is None else _changed(weights_folder(run_dir, step) / MANIFEST))
        talker = self._talkers.pop(key, None)
        if talker is None:
            talker = self._load(key)
        self._talkers[key] = talker  # the last one is the one used last
        self._drop(MOST)
        return talker

    def _load(self, key: _Key) -> Talker:
        config = settings_of(key.run_dir)
        known = (key.run_dir, key.settings)
        start = self._starts.get(known)
        needed = (_start_bytes(config) if start is None else 0) + _own_bytes(config, key.step)
        while needed > _free_bytes() and len(self._talkers) > 1:  # the newest one may be the other side of this pair
            self._drop(len(self._talkers) - 1)
        if needed > (free := _free_bytes()):
            room = S_(f"about {format_bytes(needed)}, and {format_bytes(free)} of memory are free")
            raise CannotTalk(f"This model does not fit: it needs {room}; wait until less else is running, or choose a smaller model.")
        if start is None:
            start = load_start(key.run_dir, config, self._permissions, self._report)
        what = "the starting policy" if key.step is None else S_(f"the policy of step {key.step}")
        self._report(f"Loading {what}", None)
        talker = load_talker(start, key.step)
        self._starts[known] = start
        return talker

    def _drop(self, most: int) -> None:
        for key in list(self._talkers)[: max(len(self._talkers) - most, 0)]:
            del self._talkers[key]
        used = {(key.run_dir, key.settings) for key in self._talkers}
        self._starts = {known: start for known, start in self._starts.items() if known in used}
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _changed(file: Path) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        raise CannotTalk(f"{file.name} of {file.parent.name} cannot be read; the run or its checkpoint may have been deleted.") from None


def _free_bytes() -> int:
    """Memory that models may take: of the GPU that is used, else of the computer."""
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else processor().free or 0
    return int(free * (1 - SPARE))


def _start_bytes(config: RunConfig) -> int:
    """Bytes of all that is loaded once for a run; 0 for a model whose files do not say how large it is."""
    try:
        policy = check_causal_lm(config.model.policy, config.model.revision)
        others = [check_causal_lm(config.model.reference, config.model.reference_revision)] if config.model.reference else []
        rewards: list[ModelFacts] = [
            check_reward_model(name, getattr(part, "revision", "main"), getattr(part, "label", ""))
            for part in config.reward.components
            for name in part.model_names()
        ]
    except ModelError:
        return 0  # loading it says what is wrong
    return sum((parameters(facts) or 0) * FLOAT32 for facts in (policy, *others, *rewards))


def _own_bytes(config: RunConfig, step: int | None) -> int:
    """Bytes of one policy's own weights: all of them, or under LoRA the matrices into which adapters are merged; none at the start."""
    if step is None and not config.lora.enabled:
        return 0
    try:
        return (parameters(check_causal_lm(config.model.policy, config.model.revision)) or 0) * FLOAT32
    except ModelError:
        return 0


__all__ = ["CannotTalk", "LoadedPolicies"]
