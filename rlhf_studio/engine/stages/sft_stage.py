"""Supervised fine-tuning as a run: from settings to a model that learns to continue prompts as the demonstrations do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlhf_studio.config import SFTRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.stages.sft import EncodedExample, LanguageModelObjective, counted_places
from rlhf_studio.engine.stages.stage_run import ends_event
from rlhf_studio.engine.stages.supervised.examples import load_demonstrations
from rlhf_studio.engine.stages.supervised.loading import ends_in_training, load_learner
from rlhf_studio.engine.stages.supervised.stage import Measured, SupervisedStage
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer
from rlhf_studio.engine.stages.supervised.watching import ExampleRecorder, Watched, watch
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.runs.records import EventRecord, RolloutRecord, WatchRecord

MOST_NATS = 20.0  # of a mean loss whose perplexity is still shown: e^20 is half a billion


class SFTStage(SupervisedStage):
    """A run of supervised fine-tuning."""

    name = "sft"

    def __init__(self, *parts: Any, held_out: Sequence[EncodedExample], watched: Watched):
        super().__init__(*parts)
        self._held_out, self._watched = list(held_out), watched
        self._recorder = ExampleRecorder(self.tokenizer, self.compute, watched.stop_ids)

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """The batch's perplexity: among how many equally likely tokens the model chose, on average."""
        return {"sft/perplexity": perplexity(numbers.loss)}

    def measure(self) -> Measured:
        """Loss and perplexity of the held-out demonstrations, in nats per token and as a number of tokens."""
        if not self._held_out:
            return Measured()
        loss = self.trainer.mean_loss(self._held_out)
        return Measured({"sft/eval_loss": loss, "sft/eval_perplexity": perplexity(loss)})

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The first examples of the batch, token by token, as the model sees them after the step."""
        batch = [self.trainer.items[item] for item in items[: self.config.engine.record_samples]]
        learned = [counted_places(example) for example in batch]
        texts = [(example.ids, places[0]) for example, places in zip(batch, learned, strict=True)]
        return self._recorder.record(self.model, texts, learned)

    def answers(self) -> list[WatchRecord]:
        """The model's answers to the watched prompts."""
        return self._watched.answer(self.model, self.tokenizer, self.compute)


def perplexity(loss: float) -> float:
    """exp of a mean loss in nats per token, at most e^:data:`MOST_NATS`."""
    return math.exp(min(loss, MOST_NATS))


def build_sft(config: SFTRunConfig, compute: Compute, report: OnProgress) -> tuple[SFTStage, list[EventRecord]]:
    """Load model and demonstrations. Returns the stage, and events for people.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    learner, seed = load_learner(config, compute, report), config.engine.seed
    ends, stops = ends_in_training(config, learner)
    examples = load_demonstrations(config.data, config.sft.loss_on, learner.tokenizer, seed, report, end=ends.end)
    training, held_out = examples.training.items, [item for item in examples.held_out.items if counted_places(item)]
    skips = config.engine.non_finite == "skip"
    trainer = SupervisedTrainer(learner.model, training, LanguageModelObjective(), config.sft, compute, seed, skip_non_finite=skips)
    starts = [(item.ids, places[0]) for item in held_out or training if (places := counted_places(item))]
    watched = watch(starts, config.engine, config.generation, learner.model, learner.tokenizer, stops)
    stage = SFTStage(config, compute, learner.model, learner.tokenizer, trainer, held_out=held_out, watched=watched)
    told = [ends_event(config.generation, ends, stops), examples.told]
    return stage, [EventRecord("info", "health", note) for note in [*learner.notes, *examples.notes]] + told
