"""Relative paths in a run's settings, which start at the folder from which the run was started: its working folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from rlhf_studio.config import Names, RewardConfig, Section, StageConfig, names_in
from rlhf_studio.inputs.bundled import BUNDLED

Config = TypeVar("Config", bound=StageConfig)
Part = TypeVar("Part", bound=Section)


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
        changed = [name for name in names_in(type(own)) if old is None or getattr(own, name) != getattr(old, name, None)]
        sections[section] = _part(own, changed, folder)
    if isinstance(rewards := sections.get("reward"), RewardConfig):
        known = getattr(before, "reward", RewardConfig()).components if before else []
        components = [one if one in known else _part(one, names_in(type(one)), folder) for one in rewards.components]
        sections["reward"] = rewards.model_copy(update={"components": components})
    return config.model_copy(update=sections)


def _part(part: Part, names: Iterable[str], folder: Path) -> Part:
    """A section, or a reward component, with what these of its settings name in ``folder``."""
    marked = names_in(type(part))
    return part.model_copy(update={name: _all_in(folder, getattr(part, name), marked[name]) for name in names})


def _all_in(folder: Path, value: str, names: Names) -> str:
    if names == "policies":
        return "\n".join(named_in(folder, line.strip()) for line in value.splitlines())
    if names == "models":
        return ",".join(named_in(folder, name) for one in re.split(r"[,\n]", value) if (name := one.strip()))
    return named_in(folder, value)


def named_in(folder: Path, name: str) -> str:
    """What ``name`` is in ``folder``; of ``RUN@STEP`` the run is looked for. A name that leads nowhere, here or there, stays."""
    if not name or name in BUNDLED or os.path.isabs(name):
        return name
    place, at, which = name.rpartition("@")
    for part, rest in ((name, ""), (place, at + which)):
        there = os.path.join(folder, part)
        if part and (os.path.lexists(there) or os.path.lexists(part)):
            return there + rest
    return name
