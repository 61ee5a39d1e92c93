"""The checks before a run learns anything: of its forward passes at once, and of its first rollout when it has been sampled."""

from __future__ import annotations

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.parity.first_rollout import check_first_rollout
from rlhf_studio.engine.types import Rollout
from rlhf_studio.runs.records import EventRecord


def check_before_training(trainer: Trainer) -> EventRecord:
    """Compare every forward pass with the models' own, and give the trainer the check of its first rollout. Returns an event.

    All ranks call this. Raises :class:`ParityError` where a model's numbers are not its own.
    """
    report = check_parity(trainer.models, trainer.prompts)

    def check(rollout: Rollout) -> list[EventRecord]:
        at_start = trainer.progress.step == 0
        warning = check_first_rollout(trainer.models, rollout, report.scale, report.noise, at_start=at_start)
        return [EventRecord("warning", "health", warning)] if warning else []

    trainer.first_rollout_check = check
    return EventRecord("info", "health", report.sentence())
