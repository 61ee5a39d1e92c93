"""What the checks look at: a run's metrics as columns, and the recorded responses of some of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from rlhf_studio.analysis.doctor.phrases import Rising
from rlhf_studio.analysis.doctor.texts import MOST_RESPONSES, PhraseCounts
from rlhf_studio.config import RunConfig
from rlhf_studio.config.live import with_changes
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, RolloutRecord, SettingChange, StoredEvent

PAGE = 500
MOST_EVENTS = 2000


def is_looked_at(step: int) -> bool:
    """Whether the checks read this step's responses.

    Each of the first 20 steps, then every 5th up to 100, every 25th up to 1,000, every 250th after that: 72 of 1,000 steps. The rule
    does not depend on how long the run is, so that a later look does not change what an earlier one saw.
    """
    if step <= 20:
        return True
    return step % (5 if step <= 100 else 25 if step <= 1000 else 250) == 0


@dataclass(frozen=True)
class RunData:
    """A run up to its newest step, or up to an earlier one (:meth:`up_to`).

    Attributes:
        config: as it is saved with the run. What a step was trained with, :meth:`setting` says; the newest one, :attr:`in_force`.
        state, cause, device: as in :class:`~rlhf_studio.runs.records.RunStatus`.
        total_steps: planned.
        steps: the recorded steps, shape (S,).
        metrics: by name, float64, shape (S,); NaN where a step lacks it or its number is not finite.
        events: the run's diary; it keeps what was said of steps that were trained again since.
        step_events: those events that are of the steps as they are now.
        non_finite: (step, metric, NaN or an infinity) of every number that was not finite.
        responses: recorded responses by step, of the steps for which :func:`is_looked_at` holds.
        rising: by the same steps the phrase that had risen most since the start (None: no phrase is frequent), from all episodes where
            they were kept.
        watched_scores: scores of the answers to the watched prompts, by step (0 is the starting policy), each of shape (prompts,).
        checkpoints: steps that have a complete checkpoint.
        changes: the settings that were changed while the run went on, in order, those after the newest step too.
        reward_changes: (step, setting) of each setting of the reward that has another value after the step, in a fork or a resume.
        settings_known: false for a log of another program that does not give all settings: ``config`` has defaults then.
    """

    config: RunConfig
    state: str
    cause: str
    device: str
    total_steps: int
    steps: np.ndarray
    metrics: dict[str, np.ndarray]
    events: Sequence[StoredEvent] = ()
    step_events: Sequence[StoredEvent] = ()
    non_finite: Sequence[tuple[int, str, float]] = ()
    responses: dict[int, list[RolloutRecord]] = field(default_factory=dict)
    rising: dict[int, Rising | None] = field(default_factory=dict)
    watched_scores: dict[int, np.ndarray] = field(default_factory=dict)
    checkpoints: Sequence[int] = ()
    changes: Sequence[SettingChange] = ()
    reward_changes: Sequence[tuple[int, str]] = ()
    settings_known: bool = True
    reader: RunReader | None = None

    @property
    def ended(self) -> bool:
        """Whether no more steps come by themselves."""
        return self.state in ENDED

    @property
    def batch(self) -> int:
        """Episodes in a step; where the settings are not known, the most recorded responses of one."""
        recorded = max((len(rows) for rows in self.responses.values()), default=0)
        return self.config.ppo.batch_size if self.settings_known or not recorded else recorded

    def column(self, name: str) -> np.ndarray:
        """A metric by name, shape (S,); all NaN when the run has none of that name."""
        found = self.metrics.get(name)
        return np.full(len(self.steps), np.nan) if found is None else found

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
        place = max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)
        values = {name: float(self.setting(name)[place]) for name in {change.setting for change in self.changes}}
        return RunConfig.model_validate(with_changes(self.config.model_dump(mode="json"), values)) if values else self.config

    def has(self, name: str) -> bool:
        """Whether any step has a number for this metric."""
        return bool(np.isfinite(self.column(name)).any())

    @cached_property
    def looks(self) -> list[tuple[int, list[RolloutRecord]]]:
        """(step, its recorded responses), in order; steps without any are left out."""
        return [(step, rows) for step, rows in sorted(self.responses.items()) if rows]

    def up_to(self, step: int | None) -> RunData:
        """The same run as it was after an earlier step: still running, and without what came later. None changes nothing."""
        if step is None or not len(self.steps) or step >= self.steps[-1]:
            return self
        count = int(np.searchsorted(self.steps, step, side="right"))
        return replace(
            self,
            state="running",
            cause="",
            steps=self.steps[:count],
            metrics={name: column[:count] for name, column in self.metrics.items()},
            events=[event for event in self.events if event.step <= step],
            step_events=[event for event in self.step_events if event.step <= step],
            non_finite=[one for one in self.non_finite if one[0] <= step],
            responses={at: rows for at, rows in self.responses.items() if at <= step},
            rising={at: phrase for at, phrase in self.rising.items() if at <= step},
            watched_scores={at: scores for at, scores in self.watched_scores.items() if at <= step},
            checkpoints=[at for at in self.checkpoints if at <= step],
        )


class RunCache:
    """Reads a run, and afterwards only what is new in it. One for each run that is looked at again and again."""

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
        self._config: RunConfig | None = None
        self._watched: dict[int, np.ndarray] = {}
        self._watched_until = -1

    def read(self) -> RunData:
        """The run as it is now. Raises StoreError."""
        reader = self._reader
        with reader.snapshot():
            status = reader.status()
            if self._epoch != status.epoch:  # it went back to an earlier step: what is kept may be of steps that are trained again
                self._forget()
                self._epoch = status.epoch
            if self._config is None:
                self._config = reader.ppo_config()
            self._read_metrics()
            recorded = reader.rollout_steps()
            for step in filter(is_looked_at, recorded):
                if step not in self._responses:
                    self._responses[step] = reader.rollouts(step)[:MOST_RESPONSES]
            steps = [step for step, _ in self._rows]
            rising = self._phrases.read(steps, recorded, [step for step in steps if is_looked_at(step)])
            newest = self._events[-1].id if self._events else 0
            self._events += reader.events_since(newest, MOST_EVENTS)
            newest = self._step_events[-1].id if self._step_events else 0
            self._step_events += reader.events_since(newest, MOST_EVENTS, of="steps")
            if status.step != self._watched_until:
                self._watched, self._watched_until = _watched_scores(reader), status.step
            non_finite = reader.non_finite()
            changes = [change for change in reader.changes() if not self._config.live_problem(change.setting, change.new)]
        return RunData(
            config=self._config,
            state=status.state,
            cause=status.cause,
            device=status.device,
            total_steps=status.total_steps,
            steps=np.array(steps, dtype=np.int64),
            metrics=_columns(self._rows),
            events=list(self._events),
            step_events=list(self._step_events),
            non_finite=non_finite,
            responses=dict(self._responses),
            rising=rising,
            watched_scores=self._watched,
            checkpoints=[checkpoint.step for checkpoint in reader.checkpoints()],
            changes=changes,
            reward_changes=_reward_changes(reader, self._events),
            settings_known=reader.origin().settings_known,
            reader=reader,
        )

    def _read_metrics(self) -> None:
        while page := self._reader.metrics_since(self._rows[-1][0] if self._rows else 0, PAGE):
            self._rows += page


def _columns(rows: list[tuple[int, dict[str, float | None]]]) -> dict[str, np.ndarray]:
    names = {name for _, values in rows for name in values}
    columns = {name: np.full(len(rows), np.nan) for name in sorted(names)}
    for index, (_, values) in enumerate(rows):
        for name, value in values.items():
            if value is not None:
                columns[name][index] = value
    return columns


def _reward_changes(reader: RunReader, events: Sequence[StoredEvent]) -> list[tuple[int, str]]:
    """From the run's origin, and from its diary where that tells of the run as it goes now. A live change never is one of the reward."""
    origin = reader.origin()
    found = [] if origin.parent_step is None else [(origin.parent_step, setting) for setting in origin.changes]
    for event in events:
        names = [change.get("setting", "") for change in event.data.get("changes", [])] if event.kind == "setting" else []
        names = [name for name in names if name.startswith("reward.")]
        recorded = reader.recorded_at(event.step) if names else None
        if recorded is not None and recorded <= event.time:  # else the step was trained again since, with its own settings
            found += [(event.step, name) for name in names]
    return [(step, setting) for step, setting in found if setting.startswith("reward.")]


def _watched_scores(reader: RunReader) -> dict[int, np.ndarray]:
    found: dict[int, list[float]] = {}
    for step, record in reader.watched():
        found.setdefault(step, []).append(np.nan if record.score is None else record.score)
    width = max(map(len, found.values()), default=0)
    return {step: np.array(scores) for step, scores in found.items() if len(scores) == width}
