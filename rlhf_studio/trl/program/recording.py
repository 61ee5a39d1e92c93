"""The run folder of a program: Live, the inspector and the doctor show it while the program runs.

The steps are committed by the engine's own writer, and requests of the page (stop, pause, checkpoint, other settings) are carried out by
the engine's own control, between two steps.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.engine.process.trackers import TrackedRun, Trackers
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.stages.ppo import GivenStage
from rlhf_studio.engine.types import NonFiniteError, Rollout, Samples, Scores, StepSoFar, UpdateStats
from rlhf_studio.runs.create import create_run, this_program
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.paths import new_run_id
from rlhf_studio.runs.records import EventRecord, Origin, StepRecord, WatchRecord
from rlhf_studio.runs.writer import Heartbeat, RunWriter
from rlhf_studio.trl.program.settings import Settings
from rlhf_studio.visible import say

WORKSPACE = "RLHF_STUDIO_WORKSPACE"


class ProgramStopped(SystemExit):
    """Somebody has asked on the page that the run stops: it is saved, and the program ends here unless it catches this."""


class Recording:
    """One run folder, from before the first step to the end of the program.

    Attributes:
        run_dir: the folder.
        listener: told of each phase of a step, before what comes next.
    """

    def __init__(self, trainer: Trainer, settings: Settings, run_dir: Path | None, total: int):
        """Make the folder: ``run_dir``, or a new one in the workspace. Raises StoreError."""
        self.run_dir = Path(run_dir) if run_dir else Path(os.environ.get(WORKSPACE) or "workspace") / "runs" / new_run_id()
        config = settings.config
        create_run(self.run_dir, config, name=config.name, state="loading", origin=Origin(program=this_program()))
        self._lock = EngineLock(self.run_dir)
        self._lock.acquire()
        self._writer = RunWriter(self.run_dir)
        self._beat = Heartbeat(self.run_dir)
        self._beat.start()
        self._planned = self._total = total
        self._writer.plan(total)
        self._writer.set_state("running", device=trainer.compute.describe())
        self._stage = GivenStage(trainer)
        self._control = Control(self._stage, self._writer, Signals(), self._checkpoint_when_asked)
        self._stage.after_phase = self._after_phase
        self._trackers = Trackers(config.engine.trackers, TrackedRun.of(self.run_dir, config, None), self._writer.event)
        self._so_far: StepSoFar | None = None
        self.listener: Callable[[str, StepSoFar], None] = lambda phase, so_far: None
        self._saved_step, self._ended = 0, False
        for line in settings.differs:
            self.event("info", "differs", f"{line}.")
        say(f"run folder: {self.run_dir}")

    def end_with(self, owner: object) -> None:
        """End the recording when ``owner`` is gone, at the latest when the program ends."""
        weakref.finalize(owner, self.end)

    def event(self, level: Any, kind: str, text: str) -> None:
        """A line for people."""
        self._writer.event(EventRecord(level, kind, text))

    def checked(self, event: EventRecord) -> None:
        """Record what the check before training has found."""
        self._writer.event(event)

    def before_step(self) -> None:
        """Carry out what people have asked for on the page. Raises :class:`ProgramStopped`."""
        if self._ended:
            raise ValueError(f"the recording in {self.run_dir} has ended; build a new PPOTrainer")
        try:
            self._control.before_step()
        except StopRequested as stop:
            raise self._stopped(stop) from None

    def step(self, given: tuple[Samples, Scores] | None) -> StepRecord:
        """Learn, and commit the step. Raises :class:`ProgramStopped`, NonFiniteError, RewardError, ParityError and StoreError."""
        self._stage.given = given
        try:
            record = self._control.step()
            self._writer.commit_step(record)
        except StopRequested as stop:
            raise self._stopped(stop) from None
        except (NonFiniteError, RewardError, ParityError, StoreError, RuntimeError, ValueError) as error:
            self.end(error)
            raise
        finally:
            self._stage.given = None
        self._control.after_step(record.step)
        self._trackers.step(record)
        if record.step > self._total:  # a program may go through its data again
            self._total += self._planned
            self._writer.plan(self._total)
        return record

    def found(self) -> tuple[Rollout, UpdateStats | None]:
        """What the newest step has found, once: it is not kept for longer."""
        so_far, self._so_far = self._so_far, None
        assert so_far is not None and so_far.rollout is not None
        return so_far.rollout, so_far.stats

    def watched(self, step: int, answers: list[WatchRecord]) -> None:
        """Answers to prompts that training does not draw."""
        if self._ended:
            return
        self._writer.watched(step, answers)
        self._trackers.watched(step, answers)

    def _checkpoint_when_asked(self, state: Any | None) -> None:
        self.checkpoint(state)

    def checkpoint(self, state: Any | None = None) -> Path | None:
        """Write a checkpoint of the last finished step; None where there is one already, or no step."""
        step = self._stage.step_number
        if step == self._saved_step or self._ended:
            return None
        self._writer.check_folder()
        folder = self._stage.save(self.run_dir, state)
        self._saved_step = step
        self._writer.event(EventRecord("info", "checkpoint", f"Checkpoint of step {step} written.", {"step": step}))
        return folder

    def end(self, error: BaseException | None = None) -> None:
        """Record that the program has ended: finished, or failed with what it was that ended it."""
        if self._ended:
            return
        error = error or _ended_by()
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._close("stopped", "")
        elif error is not None:
            cause = f"{type(error).__name__}: {error}. The program ended with it; run the program again"
            self._writer.event(EventRecord("error", "failure", cause))
            self._close("failed", cause)
        else:
            self._close("finished", "")

    def _stopped(self, stop: StopRequested) -> ProgramStopped:
        Signals().record(self._writer, str(stop), stop.cause)
        self._close("", "")
        return ProgramStopped(f"stopped: {stop}. The checkpoint of step {self._saved_step} is in {self.run_dir}")

    def _close(self, state: Any, cause: str) -> None:
        self._ended = True
        if state:
            self._writer.set_state(state, cause=cause)
        self._trackers.close()
        self._beat.stop()
        self._writer.close()
        self._lock.release()

    def _after_phase(self, phase: str, so_far: StepSoFar) -> None:
        self._so_far = so_far
        self.listener(phase, so_far)
        self._control.after_phase(phase, so_far)


def _ended_by() -> BaseException | None:
    """The exception that ends the program; None where there is none, and in a notebook, where one ends a cell only."""
    if hasattr(sys, "ps1") or "IPython" in sys.modules:
        return None
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
