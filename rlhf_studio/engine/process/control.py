"""Requests of people to a run while it trains: save, stop, pause, go on by one step or one phase, and other settings."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Literal, NoReturn

from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.engine.compute.ranks import CHANGE, STOP, WAIT
from rlhf_studio.engine.process.stopping import Signals, StopRequested, asked_by
from rlhf_studio.engine.stages.stage_run import StageRun
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.runs.lab.trial import EVENT, LEAST_STEPS
from rlhf_studio.runs.records import PHASES, EventRecord, Scratch, SettingChange
from rlhf_studio.runs.writer import Command, RunWriter

POLL_SECONDS = 0.25  # between two looks at the commands while a run waits
ONE_PROCESS = "Going on by one phase needs a run of one process, because the others would wait for it in the middle of a step; use step"


class Control:
    """Carries out commands and signals: before each step and, where somebody goes through a step phase by phase, between its phases.

    A step that waits has not moved the weights until its update. A checkpoint that is written before that holds the state from before
    the step, and a stop drops the step: it is trained again after a resume. After the update both wait for the end of the step.

    Args:
        save: writes the checkpoint of the last finished step, with the state that is given, or with the one of now for None.
        trial: the run is a trial: when its time is over it has at least :data:`LEAST_STEPS` steps, and ends without a checkpoint.
    """

    def __init__(self, run: StageRun, writer: RunWriter, signals: Signals, save: Callable[[Any | None], None], *, trial: bool = False):
        self._run, self._writer, self._signals, self._save, self._trial = run, writer, signals, save, trial
        self._began = monotonic()
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
        self._before_step = self._run.state() if self._going == "phase" or self._asks_people else None

    def _time_is_over(self, limit: float) -> None:
        if not self._trial:
            self._stop(f"the time limit of {limit:g} minutes is over (engine.max_minutes)")
        elif self._run.step_number >= LEAST_STEPS:
            text = f"The trial is over after {self._run.step_number} steps."
            self._writer.event(EventRecord("info", EVENT, text))
            self._end(f"the trial's {limit:g} minutes are over")

    def after_phase(self, phase: str, so_far: StepSoFar) -> None:
        """When a person goes on phase by phase: store the numbers that the step has so far, and wait. Raises :class:`StopRequested`."""
        if self._going != "phase":
            return
        self._phase, number = phase, self._run.step_number + 1
        self._writer.scratch(Scratch(number, phase, self._run.recorded_so_far(phase, so_far)))
        self._pause(f"Paused after {PHASES[phase].what}, in step {number}")
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
        self._stop(reason)
        raise AssertionError("a stop before the update ends the run")

    def after_step(self, step: int) -> None:
        """Acknowledge the requests for other settings that this step was the first to be trained with; it is on record."""
        for number in [number for number, first in self._changes.items() if first <= step]:
            self._writer.acknowledge(number, f"done: from step {self._changes.pop(number)} on")

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
            self._end(f"{asked_by(command)}, without saving")
        if kind == "checkpoint" and self._phase == "update":
            self._later.add(command.id)
            text = f"The checkpoint will be written when step {self._run.step_number + 1} is done."
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
            return "Only a step of PPO has phases to wait between; use step"
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

    def _stop(self, reason: str) -> None:
        """Save and end. After a step's update, which has moved the weights, the rest of the step is done first."""
        if self._phase == "update":
            self._going = "on"
            return
        self._save(self._before_step if self._phase else None)
        self._end(reason)

    def _end(self, reason: str) -> None:
        for number, first in self._changes.items():
            self._writer.acknowledge(number, f"kept: a resume trains step {first} with them")
        self._run.compute.ranks.broadcast(STOP)
        raise StopRequested(reason)
