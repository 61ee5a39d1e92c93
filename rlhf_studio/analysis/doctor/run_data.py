"""What the checks look at: a run's metrics as columns, and the recorded responses of some of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from rlhf_studio.analysis.doctor.phrases import Rising
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.texts import MOST_RESPONSES, PhraseCounts
from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.live import with_changes
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, SettingChange, StoredEvent
from rlhf_studio.runs.rows import EventsOf

PAGE = 500
NO_SPREAD = 1e-6
"""Points: scores that differ by no more are equal up to rounding, and nothing is there to move the policy."""
ENOUGH = 64
"""Responses that a mean is taken over before a check that looks at every step compares it: in small batches over more steps."""


def is_looked_at(step: int) -> bool:
    """Whether the checks read this step's responses.

    Each of the first 20 steps, then every 5th up to 100, every 25th up to 1,000, every 250th after that: 72 of 1,000 steps. The rule
    does not depend on how long the run is, so that a later look does not change what an earlier one saw.
    """
    if step <= 20:
        return True
    return step % (5 if step <= 100 else 25 if step <= 1000 else 250) == 0


@dataclass(frozen=True)
class RunData(RecordedRun):
    """A PPO run up to its newest step, or up to an earlier one (:meth:`up_to`).

    Attributes:
        config: as it is saved with the run. :meth:`setting` has what each step was trained with, :attr:`in_force` what the newest was.
        responses: recorded responses by step, of the steps for which :func:`is_looked_at` holds.
        rising: for the same steps and for the newest one the phrase that rose most since the start (None: no phrase is frequent), from all
            episodes where they are recorded. The newest step is there because the page also shows what was learned up to it.
        watched_scores: scores of the answers to the watched prompts, by step (0 is the starting policy), each of shape (prompts,).
        changes: the settings that were changed during the run, in order; also those after the newest step.
        reward_changes: (step, setting) of each setting of the reward that has another value after the step, in a fork or a resume.
    """

    config: RunConfig
    responses: dict[int, list[RolloutRecord]] = field(default_factory=dict)
    rising: dict[int, Rising | None] = field(default_factory=dict)
    watched_scores: dict[int, np.ndarray] = field(default_factory=dict)
    changes: Sequence[SettingChange] = ()
    reward_changes: Sequence[tuple[int, str]] = ()

    @property
    def batch(self) -> int:
        """Episodes in a step; where the settings are not known, the largest number of recorded responses of a step."""
        recorded = max((len(rows) for rows in self.responses.values()), default=0)
        return self.config.ppo.batch_size if self.settings_known or not recorded else recorded

    def steps_of(self, responses: int) -> int:
        """How many steps together have so many responses, at least 1. Fewer responses differ mostly by chance."""
        return max(1, -(-responses // max(1, self.batch)))

    def setting(self, name: str) -> np.ndarray:
        """A setting that may change while a run goes on (``ppo.kl_target``), as each step was trained with it, shape (S,)."""
        section, key = name.split(".")
        own = [change for change in self.changes if change.setting == name]
        start = getattr(getattr(self.config, section), key)
        if own and not self.config.live_problem(name, own[0].old):  # a resume may have changed the saved configuration too
            start = own[0].old
        values = np.full(len(self.steps), float(start))
        for change in own:
            values[self.steps >= change.step] = float(change.new)
        return values

    @cached_property
    def in_force(self) -> RunConfig:
        """The settings that the newest step was trained with: a remedy starts from them."""
        return self.config_at(int(self.steps[-1])) if len(self.steps) else self.config

    def config_at(self, step: int) -> RunConfig:
        """The settings that a step was trained with; those of the first step for steps before it."""
        if not len(self.steps):
            return self.config
        index = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        values = {name: float(self.setting(name)[index]) for name in {change.setting for change in self.changes}}
        return RunConfig.model_validate(with_changes(self.config.model_dump(mode="json"), values)) if values else self.config

    @property
    def begins(self) -> list[int]:
        newest = int(self.steps[-1]) if len(self.steps) else 0
        return [0, *sorted({change.step for change in self.changes if 1 < change.step <= newest})]

    @cached_property
    def looks(self) -> list[tuple[int, list[RolloutRecord]]]:
        """(step, its recorded responses), in order; steps without any are left out."""
        return [(step, rows) for step, rows in sorted(self.responses.items()) if rows]

    def up_to(self, step: int | None) -> Self:
        cut = super().up_to(step)
        if cut is self or step is None:
            return self
        return replace(
            cut,
            responses={at: rows for at, rows in self.responses.items() if at <= step},
            rising={at: phrase for at, phrase in self.rising.items() if at <= step},
            watched_scores={at: scores for at, scores in self.watched_scores.items() if at <= step},
        )


class RunCache:
    """Reads a run; each later call reads only what is new. Use one object for each run that is followed."""

    def __init__(self, reader: RunReader):
        self._reader = reader
        self._forget()

    def _forget(self) -> None:
        self._epoch: int | None = None
        self._rows: list[tuple[int, dict[str, float | None]]] = []
        self._responses: dict[int, list[RolloutRecord]] = {}
        self._phrases = PhraseCounts(self._reader)
        self._events: list[StoredEvent] = []
        self._step_events: list[StoredEvent] = []
        self._config: StageConfig | None = None
        self._watched: dict[int, np.ndarray] = {}
        self._watched_until = -1

    def read(self, until: int | None = None) -> RecordedRun:
        """The run as it was after a step, or as it is now: of PPO a :class:`RunData`. Raises StoreError."""
        reader = self._reader
        with reader.snapshot():
            status = reader.status()
            if self._epoch != status.epoch:  # the run went back to an earlier step: what was read may be of steps that are trained again
                self._forget()
                self._epoch = status.epoch
            if self._config is None:
                self._config = reader.config()
            self._read_metrics()
            self._read_events(self._events, "all")
            self._read_events(self._step_events, "steps")
            own = self._of_ppo(self._config, status.step, until) if isinstance(self._config, RunConfig) else {}
            kind = RunData if own else RecordedRun
            read = kind(
                config=self._config,  # type: ignore[arg-type]  # a RunConfig in a RunData
                state=status.state,
                cause=status.cause,
                device=status.device,
                total_steps=status.total_steps,
                steps=np.array([step for step, _ in self._rows], dtype=np.int64),
                metrics=_columns(self._rows),
                events=list(self._events),
                step_events=list(self._step_events),
                non_finite=reader.non_finite(),
                checkpoints=[checkpoint.step for checkpoint in reader.checkpoints()],
                origin=reader.origin(),
                reader=reader,
                **own,
            )
            return read.up_to(until)

    def _of_ppo(self, config: RunConfig, step: int, until: int | None) -> dict[str, Any]:
        """What only a PPO run has: keyword arguments of :class:`RunData`."""
        reader, recorded = self._reader, self._reader.rollout_steps()
        for at in filter(is_looked_at, recorded):
            if at not in self._responses:
                self._responses[at] = reader.rollouts(at)[:MOST_RESPONSES]
        steps = [at for at, _ in self._rows]
        if step != self._watched_until:
            self._watched, self._watched_until = _watched_scores(reader), step
        return {
            "responses": dict(self._responses),
            "rising": self._phrases.read(steps, recorded, _looked_at(steps, until)),
            "watched_scores": self._watched,
            "changes": [change for change in reader.changes() if not config.live_problem(change.setting, change.new)],
            "reward_changes": reward_changes(reader, self._events),
        }

    def _read_metrics(self) -> None:
        while page := self._reader.metrics_since(self._rows[-1][0] if self._rows else 0, PAGE):
            self._rows += page

    def _read_events(self, events: list[StoredEvent], of: EventsOf) -> None:
        while page := self._reader.events_since(events[-1].id if events else 0, PAGE, of=of):
            events += page


def _looked_at(steps: Sequence[int], until: int | None) -> list[int]:
    """The steps at which phrases are counted: those for which :func:`is_looked_at` holds, and the newest that is spoken of."""
    until = until if until is not None else steps[-1] if steps else 0
    newest = max((at for at in steps if at <= until), default=None)
    return [at for at in steps if is_looked_at(at) or at == newest]


def _columns(rows: list[tuple[int, dict[str, float | None]]]) -> dict[str, np.ndarray]:
    names = {name for _, values in rows for name in values}
    columns = {name: np.full(len(rows), np.nan) for name in sorted(names)}
    for index, (_, values) in enumerate(rows):
        for name, value in values.items():
            if value is not None:
                columns[name][index] = value
    return columns


def reward_changes(reader: RunReader, events: Sequence[StoredEvent]) -> list[tuple[int, str]]:
    """From the run's origin, and from events of the steps as they are now. Live changes never concern the reward."""
    origin = reader.origin()
    changes = [] if origin.parent_step is None else [(origin.parent_step, setting) for setting in origin.changes]
    for event in events:
        names = [change.get("setting", "") for change in event.data.get("changes", [])] if event.kind == "setting" else []
        names = [name for name in names if name.startswith("reward.")]
        recorded = reader.recorded_at(event.step) if names else None
        if recorded is not None and recorded <= event.time:  # else the step was trained again since, with its own settings
            changes += [(event.step, name) for name in names]
    return [(step, setting) for step, setting in changes if setting.startswith("reward.")]


def _watched_scores(reader: RunReader) -> dict[int, np.ndarray]:
    by_step: dict[int, list[float]] = {}
    for step, record in reader.watched():
        by_step.setdefault(step, []).append(np.nan if record.score is None else record.score)
    width = max(map(len, by_step.values()), default=0)
    return {step: np.array(scores) for step, scores in by_step.items() if len(scores) == width}
