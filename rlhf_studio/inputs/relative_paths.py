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
    """The settings for a process that works elsewhere: a relative path to something in ``folder`` becomes a full path.

    A name that leads nowhere, in ``folder`` and in the folder of this process, stays: it may be a hub id. A name that leads somewhere only
    in the folder of this process becomes a full path in ``folder`` too, so that nobody takes the wrong file; the check says that it is not
    there. All names stay where ``folder`` does not exist any more: then a run is started in the folder of this process
    (:func:`rlhf_studio.runs.launch.start_engine`).
    """
    if not folder.is_dir() or os.path.samefile(folder, os.curdir):
        return config
    return _named_in(folder, config, None)


def as_typed_here(config: Config, before: StageConfig, folder: Path) -> Config:
    """``before`` with changes that a person has typed in the folder of this process, for a run that works in ``folder``.

    A changed setting that names something in this process's folder becomes a full path: a person who types it there means that file. What
    was not changed, or leads nowhere there, stays as it is, and is looked for in ``folder``.
    """
    if folder.is_dir() and os.path.samefile(folder, os.curdir):
        return config
    return _named_in(Path.cwd(), config, before)


def pinned(config: Config, folder: Path) -> Config:
    """The settings of a run that begins in ``folder``, with the step of each run that they name: ``RUN`` becomes ``RUN@STEP``.

    The named run may go on and keep other checkpoints. Without the step, this run would later have another start or reference than it
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

    With ``before`` only the settings that differ from it are changed.
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
    """The settings with full paths for what they name in ``folder``; only those that differ from ``before``, where it is given."""
    return _changed(config, before, lambda name, names: named_in(folder, name))


def _changed(config: Config, before: StageConfig | None, change: Change) -> Config:
    """The settings with ``change`` applied to each name in them; only to those that differ from ``before``, where it is given."""
    sections: dict[str, Any] = {}
    for section in config.sections:
        own, old = getattr(config, section), getattr(before, section, None)
        changed = [name for name in names_in(type(own)) if old is None or getattr(own, name) != getattr(old, name, None)]
        sections[section] = _part(own, changed, change)
    if isinstance(rewards := sections.get("reward"), RewardConfig):
        known = getattr(before, "reward", RewardConfig()).components if before else []
        components = [part if part in known else _part(part, names_in(type(part)), change) for part in rewards.components]
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
        return ",".join(change(name, names) for part in re.split(r"[,\n]", value) if (name := part.strip()))
    return change(value, names)


def named_in(folder: Path, name: str) -> str:
    """What ``name`` is in ``folder``; of ``RUN@STEP`` the run is looked for. A name that leads nowhere, here or there, stays."""
    if not name or name in BUNDLED or os.path.isabs(name):
        return name
    run, at, which = name.rpartition("@")
    for part, rest in ((name, ""), (run, at + which)):
        there = os.path.join(folder, part)
        if part and (os.path.lexists(there) or os.path.lexists(part)):
            return there + rest
    return name
