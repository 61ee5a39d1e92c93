"""The settings that may change while a run goes on: by a person's request, or as ``ppo.schedule`` plans it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rlhf_studio.language import S_

LIVE_SETTINGS = {
    "ppo.kl_coef": "KL coefficient",
    "ppo.kl_target": "KL target",
    "ppo.learning_rate": "learning rate",
    "generation.temperature": "temperature",
}
"""By dotted name, what they are called in a sentence. A new value is in force from the beginning of a step."""


@dataclass(frozen=True)
class PlannedChange:
    """A setting's new value, and the first step that is trained with it."""

    step: int
    setting: str
    value: float

    def __str__(self) -> str:
        return f"{self.step} {self.setting} {self.value!r}"


def live_problem(setting: str, value: Any, sections: Mapping[str, type[BaseModel]], kl_controller: str) -> str:
    """Why a running run cannot take this change; empty when it can.

    Args:
        sections: the models of the configuration's sections ``ppo`` and ``generation``, whose bounds count.
        kl_controller: the run's own; a fixed one has no target.
    """
    if setting not in LIVE_SETTINGS:
        return S_(f"cannot change while a run goes on; these can: {', '.join(LIVE_SETTINGS)}")
    if setting == "ppo.kl_target" and kl_controller != "adaptive":
        return S_(f"has no effect while ppo.kl_controller is {kl_controller}; change ppo.kl_coef instead")
    section, name = setting.split(".")
    try:
        sections[section].model_validate({name: value})
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        return f"{message[0].lower()}{message[1:]}, not {value!r}"
    return ""


def read_schedule(text: str) -> list[PlannedChange]:
    """The changes in ``"8 ppo.kl_coef 0.2, 20 generation.temperature 0.9"``. Raises ValueError that names the bad entry."""
    changes: list[PlannedChange] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        step, setting, value = (*entry.split(), "", "", "")[:3]
        if len(entry.split()) != 3 or not (step.isascii() and step.isdigit() and int(step)) or _number(value) is None:
            raise ValueError(f"{entry[:60]!r} is no change; write step, setting and value, such as 8 ppo.kl_coef 0.2")
        changes.append(PlannedChange(int(step), setting, float(value)))
    return changes


def schedule_problem(text: str, sections: Mapping[str, type[BaseModel]], kl_controller: str) -> str:
    """What is wrong with a schedule; empty when it can be used. ``sections`` and ``kl_controller`` are those of :func:`live_problem`."""
    try:
        changes = read_schedule(text)
    except ValueError as error:
        return str(error)
    planned: set[tuple[int, str]] = set()
    for change in changes:
        if problem := live_problem(change.setting, change.value, sections, kl_controller):
            return f"{change.setting} in step {change.step}: {problem}"
        if (change.step, change.setting) in planned:
            return S_(f"{change.setting} changes twice in step {change.step}; keep one")
        planned.add((change.step, change.setting))
    return ""


def write_schedule(changes: Iterable[PlannedChange]) -> str:
    """The text that :func:`read_schedule` reads back, in the order of the steps."""
    return ", ".join(map(str, sorted(changes, key=lambda change: change.step)))


def with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as a plain mapping, as ``model_dump`` gives it, with other values of ``section.name`` settings."""
    result = {name: dict(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    for setting, value in changes.items():
        section, name = setting.split(".")
        result[section][name] = value
    return result


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
