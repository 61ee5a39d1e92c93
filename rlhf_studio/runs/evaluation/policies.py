"""Which policies an evaluation names: a line each for a run, its checkpoints, a model or a file of completions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlhf_studio.config import STAGE_TITLES, EvaluationRunConfig, StageConfig
from rlhf_studio.config.base import free_name
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.model import short_name
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader

FIELD = "evaluation.policies"
COMPLETIONS = (".jsonl", ".jsonl.gz")
ALL, START = "all", "start"
LEARN_POLICIES = ("ppo", "sft", "dpo")
"""Stages whose checkpoints can answer prompts."""


@dataclass(frozen=True)
class PolicySource:
    """One policy of an evaluation.

    Attributes:
        name: what it is called, unique in the evaluation.
        kind: a language model, or a file with what one answered.
        path: a folder, a bundled name or a hub id; or the file.
        revision: of a hub id.
        run: the id of the run that it comes from; empty for none. ``run_folder`` is its folder.
        step: the step of its checkpoint; None for a run's start, and where there is no run.
        checkpoint: the folder of the checkpoint or snapshot that the policy lies in, whose files are checked before they are read.
    """

    name: str
    kind: Literal["model", "completions"]
    path: str
    revision: str = "main"
    run: str = ""
    step: int | None = None
    checkpoint: str = ""
    run_folder: str = ""


def sources_of(config: EvaluationRunConfig, runs: Path | None = None) -> list[PolicySource]:
    """The policies that the settings name, each once. ``runs``: the folder whose runs may be named by their id alone.

    Raises :class:`ConfigError` that names every line that leads nowhere.
    """
    lines = [line.strip() for line in config.evaluation.policies.splitlines() if line.strip()]
    if not lines:
        return [PolicySource(short_name(config.model.policy), "model", config.model.policy, config.model.revision)]
    policies: list[PolicySource] = []
    problems: list[Problem] = []
    for line in lines:
        try:
            policies += _of_line(line, runs)
        except ConfigError as error:
            problems += error.problems
        except StoreError as error:
            problems.append(Problem(FIELD, str(error)))
    if problems:
        raise ConfigError(problems)
    return _named(policies)


def source_at(name: str, runs: Path | None = None) -> PolicySource:
    """The one policy that a line names; the folder of a checkpoint or snapshot names its run's. Raises :class:`ConfigError`, StoreError."""
    folder = Path(name)
    if folder.parent.name in (paths.CHECKPOINTS, paths.SNAPSHOTS) and (step := paths.checkpoint_step(folder.name)) is not None:
        name = f"{folder.parents[1]}@{step}"
    policies = _of_line(name, runs)
    if len(policies) != 1:
        raise ConfigError([Problem("", f"{name} names {len(policies)} policies; name one")])
    if policies[0].kind == "completions":
        raise ConfigError([Problem("", f"{name} is a file of completions, which cannot answer prompts")])
    return policies[0]


def settings_of_run(folder: Path) -> tuple[StageConfig, Path]:
    """The settings of a policy's run, and the folder where relative names in them start. Raises :class:`ConfigError`, StoreError."""
    reader = RunReader(folder)
    return reader.config(), reader.working_folder()


def run_named(line: str, runs: Path | None) -> tuple[Path, str] | None:
    """(the run folder that a line names, the text after its ``@``); None when the line does not name a run."""
    run = _run_folder(line, runs)
    if run is not None:
        return run, ""
    name, at, which = line.rpartition("@")
    folder = _run_folder(name, runs) if at else None
    return None if folder is None else (folder, which)


def _run_folder(name: str, runs: Path | None) -> Path | None:
    if not name:
        return None
    folder = Path(name)
    if runs is not None and not os.path.exists(folder) and paths.is_run_name(name):
        folder = runs / name
    return folder.resolve() if os.path.isfile(folder / paths.DATABASE) else None


def _of_line(line: str, runs: Path | None) -> list[PolicySource]:
    run = run_named(line, runs)
    if run is not None:
        return _of_run(*run)
    if line.endswith(COMPLETIONS):
        if not os.path.isfile(line):
            raise ConfigError([Problem(FIELD, f"there is no file {line!r}")])
        return [PolicySource(Path(line).name.removesuffix(".gz").removesuffix(".jsonl"), "completions", str(Path(line).resolve()))]
    name, at, which = line.rpartition("@")
    if at and which in (ALL, START) and os.path.exists(name):
        raise ConfigError([Problem(FIELD, f"{name!r} is no run, so it has no {which}; name the folder of a run")])
    if at and which in (ALL, START):
        raise ConfigError([Problem(FIELD, f"there is no run {name!r}: name its folder")])
    folder = Path(line)
    if os.path.isdir(folder):
        return [PolicySource(short_name(line), "model", str(folder.resolve()))]
    if at and not os.path.exists(name):
        return [PolicySource(short_name(line), "model", name, which)]
    return [PolicySource(short_name(line), "model", line)]


def _of_run(folder: Path, which: str) -> list[PolicySource]:
    reader = RunReader(folder)
    config: StageConfig = reader.config()
    label = reader.status().name or folder.name
    if not (origin := reader.origin()).keeps_model:
        raise ConfigError([Problem(FIELD, f"{folder.name} was {origin.told}: it has no model that could answer")])
    if config.stage not in LEARN_POLICIES:
        raise ConfigError([Problem(FIELD, f"{folder.name} is a run of the stage {STAGE_TITLES[config.stage]}, which has no policy")])
    path_by_step = {info.step: info.path for info in reader.policies()}
    if which == START:
        return [_starting_policy(folder, config, label, path_by_step)]
    if which == ALL and (path_by_step or not began_fresh(config)):
        starts = [] if began_fresh(config) else [_starting_policy(folder, config, label, path_by_step)]
        return [*starts, *(_saved_policy(folder, path, step, label) for step, path in path_by_step.items())]
    if not path_by_step and began_fresh(config):
        raise ConfigError([Problem(FIELD, f"{folder.name} has no checkpoint yet, and it began with random weights; let it go on first")])
    if not path_by_step:
        raise ConfigError([Problem(FIELD, f"{folder.name} has no checkpoint yet; {folder.name}@{START} is the policy that it began with")])
    if which and not which.isdecimal():
        raise ConfigError([Problem(FIELD, f"{which!r} is no step of {folder.name}: write @STEP, @{ALL} or @{START}")])
    step = int(which) if which else max(path_by_step)
    if step not in path_by_step:
        there = ", ".join(map(str, path_by_step))
        raise ConfigError([Problem(FIELD, f"{folder.name} has no checkpoint or snapshot of step {step}; it has: {there}")])
    return [_saved_policy(folder, path_by_step[step], step, label)]


def _saved_policy(folder: Path, path: str, step: int, label: str) -> PolicySource:
    return PolicySource(
        f"{label}@{step}", "model", str(Path(path) / "policy"), run=folder.name, step=step, checkpoint=path, run_folder=str(folder)
    )


def began_fresh(config: StageConfig) -> bool:
    """Whether a run began with random weights, in the shape of the model that it names."""
    return bool(getattr(config.model, "fresh", False))


def _starting_policy(folder: Path, config: StageConfig, label: str, saved_steps: Iterable[int]) -> PolicySource:
    if began_fresh(config):
        there = ", ".join(f"{folder.name}@{step}" for step in saved_steps)
        what = S_(f"name a policy that it kept: {there}") if there else S_("and it has kept no policy yet")
        raise ConfigError([Problem(FIELD, f"{folder.name} began with random weights, which say nothing; {what}")])
    path, working = config.learns, RunReader(folder).working_folder()
    name, at, _ = path.rpartition("@")  # what began with a policy of another run may name it as RUN@STEP
    if os.path.isdir(working / path) or (at and os.path.isdir(working / name)):
        path = str(working / path)
    return PolicySource(f"{label}@{START}", "model", path, config.model.revision, run=folder.name, run_folder=str(folder))


def _named(policies: list[PolicySource]) -> list[PolicySource]:
    """The policies, each once, under names that differ: those of two runs with one name get the run's id."""
    once = list(dict.fromkeys(policies))
    named: list[PolicySource] = []
    for source in once:
        name = source.name
        same = [other for other in once if other.name == source.name]
        if len(same) > 1 and source.run:
            name = f"{source.run}@{START if source.step is None else source.step}"
        named.append(PolicySource(**{**vars(source), "name": free_name(name, [other.name for other in named])}))
    return named
