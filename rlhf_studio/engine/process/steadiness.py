"""Whether a run is stable in its first steps: said once, and where the person allowed it, the run begins again with a lower rate."""

from __future__ import annotations

from math import nan
from pathlib import Path

from rlhf_studio.config import StageConfig
from rlhf_studio.config.stability import early_step, unstable
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord, StepRecord


class Unstable(Exception):
    """The run begins again with a lower rate; the text says why."""


class Steadiness:
    """Looks at the steps of one start of the engine, in order."""

    def __init__(self, config: StageConfig):
        self._config = config
        self._first_loss, self._spoken = nan, False

    def look(self, record: StepRecord) -> str:
        """Why this step shows that the run is not stable, the first time that one does; else empty."""
        left_out = sum(event.data.get("minibatches", 0) for event in record.events)
        step = early_step(self._config, record.step, record.metrics, left_out, self._first_loss)
        if record.step == 1:
            self._first_loss = step.loss
        why = "" if self._spoken else unstable(self._config, step)
        self._spoken = self._spoken or bool(why)
        return why


def unstable_event(changes: dict[str, float], why: str, run_dir: Path | None) -> EventRecord:
    """That the run is not stable, and the fork with the ``changes``; a trial, without ``run_dir``, says in its end what would be better."""
    ((setting, rate),) = changes.items()
    fork = S_(f" A lower rate may be: python -m rlhf_studio fork {run_dir} --{setting} {rate:g}") if run_dir else ""
    return EventRecord("warning", "unstable", f"Not stable: {why}.{fork}", {"changes": changes})


def restart_event(before: StageConfig, after: StageConfig, why: str) -> EventRecord:
    """That the run begins again by itself, and with what."""
    setting, left = f"{before.stage}.learning_rate", after.engine.restart_if_unstable
    old, rate = (getattr(config, before.stage).learning_rate for config in (before, after))
    more = S_("once more") if left else S_("no more")
    text = S_(f"It begins again with {setting} {rate:g} in place of {old:g}, as engine.restart_if_unstable allows; {more} after that.")
    return EventRecord("warning", "restart", f"Not stable: {why}. {text}", {"changes": [{"setting": setting, "old": old, "new": rate}]})
