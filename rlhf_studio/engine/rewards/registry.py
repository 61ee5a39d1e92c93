"""From a component's settings to a function that scores: the builder of each kind, which registers itself with :func:`scorer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from rlhf_studio.child_process.line_process import LineProcess
from rlhf_studio.config import Component, Permissions
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards import kinds
from rlhf_studio.engine.rewards.episodes import Source
from rlhf_studio.engine.types import OnProgress

Settings = TypeVar("Settings", bound=Component)


@dataclass(frozen=True)
class BuildContext:
    """What a builder needs beside the component's settings.

    Attributes:
        field: where the component stands, such as ``reward.components.0``; errors name settings below it.
        compute: device and number format of the run.
        report: takes a sentence about what is being loaded.
        permissions: what the program's start allowed.
        begun: the component's own process, where it was started before.
    """

    field: str
    compute: Compute
    report: OnProgress
    permissions: Permissions
    begun: LineProcess | None = None


Builder = Callable[[Any, BuildContext], Source]
"""(settings, context) to what scores. Raises :class:`ConfigError` that names the setting which keeps it from working."""

_BUILDERS: dict[type[Component], Builder] = {}


def scorer(kind: type[Settings]) -> Callable[[Callable[[Settings, BuildContext], Source]], Callable[[Settings, BuildContext], Source]]:
    """Decorates the builder of one kind: ``@scorer(LengthReward)``."""

    def register(builder: Callable[[Settings, BuildContext], Source]) -> Callable[[Settings, BuildContext], Source]:
        _BUILDERS[kind] = builder
        return builder

    return register


@cache
def builders() -> dict[type[Component], Builder]:
    """The builder of every kind. Imports all files of ``kinds/``, so that each has registered its own."""
    for module in iter_modules(kinds.__path__):
        import_module(f"{kinds.__name__}.{module.name}")
    return _BUILDERS


def build_source(component: Component, context: BuildContext) -> Source:
    """The function that scores for this component. Raises :class:`ConfigError` that names the setting which keeps it from working."""
    return builders()[type(component)](component, context)


def refuse_problems(component: Component, field: str, permissions: Permissions) -> None:
    """Repeat the check of before the start, now that the component is built. Raises :class:`ConfigError`."""
    problems = [Problem(f"{field}.{finding.setting}", finding.message) for finding in component.problems(permissions)]
    if problems:
        raise ConfigError(problems)
