"""The settings that change while a run goes on: which values are in force, and which change is planned for which step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.runs.records import SettingChange


@dataclass
class LiveSettings:
    """What a run knows of its settings of :data:`~rlhf_studio.config.live.LIVE_SETTINGS`.

    Attributes:
        started_with: the settings that the run was started or resumed with.
        values: those that were changed since the run began, with the values in force; ``started_with`` has not these.
        planned: what changes at which step, by (step, setting): ``ppo.schedule``, and what a person asked for.
        recorded: changes of steps that were recorded before a resume, and are trained again.
        at_resume: changes that a resume made; they are recorded with its first step.
        before: all settings in force at the checkpoint that was restored; None in a new run.
    """

    started_with: RunConfig
    values: dict[str, float] = field(default_factory=dict)
    planned: dict[tuple[int, str], float] = field(default_factory=dict)
    recorded: list[SettingChange] = field(default_factory=list)
    at_resume: list[SettingChange] = field(default_factory=list)
    before: dict[str, Any] | None = None

    @classmethod
    def of(cls, config: RunConfig) -> LiveSettings:
        """Those of a run that begins: nothing has changed, and ``ppo.schedule`` is planned."""
        return cls(config, planned={(change.step, change.setting): change.value for change in config.ppo.planned})

    def plan(self, setting: str, value: float, step: int) -> None:
        """Change a setting from ``step`` on, because a person asks for it."""
        self.planned[step, setting] = value
        self.recorded = [change for change in self.recorded if change.setting != setting]

    def due(self, step: int) -> dict[str, float]:
        """The values that are planned for ``step``, by setting. For a step that is trained again, the recorded changes count."""
        due = {setting: value for (at, setting), value in self.planned.items() if at == step}
        return due | {change.setting: change.new for change in self.recorded if change.step == step}

    def overruled(self) -> list[str]:
        """The settings whose recorded changes are not made again, although they were made after the checkpoint of the resume."""
        repeated = {change.setting for change in self.recorded}
        return [setting for setting in LIVE_SETTINGS if setting not in repeated]

    def to_record(self, changes: list[SettingChange]) -> list[SettingChange]:
        """The changes of a step, together with those that a resume brought: they are in force since this step as well."""
        at_resume, self.at_resume = self.at_resume, []
        return [*at_resume, *changes]
