"""What a person should know after a step, in one sentence each."""

from __future__ import annotations

import torch

from rlhf_studio.engine.recording.skips import skip_event
from rlhf_studio.engine.types import UpdateStats
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord

LARGEST_FIRST_LOG_RATIO = 1e-3  # in float32, before the first optimizer step
LOWEST_KL = -1.0  # nats per response


class Health:
    """Makes the events. Some are reported once per run: ``reported`` has their names, and a checkpoint has to keep it."""

    def __init__(self, dtype: torch.dtype, reported: set[str] | None = None):
        self._dtype, self.reported = dtype, reported or set()

    def events(self, kl: float, stats: UpdateStats | None, problems: list[str]) -> list[EventRecord]:
        """The events of a step.

        Args:
            kl: ``objective/kl``.
            stats: None when nothing was learned.
            problems: why minibatches were left out.
        """
        due: list[EventRecord | None] = []
        if problems:
            what = (
                S_("This update was")
                if stats is None
                else S_("1 minibatch was")
                if len(problems) == 1
                else S_(f"{len(problems)} minibatches were")
            )
            due.append(skip_event(what, problems[0], len(problems)))
        if stats and stats.stopped_early:
            due.append(EventRecord("info", "early_stop", "The passes over this batch ended early: the target KL was exceeded."))
        if stats and self._dtype is torch.float32 and stats.first_log_ratio > LARGEST_FIRST_LOG_RATIO:
            due.append(
                self._once("ratio", S_(f"Before the first update the ratio was off by {stats.first_log_ratio:.2g}; it should be 1."))
            )
        if kl < LOWEST_KL:
            due.append(
                self._once("negative_kl", S_("The KL is clearly negative: samples do not come from the distribution that is scored."))
            )
        return [event for event in due if event is not None]

    def _once(self, name: str, text: str) -> EventRecord | None:
        if name in self.reported:
            return None
        self.reported.add(name)
        return EventRecord("warning", "health", text)
