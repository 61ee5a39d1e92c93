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

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.models.text_passes import TokenLogprobs, text_logprobs
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.training_loop import OnStep, run_training
from rlhf_studio.inputs.examples.encoded import IGNORED, EncodedExample


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

    @property
    def perplexity(self) -> float | None:
        """exp(eval loss): among how many equally likely tokens the model chooses, on average."""
        return None if self.eval_loss is None else math.exp(min(self.eval_loss, 700.0))


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
        raise ValueError("there is no example with a token to learn; check the prompts, the responses and max_tokens")
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


# --- examples as token ids ---------------------------------------------------------------------------------------------------


def counted_places(example: EncodedExample) -> list[int]:
    """The places of the tokens that count, ascending."""
    return [place for place, label in enumerate(example.labels) if label != IGNORED and place > 0]


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


# --- the objective -----------------------------------------------------------------------------------------------------------


class LanguageModelObjective(TrainingObjective[EncodedExample]):
    """-log p(token | the tokens before it), summed over the tokens that count, wherever in the text they are."""

    def count(self, items: Sequence[EncodedExample]) -> int:
        return sum(len(counted_places(item)) for item in items)

    def tokens(self, items: Sequence[EncodedExample]) -> int:
        return sum(len(item.ids) for item in items)

    def loss_sum(self, model: Any, items: Sequence[EncodedExample]) -> Tensor:
        return -self._logprobs(model, items).values.sum()

    def read(self, model: Any, items: Sequence[EncodedExample]) -> list[Tensor]:
        """The loss of each token that counts, in the order of :func:`counted_places`, float32 on the CPU."""
        return [-values for values in self._logprobs(model, items).of_each()]

    def mean_of(self, items: Sequence[EncodedExample], results: Sequence[Tensor]) -> float:
        return math.fsum(float(losses.double().sum()) for losses in results) / self.count(items)

    def _logprobs(self, model: Any, items: Sequence[EncodedExample]) -> TokenLogprobs:
        return text_logprobs(model, [item.ids for item in items], [counted_places(item) for item in items])
