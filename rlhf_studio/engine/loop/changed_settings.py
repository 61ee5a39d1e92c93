"""Events for people about settings that changed: while a run goes on, or since the checkpoint that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_studio.config import PPOConfig, RunConfig, StageConfig
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.config.live import LIVE_SETTINGS, PlannedChange
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord, SettingChange

MOST_NAMED = 8  # changes in one sentence


def changed(before: Mapping[str, Any] | None, config: RunConfig, *settings: str) -> bool:
    """Whether any of these settings has changed since the checkpoint; False when its settings are not known."""
    return before is not None and any(change.setting in settings for change in changes_between(before, config.model_dump(mode="json")))


def change_event(before: Mapping[str, Any] | None, config: StageConfig, step: int) -> EventRecord | None:
    """An event about the changes for the steps after ``step``; None when nothing changed, or when the values before are not known."""
    changes = [] if before is None else changes_between(before, config.model_dump(mode="json"))
    if before is None or not changes:
        return None
    text = S_(f"Changed after step {step}: {', '.join(map(str, changes))}.")
    if isinstance(config, RunConfig):
        text += _jump(before, config.ppo, step)
    return EventRecord("info", "setting", text, {"changes": [vars(change) for change in changes]})


_CHANGED = {
    "ppo.kl_coef": S_("KL coefficient from {old:.6g} to {new:.6g}, from step {step} on."),
    "ppo.kl_target": S_("KL target from {old:.6g} to {new:.6g}, from step {step} on."),
    "ppo.learning_rate": S_("Learning rate from {old:.6g} to {new:.6g}, from step {step} on."),
    "generation.temperature": S_("Temperature from {old:.6g} to {new:.6g}, from step {step} on."),
}
"""What is said of a change of one of :data:`LIVE_SETTINGS`."""


def change_events(changes: Sequence[SettingChange]) -> list[EventRecord]:
    """The changes of one step, for people: one event, or none."""
    if not changes:
        return []
    text = " ".join(_CHANGED[change.setting].format(old=change.old, new=change.new, step=change.step) for change in changes)
    data = {"changes": [{"setting": change.setting, "old": change.old, "new": change.new} for change in changes]}
    return [EventRecord("info", "setting", text, data)]


def forgotten(changes: Sequence[SettingChange], planned: Sequence[PlannedChange]) -> str:
    """A sentence about the recorded changes that a run which begins again at step 0 does not make again; empty when there are none.

    Args:
        changes: those on record.
        planned: those that ``ppo.schedule`` makes again.
    """
    again = {(change.step, change.setting, change.value) for change in planned}
    lost = [change for change in changes if (change.step, change.setting, change.new) not in again]
    parts = [S_(f"{LIVE_SETTINGS.get(change.setting, change.setting)} to {change.new:.6g} in step {change.step}") for change in lost]
    more = [S_(f"and {len(parts) - MOST_NAMED} more")] if len(parts) > MOST_NAMED else []
    return S_(f" Changes of settings that are not made again: {', '.join([*parts[:MOST_NAMED], *more])}.") if parts else ""


def _jump(before: Mapping[str, Any], now: PPOConfig, step: int) -> str:
    """How the learning rate goes on: a schedule that falls is computed over the new number of steps."""
    try:
        old = parse_ppo({"ppo": before.get("ppo", {})}).ppo
    except ConfigError:  # settings of another version
        return ""
    was, planned, will = _rate(old, max(step - 1, 0)), _rate(old, step), _rate(now, step)
    if planned == will:
        return ""
    return S_(f" The learning rate was {was:.3g} in step {step}; in step {step + 1} it is {will:.3g}, and would have been {planned:.3g}.")


def _rate(settings: PPOConfig, step: int) -> float:
    return settings.learning_rate * learning_rate_factor(step, settings.steps, settings.warmup_steps, settings.lr_schedule)
