"""The command line that does the same as the form: only what differs from the recipe."""

from __future__ import annotations

import shlex
from collections.abc import Container
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from rlhf_studio.config import EvaluationRunConfig, RunConfig, StageConfig
from rlhf_studio.config.base import may_be_empty
from rlhf_studio.config.io import ConfigError, apply_overrides, text_override, walk_fields
from rlhf_studio.ui.form import values_of

PROGRAM = "python -m rlhf_studio train"
WithRewards = RunConfig | EvaluationRunConfig
"""The stages in which something is scored."""


class _Dumper(yaml.SafeDumper):
    """Quotes every string, so that ``1e-5`` or ``yes`` stay text whatever rules the reader has."""


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def command_line(config: StageConfig, recipe: str, base: StageConfig, always: Container[str] = ()) -> str:
    """A command for a shell that runs exactly ``config``, given that ``--recipe`` gives ``base``.

    ``always``: settings that are written also where they are as in ``base``, because the recipe would fit them anew.
    """
    parts = [PROGRAM, "--recipe", shlex.quote(recipe)]
    for name, text in overrides(config, base, always).items():
        # "--name=-1" and "--name=" cannot be mistaken for another option or for a missing value
        parts.append(f"--{name}={shlex.quote(text)}" if text.startswith("-") or not text else f"--{name} {shlex.quote(text)}")
    return " ".join([*parts, *permission_flags(config)])


def permission_flags(config: StageConfig) -> list[str]:
    """The flags that every start of this run needs. The address of a scoring server is left for the person to fill in, because it may hold
    a secret."""
    if not isinstance(config, WithRewards):
        return []
    pairs = [pair for component in config.reward.components for pair in component.start_flags()]
    return [f"{flag} {shlex.quote(value)}" for flag, value in dict.fromkeys(pairs)]


def overrides(config: StageConfig, base: StageConfig, always: Container[str] = ()) -> dict[str, str]:
    """Dotted setting -> text, for each setting in which ``config`` differs from ``base``; ``apply_overrides`` reads it back."""
    ours, theirs = values_of(config), values_of(base)
    fields: dict[str, FieldInfo] = dict(walk_fields(type(config)))
    changed: dict[str, str] = {}
    for name, value in ours.items():
        if value == theirs[name] and (name not in always or name == "reward.components"):
            continue
        if name == "reward.components" and isinstance(config, WithRewards) and isinstance(base, WithRewards):
            changed.update(_component_overrides(config, base))
        else:
            text = text_override(value) if may_be_empty(fields[name]) else value
            changed[name] = text if fields[name].annotation is str else _yaml(value)
    return changed


def _component_overrides(config: WithRewards, base: WithRewards) -> dict[str, str]:
    """Single settings while the kinds are the same in the same order, else the whole list."""
    ours, theirs = config.reward.components, base.reward.components
    if [component.kind for component in ours] == [component.kind for component in theirs]:
        return {
            f"reward.components.{index}.{name}": _yaml(value)
            for index, (component, old) in enumerate(zip(ours, theirs, strict=True))
            for name, value in component.model_dump().items()
            if value != getattr(old, name)
        }
    return {"reward.components": _yaml([{"kind": component.kind, **component.model_dump(exclude_defaults=True)} for component in ours])}


def _yaml(value: Any) -> str:
    """One line of YAML; a text without quotes where it is read back as the same text."""
    if isinstance(value, str) and _reads_back(value):
        return value
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.strip().removesuffix("...").strip()


def _reads_back(text: str) -> bool:
    try:
        return apply_overrides({}, {"section.setting": text}) == {"section": {"setting": text}}
    except (ConfigError, ValueError):
        return False
