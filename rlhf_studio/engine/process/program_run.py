"""The run of a person's own program: its folder, in which Live, the inspector and the doctor see it while the program goes on.

The program makes the steps. The engine's own writer commits them, and the engine's own control carries out what people ask for on the page
(stop, pause, checkpoint, other settings) between two steps.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RunConfig
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.process.notify import Notifier
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.engine.process.trackers import TrackedRun, Trackers
from rlhf_studio.engine.stages.ppo import GivenStage
from rlhf_studio.engine.types import Samples, Scores, StepSoFar
from rlhf_studio.language import S_
from rlhf_studio.runs.create import create_run, this_program
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.program_end import end_of, watch_exit, what_ended_the_program
from rlhf_studio.runs.records import EventRecord, Origin, State, StepRecord, WatchRecord
from rlhf_studio.runs.writer import write_run
from rlhf_studio.visible import say


class ProgramRun:
    """One run folder, from before the first step until the run ends, at the latest with the program.

    Args:
        config: the settings as the folder shows them.
        name: of the run, for people.
        stopped: the exception that a stop on the page becomes in the program.
        left: the state of a run whose program ends, or drops it, before all planned steps are done.
        files: further files of the folder, by name.
        permissions: whose addresses ``engine.notify`` may name.

    Attributes:
        run_dir: the folder.
        failure: why the run failed; empty while it has not.
        listener: told of each phase of a step, before what comes next.
    """

    def __init__(
        self,
        trainer: Trainer,
        run_dir: Path,
        config: RunConfig,
        *,
        name: str,
        stopped: Callable[[str], BaseException],
        left: Literal["finished", "stopped"],
        files: Mapping[str, bytes] | None = None,
        permissions: Permissions = NOTHING_ALLOWED,
    ):
        """Make the folder. Raises StoreError, as where it exists already; nothing is left then."""
        create_run(run_dir, config, name=name, state="loading", origin=Origin(program=this_program()), files=files)
        self.run_dir, self.failure, self._closed, self._process = run_dir, "", False, os.getpid()
        self.listener: Callable[[str, StepSoFar], None] = lambda phase, so_far: None
        self._config, self._stopped, self._left = config, stopped, left
        self._planned = self._total = config.ppo.steps
        self._stage, self._saved_step = GivenStage(trainer), 0
        self._so_far: StepSoFar | None = None
        with contextlib.ExitStack() as opened:
            self._writer = opened.enter_context(write_run(run_dir))
            self._writer.plan(self._total)
            self._writer.set_state("running", device=trainer.compute.describe())
            self._trackers = Trackers(config.engine.trackers, TrackedRun.of(run_dir, config, None), self._told)
            opened.callback(self._trackers.close)
            self._notifier = Notifier(run_dir, name, config, permissions, self._told)
            opened.callback(self._notifier.close)
            self._opened = opened.pop_all()
        self._control = Control(self._stage, self._writer, Signals(), self.checkpoint)
        self._stage.after_phase = self._after_phase

    @property
    def ended(self) -> bool:
        """Whether nothing is recorded any more. A forked process records nothing: the folder is its parent's."""
        return self._closed or os.getpid() != self._process

    def end_with(self, owner: object) -> None:
        """End the run when ``owner`` is gone, at the latest when the program ends."""
        watch_exit()
        weakref.finalize(owner, self.end)

    def event(self, event: EventRecord) -> None:
        """A line for people."""
        self._writer.event(event)

    def watched(self, step: int, answers: Sequence[WatchRecord]) -> None:
        """Answers to prompts that training does not draw."""
        if not self.ended:
            self._writer.watched(step, answers)
            self._trackers.watched(step, answers)

    def before_step(self) -> None:
        """Carry out what people have asked for on the page. Raises what ``stopped`` makes."""
        with self.recorded():
            self._control.before_step()

    def step(
        self, given: tuple[Samples, Scores] | None = None, measure: Callable[[StepRecord], StepRecord] = lambda record: record
    ) -> tuple[StepRecord, StepSoFar]:
        """One step, committed: its record, and all that it has computed. Call :meth:`before_step` first.

        ``measure`` gives the record with what the program measures itself after the step, before it is committed.

        Raises what ``stopped`` makes when somebody has asked for a stop; whatever else it raises is the run's end on record too.
        """
        self._stage.given = given
        with self.recorded():
            try:
                record = measure(self._control.step())
            finally:
                self._stage.given = None
            self._writer.commit_step(record)
            self._notifier.alarms(record.events, record.step)
            self._control.after_step(record.step)
            self._trackers.step(record)
            if record.step > self._total:  # a program may go through its data again
                self._total += self._planned
                self._writer.plan(self._total)
            every = self._stage.config.engine.checkpoint_every
            if every and record.step % every == 0:
                self.checkpoint()
        so_far, self._so_far = self._so_far, None  # the program's own from here on
        assert so_far is not None
        return record, so_far

    def checkpoint(self, state: Any | None = None) -> None:
        """Write a checkpoint of the last finished step, where there is none yet."""
        step = self._stage.step_number
        if step == self._saved_step or self.ended:
            return
        self._writer.check_folder()
        self._stage.save(self.run_dir, state)
        self._saved_step = step
        self._writer.event(EventRecord("info", "checkpoint", f"Checkpoint of step {step} written.", {"step": step}))

    def end(self, error: BaseException | None = None) -> None:
        """Record how the run ended: done, left before that, or failed with ``error``, or with what has ended the program."""
        error = error or what_ended_the_program()
        state, cause = end_of(error) if error is not None else (None, "")
        if state == "failed":
            self.failure = cause.rstrip(".")
            cause = S_(f"{self.failure}. Run the program again")
        self._close(state or ("finished" if self._stage.finished else self._left), cause)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """A block whose errors end the run, on record."""
        try:
            yield
        except StopRequested as stop:
            Signals().record(self._writer, str(stop), stop.cause)
            self._close(None, stop.cause)
            where = S_(f". The checkpoint of step {self._saved_step} is in {self.run_dir}") if self._saved_step else ""
            raise self._stopped(f"stopped: {stop}{where}") from None
        except (Exception, SystemExit) as error:
            self.end(error)
            raise

    def _close(self, state: State | None, cause: str = "") -> None:
        """End the recording; ``state`` None: it stands there already."""
        if self.ended:
            return
        self._closed = True
        with self._opened:
            try:
                if state is not None:
                    self._writer.set_state(state, cause=cause)
                if state == "failed":
                    self._writer.event(EventRecord("error", "failure", cause))
            except StoreError as error:  # its folder was deleted, or its disk is full: the program goes on, or ends, as it would
                say(S_(f"the end of the run is not recorded: {error}"), sys.stderr)
            self._notifier.ended(state or "stopped", cause, self._stage.step_number, {"total_steps": self._total})

    def _told(self, event: EventRecord) -> None:
        """Put on record that somebody could not be told, where the folder is still there."""
        with contextlib.suppress(StoreError):
            self._writer.event(event)

    def _after_phase(self, phase: str, so_far: StepSoFar) -> None:
        self._so_far = so_far
        self.listener(phase, so_far)
        self._control.after_phase(phase, so_far)
