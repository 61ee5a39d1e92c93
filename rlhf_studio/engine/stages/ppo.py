"""PPO as a :class:`~rlhf_studio.engine.stages.stage_run.StageRun`: the trainer, its checks, its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.changed_settings import change_event, forgotten
from rlhf_studio.engine.loop.state import TrainingState, training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.saving.checkpoint import go_on_from, put_together, save_checkpoint, save_snapshot
from rlhf_studio.engine.stages.stage_run import Beginning, StageRun, ends_event
from rlhf_studio.engine.types import OnProgress, Samples, Scores, StepSoFar
from rlhf_studio.inputs.checks.policy import sampling_warning
from rlhf_studio.inputs.checks.rewards import refuse_without_permission
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord
from rlhf_studio.runs.writer import RunWriter

MOST_COPIED = 4_000_000  # trained weights; with the two numbers that the optimizer has for each, their copy takes 48 MB


class PPOStage(StageRun):
    """A PPO run in memory."""

    has_phases = True

    def __init__(self, trainer: Trainer):
        self.trainer, self.compute = trainer, trainer.compute

    @classmethod
    def build(cls, config: RunConfig, compute: Compute, report: OnProgress, permissions: Permissions) -> tuple[PPOStage, list[EventRecord]]:
        """Load everything that the configuration names. Returns the stage, and events for people.

        Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
        """
        trainer, notes = build_trainer(config, compute, report, permissions)
        models = trainer.models
        events = [EventRecord("info", "health", note) for note in notes]
        events.append(ends_event(config.generation, models.ends, models.stop_ids))
        if cut_off := sampling_warning(config.generation):
            events.append(EventRecord("warning", "sampling", cut_off))
        return cls(trainer), events

    @staticmethod
    def refuse(config: RunConfig, permissions: Permissions) -> None:
        """Raise :class:`ConfigError` for rewards outside the program that nobody has allowed, before anything is loaded."""
        refuse_without_permission(config.reward.components, permissions)

    @property
    def learner(self) -> Any:
        """The policy's model."""
        return self.trainer.models.policy.model

    @property
    def after_phase(self) -> Callable[[str, StepSoFar], None]:
        """Called at the end of each phase."""
        return self.trainer.after_phase

    @after_phase.setter
    def after_phase(self, call: Callable[[str, StepSoFar], None]) -> None:
        self.trainer.after_phase = call

    @property
    def config(self) -> RunConfig:
        """The settings in force."""
        return self.trainer.config

    @property
    def step_number(self) -> int:
        """The newest step that is done."""
        return self.trainer.progress.step

    @property
    def total_steps(self) -> int:
        """How many steps the run has."""
        return self.trainer.config.ppo.steps

    @property
    def people(self) -> Sequence[Any]:
        """The reward components that ask people for ratings."""
        return self.trainer.models.scorer.people()

    def check(self) -> EventRecord:
        """Compare the forward passes with the models' own. Raises :class:`ParityError`."""
        return check_before_training(self.trainer)

    def begin(self, report: OnProgress) -> Beginning:
        """The starting policy's answers to the watched prompts."""
        report("Answering the watched prompts with the starting policy", None)
        return Beginning(*self.trainer.first_answers())

    def keep_start(self, reader: RunReader, writer: RunWriter) -> None:
        """All steps are compared with one record of the starting policy: the one of the run's beginning, or of a fork's parent."""
        probes = self.trainer.probes
        if not probes:
            return
        recorded = [score for at, score in reader.probes()[1] if at == 0] if self.step_number else []
        if recorded:
            probes.keep_start(recorded)
        else:
            writer.probes(probes.texts(), probes.of_start())

    def step(self) -> StepRecord:
        """One PPO step."""
        return self.trainer.step()

    def state(self) -> TrainingState:
        """The trainer's state as it is now, beside the weights."""
        return training_state(self.trainer)

    def copy_of_weights(self) -> Callable[[], None] | None:
        """As in :class:`StageRun`."""
        updater = self.trainer.updater
        trained = sum(parameter.numel() for group in updater.optimizer.param_groups for parameter in group["params"])
        return updater.copy() if trained <= MOST_COPIED else None

    def save(self, run_dir: Path, state: TrainingState | None = None) -> Path | None:
        """Write the checkpoint of the newest step, as in :class:`StageRun`."""
        trainer, engine = self.trainer, self.config.engine
        state = state or self.state()
        weights = put_together(run_dir, trainer.models.policy, self.compute.ranks)
        if not self.compute.ranks.is_main:
            return None
        best_by = None if engine.keep_best == "none" else engine.keep_best
        policy, tokenizer = trainer.models.policy, trainer.models.tokenizer
        return save_checkpoint(run_dir, self.step_number, policy, tokenizer, state, engine.keep_checkpoints, weights, best_by)

    def save_snapshot(self, run_dir: Path) -> None:
        """Save the policy alone, as in :class:`StageRun`."""
        models = self.trainer.models
        weights = put_together(run_dir, models.policy, self.compute.ranks, critic_too=False)
        if self.compute.ranks.is_main:
            save_snapshot(run_dir, self.step_number, models.policy, models.tokenizer, self.config, weights)

    def go_on_from(self, run_dir: Path, step: int | None) -> list[str]:
        """Take over a checkpoint, and plan the changes of settings that later steps had when they were recorded."""
        return go_on_from(run_dir, step, self.trainer)

    def changes_at_resume(self) -> EventRecord | None:
        """An event about the settings that differ from those of the checkpoint."""
        return change_event(self.trainer.live.before, self.config, self.step_number)

    def overruled(self) -> list[str]:
        """Names of settings whose recorded changes are not repeated."""
        return self.trainer.live.overruled()

    def forgotten(self, reader: RunReader) -> str:
        """Which recorded changes of settings a start from step 0 does not repeat, as in :class:`StageRun`."""
        return forgotten(reader.changes(later_too=True), self.config.ppo.planned)

    def recorded_so_far(self, phase: str, so_far: StepSoFar) -> list[RolloutRecord]:
        """The step's recorded episodes, with their numbers that are known after ``phase``."""
        return self.trainer.recorded_so_far(phase, so_far)

    def plan_change(self, setting: str, value: float, first: int) -> float:
        """Put a setting's new value into force from step ``first`` on. Returns its value until then."""
        self.trainer.live.plan(setting, value, first)
        return self.trainer.present(setting)


class GivenStage(PPOStage):
    """A run whose steps a program makes: it gives the samples and scores of the next one, or neither where the engine draws and scores."""

    given: tuple[Samples, Scores] | None = None

    def step(self) -> StepRecord:
        """One PPO step on what was given."""
        samples, scores = self.given or (None, None)
        return self.trainer.step(samples, scores)
