"""The engine process of one run: takes the lock, loads, trains, stores every step, carries out commands, and records how it ended."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from rlhf_studio.config import NOTHING_ALLOWED, EvaluationRunConfig, Permissions, StageConfig, uses
from rlhf_studio.config.io import ConfigError, walk_fields, with_values
from rlhf_studio.config.stability import gentler
from rlhf_studio.config.usual import other_rate
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.ranks import GO, NO_CHECKPOINT, SAVE, SNAPSHOT, STOP
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.process.console import Console
from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.process.followers import follow
from rlhf_studio.engine.process.memory_event import memory_event, weights_of
from rlhf_studio.engine.process.notify import Notifier
from rlhf_studio.engine.process.rating import ask_people
from rlhf_studio.engine.process.screen import Screen
from rlhf_studio.engine.process.steadiness import Steadiness, Unstable, restart_event, unstable_event
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.engine.process.trackers import TrackedRun, Trackers
from rlhf_studio.engine.rewards.scorer import RewardError
from rlhf_studio.engine.stages.build import build_stage, refuse
from rlhf_studio.engine.stages.stage_run import StageRun
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.provenance import ingredients
from rlhf_studio.inputs.relative_paths import pinned
from rlhf_studio.language import S_
from rlhf_studio.runs import checkpoints, paths
from rlhf_studio.runs.checkpoints import BEGINNING, StartingPoint
from rlhf_studio.runs.create import complete_config, replace_config
from rlhf_studio.runs.errors import RunGone, StoreError
from rlhf_studio.runs.evaluation.policies import sources_of
from rlhf_studio.runs.lab.trial import is_trial
from rlhf_studio.runs.lineage import EVENT, keep_sources
from rlhf_studio.runs.manifest import users_of
from rlhf_studio.runs.processes import is_follower
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StartMode, StepRecord
from rlhf_studio.runs.writer import RunWriter, write_run

SAVE_MEMORY = (
    *(f"{stage}.micro_batch_size" for stage in ("ppo", "sft", "reward_model", "dpo")),
    *("generation.batch_size", "generation.response_length", "data.max_tokens", "evaluation.batch_size"),
)
"""Settings that lower the memory a run needs; each stage has some of them."""


@dataclass(frozen=True)
class Session:
    """One start of the engine.

    Attributes:
        starting_point: the checkpoint to go on from, where ``mode`` is ``resume``.
        permissions: which code and servers outside the program a reward may use.
        screen: the terminal to write to where standard output is the log; None where there is none.
    """

    run_dir: Path
    config: StageConfig
    mode: StartMode = "train"
    starting_point: StartingPoint = BEGINNING
    permissions: Permissions = NOTHING_ALLOWED
    screen: Screen | None = None


def _settings(run_dir: Path, mode: StartMode) -> StageConfig:
    """The run's settings. A new run takes the models of other runs as they are now, and writes into its settings which these are."""
    reader = RunReader(run_dir)
    config = reader.config()
    if mode == "train" and (in_full := pinned(config, reader.working_folder())) != config:
        complete_config(run_dir, in_full)
        return in_full
    return config


def run_engine(
    run_dir: Path,
    mode: StartMode = "train",
    *,
    permissions: Permissions = NOTHING_ALLOWED,
    screen: Screen | None = None,
    signals: Signals | None = None,
) -> int:
    """Run (or go on with) a prepared run folder in this process. Returns one of :mod:`rlhf_studio.exit_codes`.

    ``permissions`` and ``screen`` are those of :class:`Session`. ``signals`` say when the run is to stop; this process's own without.

    Raises:
        AlreadyRunning: another engine works on it.
        NoCheckpoint: it has steps, but no checkpoint to go on from; nothing was changed.
        StoreError: the run cannot be opened.
    """
    transformers.utils.logging.disable_progress_bar()  # phases are reported by name instead
    if is_follower(os.environ):
        return follow(run_dir, RunReader(run_dir).config(), permissions, mode)
    starting_point = _where_to_begin(run_dir, mode)
    try:
        with signals or Signals() as stops, write_run(run_dir) as writer:
            session = Session(run_dir, _settings(run_dir, mode), mode, starting_point, permissions, screen)
            while True:
                worker = Worker(session, writer, stops)
                try:
                    return worker.run()
                except Unstable as unstable:
                    session = worker.gentler_session(str(unstable))
                finally:
                    worker.trackers.close()
                    worker.console.close()
                del worker
                gc.collect()  # the models of this start, before they are loaded again
    except StoreError as error:
        if error.reason not in ("full", "gone"):
            raise
        Console(0, screen).say(S_(f"failed: {str(error).rstrip('.')}; the engine has ended"))  # there is nowhere else to say it
        return FAILED


def end_process() -> None:
    """End this process at once, with the processes that it has started; for when its main thread cannot."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended by itself
            child.kill()
    os._exit(STOPPED)


def _where_to_begin(run_dir: Path, mode: StartMode) -> StartingPoint:
    """The checkpoint to go on from. Writes nothing: a run that cannot be started in this mode stays as it is. Raises StoreError."""
    if mode == "resume":
        return checkpoints.where_to_resume(run_dir)
    if mode == "train" and (steps := RunReader(run_dir).status().last_recorded_step):
        raise StoreError(f"{run_dir} has {steps} recorded steps already. Go on with: python -m rlhf_studio resume {run_dir}", "state")
    return BEGINNING


class Worker:
    """Drives a run of any stage, and writes what happens into the run folder."""

    def __init__(self, session: Session, writer: RunWriter, signals: Signals):
        self._session, self._run_dir, self._config = session, session.run_dir, session.config
        self._writer, self._signals = writer, signals
        self.console = Console(self._config.planned_steps, session.screen)
        self._steadiness = Steadiness(self._config)
        self._saved_step = -1
        self._weights: int | None = None
        self._notifier = Notifier(self._run_dir, RunReader(self._run_dir).status().name, self._config, session.permissions, self._lost)
        self.trackers = Trackers([], TrackedRun.of(self._run_dir, self._config, None), writer.event)  # the run's own once it is loaded

    def run(self) -> int:
        """Load, train, end. Whatever happens, the run folder has the state at the end and, after a failure, the cause; then who is to be
        told of it is told."""
        try:
            code = self._outcome()
            self._tell_end()
            return code
        finally:
            self._notifier.close()

    def _outcome(self) -> int:
        try:
            self._train(self._load())
        except StopRequested as stop:
            self._signals.record(self._writer, str(stop), stop.cause)
            way = "" if is_trial(self._run_dir) else S_(f"; go on with: python -m rlhf_studio resume {self._run_dir}")
            self.console.say(f"{S_('stopped')}: {stop}{way}")
            return STOPPED
        except (ConfigError, PromptsError, ParityError) as error:
            return self._fail(str(error), BAD_INPUT)
        except (NonFiniteError, RewardError) as error:
            return self._fail(f"{error}. {self._what_is_left()}", FAILED)
        except torch.OutOfMemoryError as error:
            smaller = " or ".join(name for name in SAVE_MEMORY if self._uses(name))
            return self._fail(S_(f"the GPU ran out of memory ({str(error).splitlines()[0]}). Use a smaller {smaller}"), FAILED)
        except (RunGone, Unstable):
            raise
        except (StoreError, OSError) as error:
            return self._fail(
                S_(f"{str(error).rstrip('.')}. Earlier steps and checkpoints are intact; make room or fix the disk, then resume"), FAILED
            )
        except Exception as error:  # noqa: BLE001 - whatever it is: the run must end with its cause on record
            self.console.say(traceback.format_exc())
            return self._fail(S_(f"{type(error).__name__}: {error}. The full trace is in engine.log"), FAILED)
        self._writer.set_state("finished")
        self.console.say(f"{S_('done')}: {self._run_dir}")
        return DONE

    def _tell_end(self) -> None:
        """Tell those whom the settings name how the run ended, as its folder has it."""
        if self._config.engine.notified:
            with contextlib.suppress(StoreError):  # the folder is gone, or cannot be read any more
                status = RunReader(self._run_dir).status()
                self._notifier.ended(status.state, status.cause, status.step, {"total_steps": status.total_steps})

    def _lost(self, event: EventRecord) -> None:
        """Put on record that somebody could not be told, where the folder is still there."""
        with contextlib.suppress(StoreError):
            self._writer.event(event)

    def _uses(self, setting: str) -> bool:
        """Whether the run's stage has a setting, and uses it."""
        return setting in dict(walk_fields(type(self._config))) and uses(self._config.stage, setting)

    def _fail(self, cause: str, code: int) -> int:
        self.console.say(f"{S_('failed')}: {cause} ({self._run_dir})")
        self._writer.event(EventRecord("error", "failure", cause))
        self._writer.set_state("failed", cause=cause)
        return code

    def _what_is_left(self) -> str:
        """What a person can go on from after a failure."""
        if self._saved_step <= 0:
            return S_("There is no checkpoint yet: mend the cause and start again")
        return S_(f"The checkpoint of step {self._saved_step} is intact: mend the cause and resume")

    def _report(self, text: str, fraction: float | None) -> None:
        """Say what is being loaded. A request to stop that some library has caught takes effect here at the latest."""
        self._writer.set_state("loading", phase=text, fraction=fraction)
        self.console.phase(text)
        self._signals.raise_if_received()

    def _load(self) -> StageRun:
        """Until training begins nothing can be lost: a request to stop ends this at any moment. Raises :class:`StopRequested`."""
        with self._signals.while_loading(self._writer, self._end_while_loading), self._signals.at_once():
            return self._prepare()

    def _end_while_loading(self) -> None:
        self.console.say(S_(f"stopped while loading; begin again with: python -m rlhf_studio resume {self._run_dir}"))
        end_process()

    def _prepare(self) -> StageRun:
        """Load the run, restore its checkpoint when it goes on, and check it against the models' own forward pass."""
        refuse(self._config, self._session.permissions)
        if self._config.planned_steps:
            self._writer.plan(self._config.planned_steps)
        for folder in (paths.CHECKPOINTS, paths.SNAPSHOTS):
            checkpoints.tidy(self._run_dir / folder)
        for problem in keep_sources(self._run_dir, self._config, RunReader(self._run_dir).working_folder()):
            self._writer.event(EventRecord("warning", "kept", problem))
        compute = choose_compute(self._config)
        self._writer.set_state("loading", phase="Starting", device=compute.describe())
        run, events = build_stage(self._config, compute, self._report, self._session.permissions)
        self._writer.plan(run.total_steps)
        self.console.plan(run.total_steps)
        for event in events:
            self._writer.event(event)
        self._record_ingredients()
        if self._session.mode != "train":
            self._resume(run)
            if change := run.changes_at_resume():
                self._writer.event(change, run.step_number)
                self.console.say(change.text)
        self._report("Comparing the forward pass with the model's own", None)
        if checked := run.check():
            self._writer.event(checked)
        tracked = TrackedRun.of(self._run_dir, self._config, None if self._session.mode == "train" else run.step_number)
        self.trackers = Trackers(self._config.engine.trackers, tracked, self._writer.event)
        if run.step_number == 0:
            self._begin(run)
        run.keep_start(RunReader(self._run_dir), self._writer)
        self._writer.set_state("running")
        return run

    def _record_ingredients(self) -> None:
        """What the run is made from, with the hashes of now. A run that goes on from a checkpoint has this on record."""
        if self._session.mode == "resume" and self._session.starting_point.step is not None:
            return
        config = self._config
        policies = {source.name: source.path for source in sources_of(config)} if isinstance(config, EvaluationRunConfig) else {}
        made_from = [asdict(ingredient) for ingredient in ingredients(config, policies=policies)]
        self._writer.event(EventRecord("info", EVENT, f"Made from {', '.join(part['name'] for part in made_from)}.", {EVENT: made_from}))

    def _begin(self, run: StageRun) -> None:
        beginning = run.begin(self._report)
        self._writer.watched(0, beginning.watched)
        self.trackers.watched(0, beginning.watched)
        for event in beginning.events:
            self._writer.event(event)
            self.console.say(event.text)

    def _resume(self, run: StageRun) -> None:
        self._report("Reading the checkpoint", None)
        start = self._session.starting_point
        for problem in start.problems:
            self._writer.event(EventRecord("warning", "resume", f"A checkpoint was passed over. {problem}."))
        text, data = S_("The run starts again from step 0."), {"settings": self._config.model_dump(mode="json")}
        resumes, clauses = self._session.mode == "resume", list[str]()
        if resumes:  # the other ranks load as well, and must load the same
            run.compute.ranks.broadcast(NO_CHECKPOINT if start.step is None else start.step)
            clauses = run.go_on_from(self._run_dir, start.step)
        else:
            text += run.forgotten(RunReader(self._run_dir))
        if start.step is not None:
            self._saved_step = run.step_number
            text = "; ".join([S_(f"Resumed from the checkpoint of step {run.step_number}"), *clauses]) + "."
            data = {}
        self._writer.go_back(run.step_number)
        # Changes of settings that are on record are made again with their steps, but for those that this start overrules.
        self._writer.forget_later_changes(run.overruled() if resumes else None)
        self._writer.event(EventRecord("info", "resume", text, data))
        self.console.say(text)

    def _train(self, run: StageRun) -> None:
        every, snapshot_every = self._config.engine.checkpoint_every, self._config.engine.snapshot_every
        ranks = run.compute.ranks
        trial, save = is_trial(self._run_dir), partial(self._checkpoint, run)
        control = Control(run, self._writer, self._signals, save, self.console.inside_step, trial=trial)
        run.after_phase = control.after_phase
        ask_people(run, self._run_dir, self._writer, control)
        self._weights = None if ranks.sharded else weights_of(run.learner)
        while not run.finished:
            control.before_step()
            ranks.broadcast(GO)
            record = control.step()
            self._writer.commit_step(record)
            self._notifier.alarms(record.events, record.step)
            control.after_step(record.step)
            self.trackers.step(record)
            self.console.step(record)
            self._look_at_start(run, record)
            if record.step == 1:
                peak = record.metrics["memory/peak"]
                self._writer.event(memory_event(self._writer.estimated_memory(), peak, self._weights), step=1)
            if snapshot_every and record.step % snapshot_every == 0:
                self._snapshot(run)
            if every and record.step % every == 0:
                self._checkpoint(run)
        self._checkpoint(run)
        if ranks.sharded:
            ranks.broadcast(STOP)

    def _look_at_start(self, run: StageRun, record: StepRecord) -> None:
        """Say it when the first steps show that the run is not stable. Raises :class:`Unstable` where it is to begin again by itself."""
        self._config = run.config  # the settings in force: a person may have changed some on the way
        if why := self._steadiness.look(record):
            event = unstable_event(self._gentler(), why, None if is_trial(self._run_dir) else self._run_dir)
            self._writer.event(event, record.step)
            self._notifier.alarms([event], record.step)
            self.console.say(event.text)
            if self._config.engine.restart_if_unstable:
                raise Unstable(why)

    def _gentler(self) -> dict[str, float]:
        return other_rate(self._config, self._weights, gentler)

    def gentler_session(self, why: str) -> Session:
        """The next start of a run that was not stable: from the beginning, with a lower rate, which the run's settings have then."""
        left = self._config.engine.restart_if_unstable - 1
        config = with_values(self._config, {**self._gentler(), "engine.restart_if_unstable": left})
        # At once: a resume after an end while the models load must not take a checkpoint of the start that is given up.
        self._writer.go_back(0)
        self._writer.forget_later_changes()
        replace_config(self._run_dir, config)
        event = restart_event(self._config, config, why)
        self._writer.event(event)
        self.console.say(event.text)
        return replace(self._session, config=config, mode="from-start", starting_point=BEGINNING)

    def _checkpoint(self, run: StageRun, state: Any | None = None) -> None:
        """Write the checkpoint of the last finished step. ``state`` is the trainer's as it was then, where a step has begun since."""
        step = run.step_number
        if step == self._saved_step:
            return
        self._writer.check_folder()
        if run.compute.ranks.sharded:
            run.compute.ranks.broadcast(SAVE)
        users = users_of(paths.checkpoint_dir(self._run_dir, step))
        folder = run.save(self._run_dir, state)
        assert folder is not None  # this process writes
        self._saved_step = step
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self._writer.event(EventRecord("info", "checkpoint", f"Checkpoint of step {step} written.", {"step": step, "bytes": size}))
        if users:
            text = S_(f"Step {step} was trained again, so its checkpoint is no longer the one that these runs use: {', '.join(users)}.")
            self._writer.event(EventRecord("warning", "checkpoint-replaced", text, {"step": step, "users": users}))

    def _snapshot(self, run: StageRun) -> None:
        """Keep the model alone, as it is after the last finished step."""
        self._writer.check_folder()
        if run.compute.ranks.sharded:
            run.compute.ranks.broadcast(SNAPSHOT)
        run.save_snapshot(self._run_dir)
