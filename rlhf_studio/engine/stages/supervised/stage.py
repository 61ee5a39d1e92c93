"""What the supervised stages have in common: steps, metrics, checkpoints.

A step is one optimizer step. Every ``eval_every`` steps, at the beginning and at the end, the held-out examples are measured; every
``engine.watch_every`` steps a few examples are recorded token by token.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import DPORunConfig, SFTRunConfig, SupervisedConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.build import pad_id
from rlhf_studio.engine.loop.changed_settings import change_event
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.recording.costs import Costs
from rlhf_studio.engine.saving.folder import restore_optimizer, save_state, write_checkpoint, write_snapshot
from rlhf_studio.engine.saving.weights import restore_weights
from rlhf_studio.engine.stages.stage_run import Beginning, StageRun
from rlhf_studio.engine.stages.supervised.loading import Learner
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer
from rlhf_studio.engine.stages.supervised.watching import ExampleRecorder, Watched, watched_prompts
from rlhf_studio.engine.types import NonFiniteError, OnProgress
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.paths import STATE, checkpoint_dir
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, WatchRecord

MOST_SKIPPED = 10  # steps that a run may leave out


@dataclass(frozen=True)
class SavedState:
    """What a checkpoint needs beside the weights: JSON values, tensors by name, and the optimizer's state dict."""

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """The result of a measurement on the held-out examples: metrics, and events with what is not a number."""

    metrics: dict[str, float] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)


class SupervisedStage(StageRun):
    """A run that learns from given examples.

    Args:
        model: what is trained, on its device.

    Attributes:
        model_folder: the name of the folder in each checkpoint that holds the model, so that other programs can load it too.
    """

    model_folder = "policy"
    name: str
    """The stage, and the beginning of its metrics' names."""

    def __init__(
        self, config: SupervisedConfig, compute: Compute, model: Any, tokenizer: PreTrainedTokenizerBase, trainer: SupervisedTrainer
    ):
        self._config, self.compute, self.model, self.tokenizer, self.trainer = config, compute, model, tokenizer, trainer
        self.elapsed, self.examples, self.skipped = 0.0, 0, 0
        self._before: dict[str, Any] | None = None  # the settings of the checkpoint that was restored

    # --- what a stage says of itself ---------------------------------------------------------------------------------------

    @abstractmethod
    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """The step's own metrics beside its loss."""

    @abstractmethod
    def measure(self) -> Measured:
        """Measure the held-out examples, with dropout off. All processes call it where weights are sharded, else the one that writes."""

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """Some of the batch's examples, token by token."""
        return []

    def answers(self) -> list[WatchRecord]:
        """The model's answers to the watched prompts; nothing in a stage whose model does not write."""
        return []

    def fill(self, folder: Path, run_dir: Path) -> None:
        """Write the model into the folder of a checkpoint or a snapshot."""
        save_model(self.model, folder / self.model_folder, run_dir / "base")
        self.tokenizer.save_pretrained(folder / self.model_folder)

    # --- StageRun ----------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> SupervisedConfig:
        """The settings in force."""
        return self._config

    @property
    def learner(self) -> Any:
        """The model that is trained."""
        return self.model

    @property
    def step_number(self) -> int:
        """The newest step that is done."""
        return self.trainer.step_number

    @property
    def total_steps(self) -> int:
        """How many steps the run has."""
        return self.trainer.total_steps

    def begin(self, report: OnProgress) -> Beginning:
        """The starting model's answers, and what it makes of the held-out examples."""
        report("Measuring the model on the held-out examples, as it is before training", None)
        measured = self.measure()
        start = EventRecord("info", "start", f"Before training: {_in_words(measured.metrics)}.", dict(measured.metrics))
        return Beginning(self.answers(), [*([start] if measured.metrics else []), *measured.events])

    def step(self) -> StepRecord:
        """One optimizer step, with what is due after it. Raises NonFiniteError where the run is to stop at bad numbers."""
        costs = Costs(self.compute)
        with costs("update"):
            numbers = self.trainer.step()
        self.examples += len(numbers.items)
        events: list[EventRecord] = []
        if numbers.problem:
            events.append(self._skip(numbers.problem))
        measured = Measured()
        if self._due(self._config.training.eval_every):
            with costs("evaluation"):
                measured = self.measure()
        rollouts, answers = list[RolloutRecord](), list[WatchRecord]()
        if self._due(self._config.engine.watch_every) and self.compute.ranks.is_main:
            with costs("record"):
                rollouts, answers = self.record(numbers.items), self.answers()
        metrics = {f"{self.name}/loss": numbers.loss, "lr": numbers.learning_rate, "optim/grad_norm": numbers.grad_norm}
        metrics |= {"train/epoch": numbers.epoch} | self.learned(numbers) | measured.metrics | self._costs(costs, numbers)
        return StepRecord(self.step_number, metrics, rollouts, answers, [*events, *measured.events])

    def _due(self, every: int) -> bool:
        return self.finished or self.step_number % every == 0

    def _skip(self, problem: str) -> EventRecord:
        self.skipped += 1
        if self.skipped > MOST_SKIPPED:
            raise NonFiniteError(f"{self.skipped} steps could not be taken; the last: {problem}")
        return EventRecord("warning", "skip", f"This step was left out: {problem}.")

    def _costs(self, costs: Costs, numbers: StepNumbers) -> dict[str, float]:
        self.elapsed += costs.total
        metrics = costs.metrics(self.elapsed, self.examples, None)
        return metrics | {"speed/tokens_per_second": numbers.tokens / max(numbers.seconds, 1e-9)}

    # --- checkpoints -------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """The trainer's state as it is now, beside the weights."""
        numbers, tensors = self.trainer.state()
        own: dict[str, Any] = {"step": self.step_number, "elapsed": self.elapsed, "examples": self.examples, "skipped": self.skipped}
        own |= {"settings": self._config.model_dump(mode="json"), "trainer": numbers}
        return SavedState(own, tensors, self.trainer.optimizer.state_dict())

    def save(self, run_dir: Path, state: SavedState | None = None) -> Path | None:
        """Write the checkpoint of the newest step, as in :class:`StageRun`."""
        state = state or self.state()
        if not self.compute.ranks.is_main:
            return None

        def fill(folder: Path) -> None:
            self.fill(folder, run_dir)
            save_state(folder, state.numbers, state.tensors, state.optimizer)

        engine = self._config.engine
        return write_checkpoint(run_dir, self.step_number, fill, engine.keep_checkpoints, self.best_by)

    @property
    def best_by(self) -> str | None:
        """The metric by which the best checkpoint is kept; None where none is."""
        return None if self._config.engine.keep_best == "none" else f"{self.name}/eval_loss"

    def save_snapshot(self, run_dir: Path) -> None:
        """Save the model alone, as in :class:`StageRun`."""
        if self.compute.ranks.is_main:
            write_snapshot(run_dir, self.step_number, lambda folder: self.fill(folder, run_dir), self._config)

    def go_on_from(self, run_dir: Path, step: int | None) -> list[str]:
        """Take over a checkpoint: weights, optimizer, and the position in the order of the examples. Raises :class:`CheckpointError`."""
        if step is None:
            return []
        folder = checkpoint_dir(run_dir, step)
        try:
            with checkpoints.only_named(folder) as named:
                numbers = json.loads(read_regular(named / STATE))
                tensors, flat = load_file(named / "random.safetensors"), load_file(named / "optimizer.safetensors")
                self.restore_model(named)
            restore_optimizer(flat, self.trainer.optimizer)
            clauses = self.trainer.restore(numbers["trainer"], tensors)
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{folder.name}: {error}") from error
        self.elapsed, self.examples, self.skipped = numbers["elapsed"], numbers["examples"], numbers["skipped"]
        self._before = numbers["settings"]
        return clauses

    def restore_model(self, folder: Path) -> None:
        """Copy the weights of a checkpoint's folder into the model, bit for bit. Raises OSError, ValueError and their like."""
        restore_weights(self.model, folder / self.model_folder)

    def changes_at_resume(self) -> EventRecord | None:
        """An event about the settings that differ from those of the checkpoint."""
        return change_event(self._before, self._config, self.step_number)


class WritingStage(SupervisedStage):
    """A stage whose model writes: fine-tuning and DPO. It answers the watched prompts, and its examples are recorded token by token."""

    def __init__(self, *parts: Any, held_out: Sequence[Any], watched: Watched):
        super().__init__(*parts)
        self.held_out, self._watched = list(held_out), watched
        self.recorder = ExampleRecorder(self.tokenizer, self.compute, watched.stop_ids)

    def answers(self) -> list[WatchRecord]:
        """The model's answers to the watched prompts."""
        return self._watched.answer(self.model, self.tokenizer, self.compute)


def trainer_of(
    config: SupervisedConfig, model: Any, items: Sequence[Any], objective: TrainingObjective[Any], compute: Compute
) -> SupervisedTrainer:
    """The trainer of a run with these settings."""
    skips = config.engine.non_finite == "skip"
    return SupervisedTrainer(model, items, objective, config.training, compute, config.engine.seed, skip_non_finite=skips)


def watch(
    config: SFTRunConfig | DPORunConfig, learner: Learner, stops: tuple[int, ...], examples: Sequence[tuple[Sequence[int], int]]
) -> Watched:
    """The prompts that a run watches: those of these examples, each given as (token ids, where its response begins)."""
    prompts = watched_prompts(examples, config.engine.watch_prompts)
    return Watched(prompts, config.generation, config.engine.seed + 2, stops, pad_id(learner.tokenizer, learner.model))


def health_events(notes: Sequence[str]) -> list[EventRecord]:
    """Sentences about what was loaded, as events."""
    return [EventRecord("info", "health", note) for note in notes]


def _in_words(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name.rsplit('/', 1)[-1].removeprefix('eval_').replace('_', ' ')} {value:.4g}" for name, value in metrics.items())
