"""Relative paths in a run's settings, which start at the folder from which the run was started: its working folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rlhf_studio.config import Names, RewardConfig, Section, StageConfig, names_in
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.inputs.trained import RUN_ID, model_of_run, run_of_model

Config = TypeVar("Config", bound=StageConfig)
Part = TypeVar("Part", bound=Section)
Change = Callable[[str, Names], str]
LOADED = ("model", "models", "policies")
"""The kinds of names under which a run may stand for a model that it has trained."""


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


def pinned(config: Config, folder: Path) -> Config:
    """The settings of a run that begins in ``folder``, with the step of each run that they name: ``RUN`` becomes ``RUN@STEP``.

    A run may go on and keep other checkpoints, and what began from it must not follow: it would have another start or reference than it
    learned with. Names that say a step, and a run's ``@all`` and ``@start``, stay.
    """

    def at_its_step(name: str, names: Names) -> str:
        run = Path(folder, name)
        if names not in LOADED or not name or not os.path.isfile(run / "run.db"):  # another model, or a run with its step
            return name
        model = model_of_run(str(run))
        at = None if model is None else run_of_model(model)
        return name if at is None else f"{name}@{at[1]}"

    return _changed(config, None, at_its_step)


def with_runs_in_full(config: Config, runs: Path, before: StageConfig | None = None) -> Config:
    """The settings with the folder of each run that they name by its id alone, as ``ID`` or ``ID@STEP``; ``runs`` is where they lie.

    With ``before`` only those settings that it has otherwise.
    """
    return _changed(config, before, lambda name, names: run_in_full(name, runs) if names in LOADED else name)


def run_in_full(name: str, runs: Path) -> str:
    """The folder of a run in ``runs`` that is named by its id alone, with its ``@STEP``; any other name as it is.

    Only ids as the app makes them count: a run in a folder that a person has called ``gpt2`` is not the model ``gpt2`` of the hub.
    """
    part, at, rest = name.partition("@")
    there = runs / part
    if RUN_ID.fullmatch(part) and not os.path.lexists(name) and not os.path.lexists(part) and os.path.isfile(there / "run.db"):
        return f"{there.resolve()}{at}{rest}"
    return name


def _named_in(folder: Path, config: Config, before: StageConfig | None) -> Config:
    """The settings that ``before`` has otherwise, or all, with what they name in ``folder``."""
    return _changed(config, before, lambda name, names: named_in(folder, name))


def _changed(config: Config, before: StageConfig | None, change: Change) -> Config:
    """The settings that ``before`` has otherwise, or all, with ``change`` of every single name in them."""
    sections: dict[str, Any] = {}
    for section in config.sections:
        own, old = getattr(config, section), getattr(before, section, None)
        changed = [name for name in names_in(type(own)) if old is None or getattr(own, name) != getattr(old, name, None)]
        sections[section] = _part(own, changed, change)
    if isinstance(rewards := sections.get("reward"), RewardConfig):
        known = getattr(before, "reward", RewardConfig()).components if before else []
        components = [one if one in known else _part(one, names_in(type(one)), change) for one in rewards.components]
        sections["reward"] = rewards.model_copy(update={"components": components})
    return config.model_copy(update=sections)


def _part(part: Part, settings: Iterable[str], change: Change) -> Part:
    """A section, or a reward component, with ``change`` of what these of its settings name."""
    marked = names_in(type(part))
    return part.model_copy(update={setting: _each(getattr(part, setting), marked[setting], change) for setting in settings})


def _each(value: str, names: Names, change: Change) -> str:
    if names == "policies":
        return "\n".join(change(line.strip(), names) for line in value.splitlines())
    if names == "models":
        return ",".join(change(name, names) for one in re.split(r"[,\n]", value) if (name := one.strip()))
    return change(value, names)


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
