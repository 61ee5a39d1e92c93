"""A run as the engine process drives it, whatever its stage: steps, what is kept of them, and how it goes on after an interruption.

PPO and every other stage give the same :class:`StageRun`; :mod:`rlhf_studio.engine.process.worker` knows nothing else of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_studio.config import GenerationConfig, StageConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.types import OnProgress, StepSoFar
from rlhf_studio.inputs.ends import Ends
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter


@dataclass(frozen=True)
class Beginning:
    """What a run has before its first step: answers of the starting model to the watched prompts, and events for people."""

    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)


def _waits_for_nobody(phase: str, so_far: StepSoFar) -> None:
    """A step that no phase divides waits nowhere."""


class StageRun(ABC):
    """A run in memory. Where several processes train, all of them call the same methods in the same order.

    A stage without phases, whose settings stay as they are while it goes on, has only the abstract methods to write.

    Attributes:
        compute: where it runs.
        after_phase: called with the name of a phase that is done and what the step has found; it may wait. Only PPO has phases.
        has_phases: whether a step has phases that a person can stop between.
    """

    compute: Compute
    after_phase: Callable[[str, StepSoFar], None] = staticmethod(_waits_for_nobody)
    has_phases = False

    @property
    @abstractmethod
    def config(self) -> StageConfig:
        """The settings in force."""

    @property
    @abstractmethod
    def step_number(self) -> int:
        """The newest step that is done."""

    @property
    @abstractmethod
    def total_steps(self) -> int:
        """How many steps the run has."""

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step_number >= self.total_steps

    @property
    def people(self) -> Sequence[Any]:
        """The reward components that ask people for ratings."""
        return ()

    def check(self) -> EventRecord | None:
        """Compare the forward pass with the model's own, before training; None where there is nothing to say. Raises ParityError."""
        return None

    @abstractmethod
    def begin(self, report: OnProgress) -> Beginning:
        """What is known of the starting model. Called once, before the first step of a run."""

    def keep_start(self, reader: RunReader, writer: RunWriter) -> None:  # noqa: B027 - most stages compare no step with the start
        """Store what later steps are compared with, or take it from the record of a run that goes on."""

    @abstractmethod
    def step(self) -> StepRecord:
        """One step. Raises NonFiniteError or RewardError where the run is to stop."""

    def state(self) -> Any:
        """What a checkpoint of the newest step needs beside the weights, as it is now. All processes call it where weights are sharded."""
        return None

    @abstractmethod
    def save(self, run_dir: Path, state: Any | None = None) -> Path | None:
        """Write the checkpoint of the newest step; ``state`` as it was then, where a step has begun since. Returns its folder.

        Processes that write nothing go along where weights are sharded, and get None. Raises OSError.
        """

    def save_snapshot(self, run_dir: Path) -> None:  # noqa: B027 - an evaluation has no model of its own
        """Keep the model alone, as it is after the newest step. Processes that write nothing go along. Raises OSError."""

    @abstractmethod
    def go_on_from(self, run_dir: Path, step: int | None) -> list[str]:
        """Take over the checkpoint of ``step``; None for a run that ended before its first.

        Returns what may differ from before, a clause each. Raises CheckpointError and StoreError.
        """

    def changes_at_resume(self) -> EventRecord | None:
        """What this start has changed in the settings of the checkpoint that it goes on from; None where nothing."""
        return None

    def overruled(self) -> list[str]:
        """The settings whose recorded changes, after the checkpoint, are not made again."""
        return []

    def forgotten(self, reader: RunReader) -> str:
        """What a start from the beginning no longer does, as a sentence with a blank before it; empty where nothing."""
        return ""

    def recorded_so_far(self, phase: str, so_far: StepSoFar) -> list[RolloutRecord]:
        """The step's recorded episodes with what is known of them after ``phase``."""
        return []

    def plan_change(self, setting: str, value: float, first: int) -> float:
        """Put a setting's new value into force from step ``first`` on. Returns its value until then.

        Raises ValueError in a stage whose settings stay: :meth:`StageConfig.live_problem` refuses it before.
        """
        raise ValueError(f"{setting} cannot change while a run of this stage goes on")


def ends_event(settings: GenerationConfig, ends: Ends, stops: tuple[int, ...]) -> EventRecord:
    """Says where answers end, for people and for the doctor (:mod:`rlhf_studio.analysis.doctor.checks.text`)."""
    return EventRecord("info", "ends", ends.sentence(settings, stops), {"ids": list(stops), "end": ends.end})
