"""Relative paths in a run's settings, which start at the folder from which the run was started: its working folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from rlhf_studio.config import ClassifierReward, PythonReward, RewardComponent, RewardConfig, StageConfig
from rlhf_studio.inputs.bundled import BUNDLED

Config = TypeVar("Config", bound=StageConfig)

PATHS = {
    "model": ("policy", "reference"),
    "critic": ("model",),
    "data": ("prompts", "source", "eval"),
    "evaluation": ("reference", "text"),
    "engine": ("accelerate_config",),
}
"""The settings by section that may name a file or folder; those of reward components are in :func:`_component`."""


def as_seen_from(config: Config, folder: Path) -> Config:
    """The same settings for a process that works elsewhere: what a relative path names in ``folder`` is named in full.

    A name that leads nowhere in ``folder``, nor in the folder of this process, stays: it may be a hub id. One that only leads somewhere
    here is named in full as well, so that nobody takes another file for it; the check says that it is not there. Where there is no such
    folder any more, a run is started in the one of this process (:func:`rlhf_studio.runs.launch.start_engine`), and all names stay.
    """
    if not folder.is_dir() or os.path.samefile(folder, os.curdir):
        return config
    return _named_in(folder, config, None)


def as_typed_here(config: Config, before: StageConfig, folder: Path) -> Config:
    """``before`` with changes that a person has typed in the folder of this process, for a run that works in ``folder``.

    A changed setting that names something here is named in full: completion in a shell, and its reader, mean what is here. What was not
    changed, or leads nowhere here, stays as it is, and is looked for in ``folder``.
    """
    if folder.is_dir() and os.path.samefile(folder, os.curdir):
        return config
    return _named_in(Path.cwd(), config, before)


def _named_in(folder: Path, config: Config, before: StageConfig | None) -> Config:
    """The settings that ``before`` has otherwise, or all, with what they name in ``folder``."""
    sections: dict[str, Any] = {}
    for section in config.sections:
        own, old = getattr(config, section), getattr(before, section, None)
        there = [name for name in PATHS.get(section, ()) if name in type(own).model_fields]
        changed = [name for name in there if old is None or getattr(own, name) != getattr(old, name, None)]
        sections[section] = own.model_copy(update={name: _in(folder, getattr(own, name)) for name in changed})
    if isinstance(rewards := sections.get("reward"), RewardConfig):
        known = getattr(before, "reward", RewardConfig()).components if before else []
        components = [one if one in known else _component(one, folder) for one in rewards.components]
        sections["reward"] = rewards.model_copy(update={"components": components})
    return config.model_copy(update=sections)


def _component(component: RewardComponent, folder: Path) -> RewardComponent:
    if isinstance(component, PythonReward):
        return component.model_copy(update={"file": _in(folder, component.file)})
    if isinstance(component, ClassifierReward):
        names = ",".join(_in(folder, name) for name in component.model_names())
        return component.model_copy(update={component.models_setting: names})
    return component


def _in(folder: Path, name: str) -> str:
    """What ``name`` is in ``folder``."""
    if not name or name in BUNDLED or os.path.isabs(name):
        return name
    there = os.path.join(folder, name)
    return there if os.path.lexists(there) or os.path.lexists(name) else name
