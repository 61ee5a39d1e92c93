"""Supervised fine-tuning as a run: from settings to a model that learns to continue prompts as the demonstrations do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlhf_studio.config import SFTRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.build import pad_id, stop_token
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.stages.loading import load_learner
from rlhf_studio.engine.stages.sft import EncodedExample, LanguageModelObjective, counted_places
from rlhf_studio.engine.stages.supervised import StepNumbers, SupervisedTrainer
from rlhf_studio.engine.stages.supervised_stage import Measured, SupervisedStage
from rlhf_studio.engine.stages.watching import ExampleRecorder, Watched, watched_prompts
from rlhf_studio.engine.text import chat_template
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples import prepare_demonstrations, read_demonstrations, read_held_out_demonstrations, split_held_out
from rlhf_studio.runs.records import EventRecord, RolloutRecord, WatchRecord

MOST_NATS = 20.0  # of a mean loss whose perplexity is still shown: e^20 is half a billion


class SFTStage(SupervisedStage):
    """A run of supervised fine-tuning."""

    name = "sft"

    def __init__(self, *parts: object, held_out: Sequence[EncodedExample], watched: Watched, **named: object):
        super().__init__(*parts, **named)  # type: ignore[arg-type]
        self._held_out, self._watched = list(held_out), watched
        self._recorder = ExampleRecorder(self.tokenizer, self.compute)

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """The batch's perplexity: among how many equally likely tokens the model chose, on average."""
        return {"sft/perplexity": _perplexity(numbers.loss)}

    def measure(self) -> Measured:
        """Loss and perplexity of the held-out demonstrations, in nats per token and as a number of tokens."""
        if not self._held_out:
            return Measured()
        loss = self.trainer.mean_loss(self._held_out)
        return Measured({"sft/eval_loss": loss, "sft/eval_perplexity": _perplexity(loss)})

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The first examples of the batch, token by token, as the model sees them after the step."""
        batch = [self.trainer.items[item] for item in items[: self.config.engine.record_samples]]
        return self._recorder.record(self.model, [(example.ids, counted_places(example)[0]) for example in batch])

    def answers(self) -> list[WatchRecord]:
        """The model's answers to the watched prompts."""
        return self._watched.answer(self.model, self.tokenizer, self.compute)


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, MOST_NATS))


def build_sft(config: SFTRunConfig, compute: Compute, report: OnProgress) -> tuple[SFTStage, list[EventRecord]]:
    """Load model and demonstrations. Returns the stage, and events for people.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    report("Reading the demonstrations", None)
    rows = read_demonstrations(config.data, tick=lambda text: report(f"Reading the demonstrations: {text}", None))
    learner = load_learner(config, compute, report)
    encoder, chat = TokenizerEncoder(learner.tokenizer), chat_template(learner.tokenizer) if config.data.chat_template else None
    training, aside = split_held_out(rows.rows, config.data, config.engine.seed)
    if config.data.eval:
        training, aside = rows.rows, read_held_out_demonstrations(config.data).rows
    report("Encoding the demonstrations", None)
    prepared = prepare_demonstrations(training, config.data, encoder, chat, config.sft.loss_on)
    held_out = prepare_demonstrations(aside, config.data, encoder, chat, config.sft.loss_on)
    trainer = SupervisedTrainer(
        learner.model,
        prepared.items,
        LanguageModelObjective(),
        config.sft,
        compute,
        config.engine.seed,
        skip_non_finite=config.engine.non_finite == "skip",
    )
    starts = [(example.ids, counted_places(example)[0]) for example in held_out.items or prepared.items]
    watched = Watched(
        watched_prompts(starts, config.engine.watch_prompts),
        config.generation,
        config.engine.seed + 2,
        stop_token(config.generation, len(learner.model.get_input_embeddings().weight), learner.tokenizer),
        pad_id(learner.tokenizer),
    )
    stage = SFTStage(config, compute, learner.model, learner.tokenizer, trainer, held_out=held_out.items, watched=watched)
    notes = [*learner.notes, *rows.notes, *prepared.notes, _counts(len(prepared.items), len(held_out.items))]
    return stage, [EventRecord("info", "health", note) for note in notes]


def _counts(training: int, held_out: int) -> str:
    return f"The run learns from {training:,} demonstrations and is measured on {held_out:,} that it never learns from."
