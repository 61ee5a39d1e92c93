"""Supervised fine-tuning: a causal language model learns to continue prompts as the examples do.

The loss is the mean of -log p(token) over the tokens that count, taken over the whole batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlhf_studio.config import SFTConfig, SFTRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.text_passes import TokenLogprobs, text_logprobs
from rlhf_studio.engine.stages.stage_run import ends_event
from rlhf_studio.engine.stages.supervised.examples import load_demonstrations
from rlhf_studio.engine.stages.supervised.loading import ends_in_training, load_learner
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.stage import Measured, WritingStage, health_events, trainer_of, watch
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers
from rlhf_studio.engine.stages.supervised.training_loop import OnStep, run_training
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples.encoded import IGNORED, EncodedExample
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord, RolloutRecord

MOST_NATS = 20.0  # of a mean loss whose perplexity is still shown: e^20 is half a billion


def counted_positions(example: EncodedExample) -> list[int]:
    """The positions of the tokens that count, ascending."""
    return [position for position, label in enumerate(example.labels) if label != IGNORED and position > 0]


class LanguageModelObjective(TrainingObjective[EncodedExample]):
    """-log p(token | the tokens before it), summed over the tokens that count, wherever in the text they are."""

    def count(self, items: Sequence[EncodedExample]) -> int:
        return sum(len(counted_positions(item)) for item in items)

    def tokens(self, items: Sequence[EncodedExample]) -> int:
        return sum(len(item.ids) for item in items)

    def loss_sum(self, model: Any, items: Sequence[EncodedExample]) -> Tensor:
        return -self._logprobs(model, items).values.sum()

    def read(self, model: Any, items: Sequence[EncodedExample]) -> list[Tensor]:
        """The loss of each token that counts, in the order of :func:`counted_positions`, float32 on the CPU."""
        return [-values for values in self._logprobs(model, items).of_each()]

    def mean_of(self, items: Sequence[EncodedExample], results: Sequence[Tensor]) -> float:
        return math.fsum(float(losses.double().sum()) for losses in results) / self.count(items)

    def _logprobs(self, model: Any, items: Sequence[EncodedExample]) -> TokenLogprobs:
        return text_logprobs(model, [item.ids for item in items], [counted_positions(item) for item in items])


# --- the run -----------------------------------------------------------------------------------------------------------------------


class SFTStage(WritingStage):
    """A run of supervised fine-tuning."""

    name = "sft"

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """The batch's perplexity: among how many equally likely tokens the model chose, on average."""
        return {"sft/perplexity": perplexity(numbers.loss)}

    def measure(self) -> Measured:
        """Loss and perplexity of the held-out demonstrations, in nats per token and as a number of tokens."""
        if not self.held_out:
            return Measured()
        loss = self.trainer.mean_loss(self.held_out)
        return Measured({"sft/eval_loss": loss, "sft/eval_perplexity": perplexity(loss)})

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The first examples of the batch, token by token, as the model sees them after the step."""
        batch = [self.trainer.items[item] for item in items[: self.config.engine.record_samples]]
        learned = [counted_positions(example) for example in batch]
        texts = [(example.ids, positions[0]) for example, positions in zip(batch, learned, strict=True)]
        return self.recorder.record(self.model, texts, learned)


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
    training, held_out = examples.training.items, [item for item in examples.held_out.items if counted_positions(item)]
    trainer = trainer_of(config, learner.model, training, LanguageModelObjective(), compute)
    starts = [(item.ids, positions[0]) for item in held_out or training if (positions := counted_positions(item))]
    watched = watch(config, learner, stops, starts)
    stage = SFTStage(config, compute, learner.model, learner.tokenizer, trainer, held_out=held_out, watched=watched)
    return stage, [*health_events([*learner.notes, *examples.notes]), ends_event(config.generation, ends, stops), examples.counts]


# --- a training in memory, for models that are not runs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A prompt and the response to learn. The texts are joined as they are: a space between them belongs to the response."""

    prompt: str
    response: str


@dataclass(frozen=True)
class SFTResult:
    """What a finished stage returns. All losses are in nats per token that counts.

    Attributes:
        steps: optimizer steps taken.
        losses: the training loss of each step.
        eval_loss: mean loss over the eval examples; None without any.
        tokens: tokens that counted, over all passes.
        skipped: examples that were left out, because no token that counts was left after cutting them to ``max_tokens``.
        seconds: time of the whole stage.
    """

    steps: int
    losses: tuple[float, ...]
    eval_loss: float | None
    tokens: int
    skipped: int
    seconds: float


def train_sft(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    config: SFTConfig,
    *,
    seed: int = 0,
    max_tokens: int = 512,
    eval_examples: Sequence[Example] = (),
    on_step: OnStep | None = None,
) -> SFTResult:
    """Train ``model`` (any Hugging Face causal LM, changed in place) on ``examples``; same seed, same result on a CPU.

    Examples are cut after ``max_tokens`` tokens. Raises ValueError when no example has a token that counts, NonFiniteError when the loss or
    the gradient is not finite.
    """
    start = time.monotonic()
    encoded = [encode_example(tokenizer, example, config.loss_on, max_tokens) for example in examples]
    usable = [example for example in encoded if example.counted]
    if not usable:
        raise ValueError(S_("there is no example with a token to learn; check the prompts, the responses and max_tokens"))
    trainer, steps = run_training(model, usable, LanguageModelObjective(), config, seed, on_step)
    held_out = [encode_example(tokenizer, item, config.loss_on, max_tokens) for item in eval_examples]
    return SFTResult(
        steps=len(steps),
        losses=tuple(step.loss for step in steps),
        eval_loss=trainer.mean_loss(held_out) if any(example.counted for example in held_out) else None,
        tokens=round(sum(step.count for step in steps)),
        skipped=len(encoded) - len(usable),
        seconds=time.monotonic() - start,
    )


def encode_example(tokenizer: Any, example: Example, loss_on: str, max_tokens: int) -> EncodedExample:
    """Token ids as PPO will see them: prompt and response are tokenized apart and joined, then the end token follows.

    An example that is cut at ``max_tokens`` has no end token, so the model does not learn to stop there.
    """
    prompt = list(tokenizer(example.prompt)["input_ids"]) if example.prompt else []
    response = list(tokenizer(example.response, add_special_tokens=False)["input_ids"])
    if tokenizer.eos_token_id is not None:
        response.append(tokenizer.eos_token_id)
    labels = [IGNORED] * len(prompt) if loss_on == "response" else prompt
    return EncodedExample(tuple([*prompt, *response][:max_tokens]), tuple([*labels, *response][:max_tokens]))
