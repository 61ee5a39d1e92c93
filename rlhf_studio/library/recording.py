"""The run folder of a program: Live, the inspector and the doctor show it while the program trains.

Steps are committed by the engine's own writer. What people ask for on the page is carried out by the engine's own control, between steps.
"""

from __future__ import annotations

import contextlib
import json
import weakref
from pathlib import Path
from typing import Any

from rlhf_studio.config import PythonReward, RunConfig
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.engine.stages.ppo import GivenStage
from rlhf_studio.engine.types import Samples, Scores
from rlhf_studio.inputs.prompts.read import Prompts
from rlhf_studio.runs.create import create_run, this_program
from rlhf_studio.runs.errors import RunExists
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import EventRecord, Origin, State, StepRecord
from rlhf_studio.runs.writer import Heartbeat, RunWriter

PROMPTS_FILE = "prompts.jsonl"
IN_MEMORY = "a model in memory"


class RunEnded(RuntimeError):
    """Somebody has asked on the page that the run stops: its checkpoint is written, and nothing more is recorded."""


class Recording:
    """One run folder, from before the first step until the last one, or until the trainer is gone."""

    def __init__(self, run_dir: Path, trainer: Trainer, prompts: Prompts, name: str):
        """Make the folder. Raises StoreError, as where it exists already; nothing is left then."""
        config = recorded_config(trainer.config, run_dir)
        lines = "".join(json.dumps({"prompt": row.text}) + "\n" for row in prompts.rows)
        files, origin = {PROMPTS_FILE: lines.encode("ascii")}, Origin(program=this_program())
        create_run(run_dir, config, name=name or "Python", state="loading", origin=origin, files=files)
        self.run_dir = run_dir
        with contextlib.ExitStack() as opened:
            opened.enter_context(EngineLock(run_dir))
            self._writer = opened.enter_context(RunWriter(run_dir))
            opened.enter_context(Heartbeat(run_dir))
            self._writer.plan(config.ppo.steps)
            self._writer.set_state("running", device=trainer.compute.describe())
            self._opened = opened.pop_all()
        self._stage, self._saved_step, self.ended = GivenStage(trainer), 0, False
        self._control = Control(self._stage, self._writer, Signals(), self._checkpoint)
        self._stage.after_phase = self._control.after_phase

    def end_with(self, owner: object) -> None:
        """End the recording when ``owner`` is gone, at the latest when the program ends: then the run was stopped."""
        weakref.finalize(owner, self.end, "stopped")

    def begin(self, event: EventRecord | None) -> None:
        """Record the check before training, and the starting policy's answers to the watched prompts."""
        if event is not None:
            self._writer.event(event)
        beginning = self._stage.begin(lambda text, fraction: None)
        self._writer.watched(0, beginning.watched)
        for line in beginning.events:
            self._writer.event(line)

    def step(self, given: tuple[Samples, Scores] | None = None) -> StepRecord:
        """One step, committed. After the last one its checkpoint is written, and the run has finished.

        Raises :class:`RunEnded` when somebody has asked for a stop; whatever else it raises is the run's end on record too.
        """
        if self.ended:
            raise RunEnded(f"the run in {self.run_dir} has ended; build a new trainer")
        self._stage.given = given
        try:
            self._control.before_step()
            record = self._control.step()
            self._writer.commit_step(record)
            self._control.after_step(record.step)
            every = self._stage.config.engine.checkpoint_every
            if self._stage.finished or (every and record.step % every == 0):
                self._checkpoint()
        except StopRequested as stop:
            Signals().record(self._writer, str(stop), stop.cause)
            self.end(None)
            raise RunEnded(f"stopped: {stop}; the checkpoint of step {self._saved_step} is in {self.run_dir}") from None
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            self._writer.event(EventRecord("error", "failure", cause))
            self.end("failed", cause)
            raise
        if self._stage.finished:
            self.end("finished")
        return record

    def end(self, state: State | None, cause: str = "") -> None:
        """Record how the run ended; None where that stands there already."""
        if self.ended:
            return
        self.ended = True
        if state is not None:
            self._writer.set_state(state, cause=cause)
        self._opened.close()

    def _checkpoint(self, state: Any | None = None) -> None:
        step = self._stage.step_number
        if step == self._saved_step:
            return
        self._stage.save(self.run_dir, state)
        self._saved_step = step
        self._writer.event(EventRecord("info", "checkpoint", f"Checkpoint of step {step} written.", {"step": step}))


def refuse_occupied(run_dir: Path) -> None:
    """Raise RunExists where a run folder cannot be made: before the model is touched."""
    if run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise RunExists(f"{run_dir} is there already; name a new folder")


def recorded_config(config: RunConfig, run_dir: Path) -> RunConfig:
    """The settings as the folder shows them: prompts in a file of the folder, and names of what is in memory.

    What is in memory cannot be loaded from a name, so whoever wants to go on with such a run is told what is missing.
    """
    data = {"prompts": str(run_dir.resolve() / PROMPTS_FILE), "column": "prompt", "eval_share": 0.0}
    policy = config.model.policy if "policy" in config.model.model_fields_set else IN_MEMORY
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "model": config.model.model_copy(update={"policy": policy}),
            "reward": config.reward.model_copy(update={"components": [PythonReward(name="reward")]}),
        }
    )
