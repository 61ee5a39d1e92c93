"""Sweeps: the same configuration with each combination of values of one or two settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import ConfigError, Problem, with_values
from rlhf_studio.runs.records import RunStatus

MOST_AXES, MOST_RUNS = 2, 20
_MOST_CHARACTERS = 120


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: ``values`` are those of its axes, by dotted name."""

    run_id: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The runs of one sweep that are there.

    Attributes:
        axes: each setting that was varied, with the values that occur; numbers from small to large.
        runs: in the order in which they were queued.
    """

    sweep: str
    axes: dict[str, list[Any]]
    runs: list[SweepRun]

    def at(self, values: Mapping[str, Any]) -> str | None:
        """The id of the run with these values of the axes; None when it was deleted."""
        return next((run.run_id for run in self.runs if run.values == dict(values)), None)


def sweep_configs(config: RunConfig, axes: Mapping[str, Sequence[Any]]) -> list[tuple[dict[str, Any], RunConfig]]:
    """(values of the axes, configuration) of every run of a sweep, in the order of the axes; the last axis changes fastest.

    Values are plain JSON. Raises ConfigError for every combination that is not a valid configuration, for more than two settings, for
    fewer than 2 or more than 20 runs, and for a value that occurs twice.
    """
    problems = list(_problems(axes))
    if problems:
        raise ConfigError(problems)
    found: list[tuple[dict[str, Any], RunConfig]] = []
    wrong: dict[str, Problem] = {}
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        try:
            configuration = with_values(config, values)
        except ConfigError as error:
            wrong |= {str(problem): problem for problem in error.problems}  # the same value is wrong in several combinations
            continue
        if repeated := next((earlier for earlier, known in found if known == configuration), None):
            wrong[str(values)] = Problem("", f"{_said(repeated)} and {_said(values)} are the same run; leave one out")
        found.append((values, configuration))
    if wrong:
        raise ConfigError(list(wrong.values()))
    return found


def _problems(axes: Mapping[str, Sequence[Any]]) -> Iterable[Problem]:
    if not 1 <= len(axes) <= MOST_AXES:
        yield Problem("", f"a sweep varies one or two settings, not {len(axes)}")
        return
    runs = 1
    for setting, values in axes.items():
        runs *= len(values)
        if setting == "name":
            yield Problem("name", "a sweep names its runs itself; vary another setting")
        if len({repr(value) for value in values}) < len(values):
            yield Problem(setting, "the same value stands here twice; keep one")
    if not 2 <= runs <= MOST_RUNS:
        yield Problem(next(iter(axes)), f"a sweep has 2 to {MOST_RUNS} runs; these values make {runs}")


def run_name(sweep_name: str, values: Mapping[str, Any]) -> str:
    """A name that tells a run of a sweep from the others, at most 120 characters: ``β and seeds, kl_coef 0.05, seed 1``."""
    said = _said(values)[: _MOST_CHARACTERS - 10]
    return f"{sweep_name[: _MOST_CHARACTERS - len(said) - 2]}, {said}" if sweep_name else said


def _said(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{setting.rsplit('.', 1)[-1]} {'nothing' if value in (None, '') else value}" for setting, value in values.items())


def sweeps_of(runs: Iterable[RunStatus]) -> dict[str, Sweep]:
    """Every sweep among these runs, by its id, the oldest first."""
    members: dict[str, list[SweepRun]] = {}
    for run in sorted(runs, key=lambda run: (run.created_at, run.run_id)):
        if run.origin.sweep:
            members.setdefault(run.origin.sweep, []).append(SweepRun(run.run_id, dict(run.origin.changes)))
    return {sweep: Sweep(sweep, _axes(found), found) for sweep, found in members.items()}


def _axes(runs: Sequence[SweepRun]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for run in runs:
        for setting, value in run.values.items():
            values = axes.setdefault(setting, [])
            if value not in values:
                values.append(value)
    return {setting: sorted(values) if all(map(_is_number, values)) else values for setting, values in axes.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
