"""What the checks look at in a run of any stage: its metrics as columns, its events, its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rlhf_studio.config import StageConfig
from rlhf_studio.config.stability import early_step, last_early_step, unstable
from rlhf_studio.language import _, told
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, Origin, StoredEvent


@dataclass(frozen=True)
class RecordedRun:
    """A run up to its newest step, or up to an earlier one (:meth:`up_to`).

    Attributes:
        config: as it is saved with the run.
        state, cause, device: as in :class:`~rlhf_studio.runs.records.RunStatus`.
        total_steps: planned.
        steps: the recorded steps, shape (S,).
        metrics: by name, float64, shape (S,); NaN where a step lacks it or its number is not finite.
        events: all events of the run, also those of steps that were trained again later.
        step_events: only the events of the steps as they are now.
        non_finite: (step, metric, NaN or an infinity) of every number that was not finite.
        checkpoints: steps that have a complete checkpoint.
        origin: who trains it, and which of its settings are known.
    """

    config: StageConfig
    state: str
    cause: str
    device: str
    total_steps: int
    steps: np.ndarray
    metrics: dict[str, np.ndarray]
    events: Sequence[StoredEvent] = ()
    step_events: Sequence[StoredEvent] = ()
    non_finite: Sequence[tuple[int, str, float]] = ()
    checkpoints: Sequence[int] = ()
    origin: Origin = Origin()
    reader: RunReader | None = field(default=None, compare=False)

    @property
    def settings_known(self) -> bool:
        """False where another program has trained it and does not give all settings; then ``config`` has defaults."""
        return self.origin.settings_known

    @property
    def ended(self) -> bool:
        """Whether no more steps come by themselves."""
        return self.state in ENDED

    @property
    def closed(self) -> bool:
        """Whether nobody can add a step to it here: it ended, and only others could train it."""
        return self.ended and bool(self.origin.only_read)

    @property
    def over(self) -> bool:
        """Whether it is done: it finished, or ended at its last planned step. One that was stopped before can go on."""
        newest = int(self.steps[-1]) if len(self.steps) else 0
        return self.ended and (self.state == "finished" or 0 < self.total_steps <= newest)

    @property
    def broke_off(self) -> str:
        """How and when a run ended that is not over, such as "was stopped after step 30 of 60"; empty for all others."""
        if not self.ended or self.over or not len(self.steps):
            return ""
        if self.total_steps:
            words = {
                "failed": _("failed after step {step:,} of {total:,}"),
                "stopped": _("was stopped after step {step:,} of {total:,}"),
                "interrupted": _("was interrupted after step {step:,} of {total:,}"),
            }
        else:
            words = {
                "failed": _("failed after step {step:,}"),
                "stopped": _("was stopped after step {step:,}"),
                "interrupted": _("was interrupted after step {step:,}"),
            }
        return words[self.state].format(step=int(self.steps[-1]), total=self.total_steps)

    def column(self, name: str) -> np.ndarray:
        """A metric by name, shape (S,); all NaN when the run has none of that name."""
        column = self.metrics.get(name)
        return np.full(len(self.steps), np.nan) if column is None else column

    def own(self, name: str) -> np.ndarray:
        """A metric of the run's stage, such as ``loss`` for ``sft/loss``, shape (S,)."""
        return self.column(f"{self.config.stage}/{name}")

    def has(self, name: str) -> bool:
        """Whether any step has a number for this metric."""
        return bool(np.isfinite(self.column(name)).any())

    def setting(self, name: str) -> np.ndarray:
        """A number among the settings (``sft.learning_rate``), as each step was trained with it, shape (S,)."""
        section, key = name.split(".")
        return np.full(len(self.steps), float(getattr(getattr(self.config, section), key)))

    @property
    def in_force(self) -> StageConfig:
        """The settings that the newest step was trained with."""
        return self.config

    def config_at(self, step: int) -> StageConfig:
        """The settings that a step was trained with."""
        return self.config

    @property
    def begins(self) -> list[int]:
        """The first steps of every part of the run that had settings of its own; 0 is the beginning."""
        return [0]

    def event_data(self, kind: str) -> dict[str, Any]:
        """The data of the newest event of a kind; empty without one."""
        return next((event.data for event in reversed(self.events) if event.kind == kind), {})

    @property
    def weights(self) -> int | None:
        """How many weights the model that learns has; None where the run does not say."""
        weights: int | None = self.event_data("memory").get("weights")
        return weights

    @property
    def examples(self) -> int | None:
        """How many examples a run learns from; None where it does not say, and in PPO."""
        examples: int | None = self.event_data("examples").get("examples")
        return examples

    def up_to(self, step: int | None) -> Self:
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
            non_finite=[row for row in self.non_finite if row[0] <= step],
            checkpoints=[at for at in self.checkpoints if at <= step],
        )


def why_unstable(run: RecordedRun, config: StageConfig) -> list[str]:
    """Of each step why it shows that a run with these settings is not stable, length S; empty where it does not."""
    left_out = dict.fromkeys(run.steps.tolist(), 0)
    for event in run.step_events:
        if event.step in left_out:
            left_out[event.step] += event.data.get("minibatches", 0)
    names = ("objective/kl", "tokens/response_length", f"{config.stage}/loss")
    columns = {name: run.column(name) for name in names if run.has(name)}
    first_loss = float(columns[names[2]][0]) if names[2] in columns else float("nan")
    reasons = [""] * len(run.steps)
    for place, step in enumerate(run.steps[run.steps <= last_early_step(config)].tolist()):
        metrics = {name: float(column[place]) for name, column in columns.items()}
        reasons[place] = told(unstable(config, early_step(config, step, metrics, left_out[step], first_loss)))
    return reasons
