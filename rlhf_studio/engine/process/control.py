"""Requests of people to a run while it trains: save, stop, pause, go on by one step or one phase, and other settings.

Between two steps the run carries them out (:meth:`Control.before_step`). Inside a long step the computation calls its pulse
(:mod:`rlhf_studio.engine.compute.pulse`): there :meth:`Control.inside_step` says how far the step is, and ends it when a stop was asked
for.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Literal, NoReturn

from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.engine.compute.ranks import CHANGE, STOP, WAIT
from rlhf_studio.engine.process.stopping import STOP_COMMANDS, Signals, StopRequested, asked_by
from rlhf_studio.engine.stages.stage_run import StageRun
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.language import S_
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.trial import LEAST_STEPS
from rlhf_studio.runs.records import PHASES, TIME_OVER, EventRecord, Scratch, SettingChange, StepRecord
from rlhf_studio.runs.writer import Command, RunWriter

POLL_SECONDS = 0.25  # between two looks at the commands while a run waits
LOOK_SECONDS = 1.0  # between two looks at the requests inside a step, and between two reports of how far it is
LONG_STEP = 2.0  # seconds: a shorter step says nothing of how far it is, and is not ended inside
ONE_PROCESS = S_("Going on by one phase needs a run of one process, because the others would wait for it in the middle of a step; use step")


class StepEnded(BaseException):
    """Raised inside a step, in whichever thread computes, because the run is to stop: nothing of the step is kept.

    Not an ``Exception``, for the reason of :class:`StopRequested`.
    """


class Control:
    """Carries out commands and signals: before each step and, where somebody goes through a step phase by phase, between its phases.

    A step that waits has not moved the weights until its update. A checkpoint that is written before that holds the state from before
    the step, and a stop drops the step: it is trained again after a resume. After the update both wait for the end of the step.

    A stop acts inside a long step too, between two tokens or two minibatches: the step is dropped in the same way. Where its update has
    begun, a copy of the weights and of the optimizer is put back; where such a copy would be too large, the step goes on to its end.

    Args:
        save: writes the checkpoint of the last finished step, with the state that is given, or with the one of now for None.
        show: takes what a long step is doing, for the terminal.
        trial: the run is a trial: when its time is over it has at least :data:`LEAST_STEPS` steps, and ends without a checkpoint.
    """

    def __init__(
        self,
        run: StageRun,
        writer: RunWriter,
        signals: Signals,
        save: Callable[[Any | None], None],
        show: Callable[[str], None] = lambda doing: None,
        *,
        trial: bool = False,
    ):
        self._run, self._writer, self._signals, self._save, self._show, self._trial = run, writer, signals, save, show, trial
        self._began = monotonic()
        self._step_began, self._next_look, self._last_step_took = self._began, 0.0, math.inf
        self._looking = threading.Lock()  # one lane looks, the others go on
        self._shown, self._ends_here, self._can_end_inside = False, False, False
        self._reached = ""  # the phase of the step that is done, whether anybody waits for it or not
        self._put_back: Callable[[], None] | None = None
        self._going: Literal["on", "paused", "step", "phase"] = "on"
        self._phase = ""  # the phase that a step waits after; empty between steps
        self._before_step: Any | None = None
        self._asks_people = bool(run.people)
        self._pauses = 0
        self._later: set[int] = set()  # requests to save that wait for the end of a step
        self._changes: dict[int, int] = {}  # request for other settings -> the first step that is trained with them

    def before_step(self) -> None:
        """Carry out the requests since the last step. Returns when the next step is to begin. Raises :class:`StopRequested`."""
        self._phase = ""
        self._later.clear()
        if self._going in ("step", "phase"):
            self._pause("")
        self._attend()
        limit = self._run.config.engine.max_minutes
        if limit and monotonic() - self._began >= 60 * limit:
            self._time_is_over(limit)
        self._can_end_inside = self._run.has_phases and self._run.compute.ranks.size == 1 and self._last_step_took >= LONG_STEP
        self._before_step = self._run.state() if self._can_end_inside or self._going == "phase" or self._asks_people else None
        self._reached, self._put_back = "", None

    def step(self) -> StepRecord:
        """One step of the run. Raises :class:`StopRequested` when the step was ended inside, after its checkpoint is written."""
        self._step_began, self._shown = monotonic(), False
        self._next_look = self._step_began + LONG_STEP
        self._run.compute.pulse.listener = self.inside_step
        try:
            record = self._run.step()
        except StepEnded:
            self._drop_step()
        finally:
            self._run.compute.pulse.listener = None
        self._last_step_took, self._put_back = monotonic() - self._step_began, None
        if self._shown:
            self._writer.set_state("running")
        return record

    def inside_step(self, doing: str) -> None:
        """Called again and again while a step computes, from any thread. Says how far the step is, once in :data:`LOOK_SECONDS`.

        Raises :class:`StepEnded` when a stop was asked for and the step can be dropped here.
        """
        if self._ends_here or (self._signals.due() and self._may_end()):
            self._ends_here = True  # for the other lanes
            raise StepEnded
        if monotonic() < self._next_look or not self._looking.acquire(blocking=False):
            return
        try:
            self._next_look = monotonic() + LOOK_SECONDS
            with contextlib.suppress(StoreError):  # a disk that fails here fails at the end of the step too, which says so
                self._writer.set_state("running", phase=doing)
                self._shown = True
                self._ends_here = self._may_end() and any(command.kind in STOP_COMMANDS for command in self._writer.pending_commands())
            self._show(doing)
        finally:
            self._looking.release()
        if self._ends_here:
            raise StepEnded

    def _may_end(self) -> bool:
        """Whether the step can be dropped now: it is long, and its update has not begun, or what it has changed can be put back."""
        if not self._can_end_inside or monotonic() < self._step_began + LONG_STEP:
            return False
        return self._reached != "update" and (self._reached != "advantages" or self._put_back is not None)

    def _drop_step(self) -> NoReturn:
        """Go back to before the step, and carry out the request to stop. Raises :class:`StopRequested`."""
        if self._put_back:
            self._put_back()
        text = S_(f"Step {self._run.step_number + 1} was under way and is dropped: a resume trains it again.")
        self._writer.event(EventRecord("info", "stop", text))
        self._phase = "rollout"  # the state from before the step is what is saved
        while True:  # earlier requests are carried out first
            self._attend()

    def _time_is_over(self, limit: float) -> None:
        if self._trial and self._run.step_number < LEAST_STEPS:
            return
        minutes = f"{limit:g} {'minute' if limit == 1 else 'minutes'}"
        self._writer.event(EventRecord("info", TIME_OVER, f"{limit:g} minutes of training are over.", {"minutes": limit}))
        if self._trial:
            self._end(S_(f"the trial's time of {minutes} is over"), by_person=False)
        self._stop(S_(f"the time limit of {minutes} is over (engine.max_minutes)"), by_person=False)

    def after_phase(self, phase: str, so_far: StepSoFar) -> None:
        """When a person goes on phase by phase: store the numbers that the step has so far, and wait. Raises :class:`StopRequested`."""
        self._reached = phase
        if phase == "advantages" and self._can_end_inside:
            self._put_back = self._run.copy_of_weights()
        if self._going != "phase":
            return
        self._phase, number = phase, self._run.step_number + 1
        self._writer.scratch(Scratch(number, phase, self._run.recorded_so_far(phase, so_far)))
        self._pause(S_(f"Paused after {PHASES[phase].what}, in step {number}"))
        self._attend()

    def while_rating(self) -> bool:
        """Carry out requests while the step waits for ratings in its score phase. Returns whether the run was paused meanwhile.

        The step has not moved the weights yet. Raises :class:`StopRequested`.
        """
        self._phase, pauses = "rollout", self._pauses
        self._attend()
        return self._pauses > pauses

    def give_up(self, reason: str) -> NoReturn:
        """Save the last finished step and stop, because people have not rated in time. Raises :class:`StopRequested`."""
        self._phase = "rollout"
        self._stop(reason, by_person=False)
        raise AssertionError("a stop before the update ends the run")

    def after_step(self, step: int) -> None:
        """Acknowledge the requests for other settings that this step was the first to be trained with; it is on record."""
        for number in [number for number, first in self._changes.items() if first <= step]:
            self._writer.acknowledge(number, S_(f"done: from step {self._changes.pop(number)} on"))

    def _pause(self, phase: str) -> None:
        self._going = "paused"
        self._pauses += 1
        self._writer.set_state("paused", phase=phase)

    def _attend(self) -> None:
        """Carry out commands and signals until the run is to go on."""
        while True:
            if why := self._signals.due():
                self._stop(why)
            for command in self._writer.pending_commands():
                if command.id not in self._later and command.id not in self._changes:
                    self._carry_out(command)
                if self._going in ("step", "phase"):
                    return  # later requests are for the next point at which the run waits
            if self._going != "paused":
                return
            self._run.compute.ranks.broadcast(WAIT)
            sleep(POLL_SECONDS)

    def _carry_out(self, command: Command) -> None:
        kind, outcome = command.kind, "done"
        if kind == "stop":
            self._stop(asked_by(command))  # acknowledged with the end of the run: until then it is open
            return
        if kind == "discard":
            self._end(S_(f"{asked_by(command)}, without saving"))
        if kind == "checkpoint" and self._phase == "update":
            self._later.add(command.id)
            text = S_(f"The checkpoint will be written when step {self._run.step_number + 1} is done.")
            self._writer.event(EventRecord("info", "checkpoint", text))
            return
        if kind == "checkpoint":
            self._save(self._before_step if self._phase else None)
        elif kind == "pause":
            if self._going != "paused":
                self._pause("")
        elif kind == "phase" and (why := self._no_phases()):
            outcome = f"refused: {why}"
            self._writer.event(EventRecord("warning", "control", f"{why}."))
        elif kind in ("continue", "step", "phase"):
            self._going = "on" if kind == "continue" else "step" if kind == "step" else "phase"
            self._writer.set_state("running")
        elif kind == "set":
            outcome = self._change(command)
        else:
            outcome = "unknown command"
        if outcome:
            self._writer.acknowledge(command.id, outcome)

    def _no_phases(self) -> str:
        """Why this run cannot wait between two phases; empty when it can."""
        if not self._run.has_phases:
            return S_("Only a step of PPO has phases to wait between; use step")
        return ONE_PROCESS if self._run.compute.ranks.size > 1 else ""

    def _change(self, command: Command) -> str:
        """Plan other settings for the next step on all ranks, and record them. Returns why this cannot be; empty when they are planned."""
        config, changes = self._run.config, command.payload.get("changes", {})
        problems = {setting: config.live_problem(setting, value) for setting, value in changes.items()}
        if not changes or any(problems.values()):
            return "refused: " + "; ".join(f"{setting} {problem}" for setting, problem in problems.items() if problem)
        first = self._run.step_number + (2 if self._phase else 1)  # a step that waits goes on with the settings that it began with
        ranks, planned = self._run.compute.ranks, list[SettingChange]()
        for setting, value in changes.items():
            ranks.broadcast(CHANGE)
            ranks.broadcast(list(LIVE_SETTINGS).index(setting))
            new = ranks.broadcast_number(float(value))
            planned.append(SettingChange(first, setting, self._run.plan_change(setting, new, first), new))
        self._writer.plan_changes(planned)  # from now on a resume makes them, should the run stop before their step
        self._changes[command.id] = first
        return ""

    def _stop(self, reason: str, by_person: bool = True) -> None:
        """Save and end. After a step's update, which has moved the weights, the rest of the step is done first."""
        if self._phase == "update":
            self._going = "on"
            return
        self._save(self._before_step if self._phase else None)
        self._end(reason, by_person)

    def _end(self, reason: str, by_person: bool = True) -> None:
        for number, first in self._changes.items():
            self._writer.acknowledge(number, S_(f"kept: a resume trains step {first} with them"))
        self._run.compute.ranks.broadcast(STOP)
        raise StopRequested(reason, "" if by_person else f"{reason[:1].upper()}{reason[1:]}.")
