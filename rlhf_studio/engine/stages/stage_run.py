"""What the engine process needs of a run of any stage: its steps, its checkpoints, and how it goes on after an interruption.

Every stage is a :class:`StageRun`. :mod:`rlhf_studio.engine.process.worker` uses nothing else of a stage.
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
    """What is known before the first step: the starting model's answers to the watched prompts, and events for people."""

    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)


def _does_not_wait(phase: str, so_far: StepSoFar) -> None:
    """A step without phases waits for nobody."""


class StageRun(ABC):
    """A run in memory. Where several processes train, all of them call the same methods in the same order.

    A stage without phases, whose settings stay as they are while it goes on, has only the abstract methods to write.

    Attributes:
        compute: where it runs.
        after_phase: called at the end of each phase with its name and the results so far; it may wait. Only PPO has phases.
        has_phases: whether a step has phases that a person can stop between.
    """

    compute: Compute
    after_phase: Callable[[str, StepSoFar], None] = staticmethod(_does_not_wait)
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

    @property
    def learner(self) -> Any | None:
        """The model that learns; None in a stage where none does."""
        return None

    def check(self) -> EventRecord | None:
        """Compare the forward pass with the model's own, before training. Returns an event, or None. Raises ParityError."""
        return None

    @abstractmethod
    def begin(self, report: OnProgress) -> Beginning:
        """Measure the starting model. Called once, before the first step of a run."""

    def keep_start(self, reader: RunReader, writer: RunWriter) -> None:  # noqa: B027 - most stages compare no step with the start
        """Record what later steps are compared with. A run that goes on reads it from its own record."""

    @abstractmethod
    def step(self) -> StepRecord:
        """One step. Raises NonFiniteError or RewardError where the run is to stop."""

    def state(self) -> Any:
        """What a checkpoint of the newest step needs beside the weights, as it is now. All processes call it where weights are sharded."""
        return None

    def copy_of_weights(self) -> Callable[[], None] | None:
        """Copy what an update changes. Calling what is returned puts it back, bit for bit; None where a copy would be too large."""
        return None

    @abstractmethod
    def save(self, run_dir: Path, state: Any | None = None) -> Path | None:
        """Write the checkpoint of the newest step. Returns its folder.

        ``state`` is what :meth:`state` gave after that step; it is needed where another step has begun since. Where weights are sharded,
        all processes call this, and those that write nothing get None. Raises OSError.
        """

    def save_snapshot(self, run_dir: Path) -> None:  # noqa: B027 - an evaluation has no model of its own
        """Save the model alone, as it is after the newest step. All processes call it where weights are sharded. Raises OSError."""

    @abstractmethod
    def go_on_from(self, run_dir: Path, step: int | None) -> list[str]:
        """Continue from the checkpoint of ``step``; None for a run that ended before its first.

        Returns what may differ from the run before the interruption, one clause each. Raises CheckpointError and StoreError.
        """

    def changes_at_resume(self) -> EventRecord | None:
        """An event about the settings that differ from those of the checkpoint; None if all are equal."""
        return None

    def overruled(self) -> list[str]:
        """Names of settings whose recorded changes, in steps after the checkpoint, are not repeated."""
        return []

    def forgotten(self, reader: RunReader) -> str:
        """Which recorded changes of settings a start from step 0 does not repeat: a sentence with a space before it; empty without any."""
        return ""

    def recorded_so_far(self, phase: str, so_far: StepSoFar) -> list[RolloutRecord]:
        """The step's recorded episodes, with their numbers that are known after ``phase``."""
        return []

    def plan_change(self, setting: str, value: float, first: int) -> float:
        """Put a setting's new value into force from step ``first`` on. Returns its value until then.

        Raises ValueError in a stage whose settings stay: :meth:`StageConfig.live_problem` refuses it before.
        """
        raise ValueError(f"{setting} cannot change while a run of this stage goes on")


def ends_event(settings: GenerationConfig, ends: Ends, stops: tuple[int, ...]) -> EventRecord:
    """Says where answers end, for people and for the doctor (:mod:`rlhf_studio.analysis.doctor.checks.text`)."""
    return EventRecord("info", "ends", ends.sentence(settings, stops), {"ids": list(stops), "end": ends.end})
