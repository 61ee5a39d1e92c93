"""Facts of the model that learns, read as its stage needs them, and remembered while no file of its folder changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

from rlhf_studio.config import RewardModelRunConfig, SFTRunConfig, StageConfig
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm, check_reward_base, check_shape
from rlhf_studio.inputs.models.files import Hub
from rlhf_studio.inputs.trained import resolve

Check = Callable[[str, str, Hub | None], ModelFacts]
State = tuple[tuple[str, int, int], ...]


def learner_check(config: StageConfig) -> Check:
    """What reads the model that such a run starts from, by name and revision."""
    if isinstance(config, RewardModelRunConfig):
        return check_reward_base
    return check_shape if isinstance(config, SFTRunConfig) and config.model.fresh else check_causal_lm


def remembered_learner(config: StageConfig, name: str, revision: str = "main") -> ModelFacts:
    """Facts of the model that such a run starts from: a form asks at every change, and a list reads many. Raises :class:`ModelError`."""
    check, state = learner_check(config), _state(resolve(name))
    return _remembered(check, name, revision, state) if state else check(name, revision, None)


@lru_cache(maxsize=200)
def _remembered(check: Check, name: str, revision: str, state: State) -> ModelFacts:
    return check(name, revision, None)


def _state(folder: str) -> State:
    """Name, size and time of every file in a model's folder; empty for an adapter, whose base lies elsewhere, and for what is no folder."""
    try:
        files = {entry.name: entry.stat() for entry in os.scandir(folder) if entry.is_file()}
    except (OSError, ValueError):
        return ()
    if "adapter_config.json" in files:
        return ()
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in files.items()))
