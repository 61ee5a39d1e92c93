"""Sweeps: the same configuration with each combination of values of one or two settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, Problem, with_values
from rlhf_studio.runs.lab.names import changes_in_words

MOST_AXES, MOST_RUNS = 2, 20


def sweep_configs(config: StageConfig, axes: Mapping[str, Sequence[Any]]) -> list[tuple[dict[str, Any], StageConfig]]:
    """(values of the axes, configuration) of every run of a sweep, in the order of the axes; the last axis changes fastest.

    Values are plain JSON. Raises ConfigError for every combination that is not a valid configuration, for more than two settings, for
    fewer than 2 or more than 20 runs, and for a value that occurs twice.
    """
    problems = list(_problems(axes))
    if problems:
        raise ConfigError(problems)
    configs: list[tuple[dict[str, Any], StageConfig]] = []
    wrong: dict[str, Problem] = {}
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        try:
            configuration = with_values(config, values)
        except ConfigError as error:
            wrong |= {str(problem): problem for problem in error.problems}  # the same value is wrong in several combinations
            continue
        if repeated := next((earlier for earlier, known in configs if known == configuration), None):
            wrong[str(values)] = Problem("", f"{changes_in_words(repeated)} and {changes_in_words(values)} are the same run; leave one out")
        configs.append((values, configuration))
    if wrong:
        raise ConfigError(list(wrong.values()))
    return configs


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
