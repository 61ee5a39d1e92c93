"""Whether score and gold of a run that goes on may share an axis: the replay's own rule, asked again and again."""

from __future__ import annotations

import math

from rlhf_studio.analysis.doctor.run_data import is_looked_at, reward_changes
from rlhf_studio.analysis.doctor.texts import MOST_RESPONSES
from rlhf_studio.analysis.replay.answers import shapes
from rlhf_studio.analysis.replay.payload import FIRST_JUDGED, on_one_scale
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, StoredEvent

PAGE = 500


class OneScale:
    """Reads the responses that the rule looks at, each once, and no more than it needs. Use one object for each epoch of a run."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._rows: list[RolloutRecord] = []
        self._judged, self._until = 0, -1

    def read(self, recorded: list[int]) -> bool:
        """The same answer as a replay's ``one_scale``; ``recorded`` are the steps that have responses now. Raises StoreError."""
        config = self._reader.config()
        if not isinstance(config, RunConfig):
            return False
        for step in filter(is_looked_at, recorded):
            if step > self._until and not self.is_settled:
                self._until = step
                self._rows += (rows := self._reader.rollouts(step)[:MOST_RESPONSES])
                self._judged += sum(row.gold is not None and math.isfinite(row.gold) and math.isfinite(row.score) for row in rows)
        known = self._reader.origin().settings_known
        return on_one_scale(self._rows, shaped=known and shapes(config, reward_changes(self._reader, self._events())))

    @property
    def is_settled(self) -> bool:
        """Whether later responses change nothing."""
        return self._judged >= FIRST_JUDGED

    def _events(self) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while page := self._reader.events_since(events[-1].id if events else 0, PAGE):
            events += page
        return events
