"""Supervised fine-tuning: a causal language model learns to continue prompts as the examples do.

The loss is the mean of -log p(token) over the tokens that count, taken over the whole batch. The loop that minimises it is
:func:`rlhf_studio.engine.stages.training_loop.run_training`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.engine.stages.training_loop import OnStep, mean_loss, run_training

IGNORED = -100
"""Label of a token that does not count; ``cross_entropy`` leaves it out of the loss."""


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
    eval_examples: Sequence[Example] = (),
    on_step: OnStep | None = None,
) -> SFTResult:
    """Train ``model`` (any Hugging Face causal LM, changed in place) on ``examples``; same seed, same result on a CPU.

    Raises ValueError when no example has a token that counts, FloatingPointError when the loss or gradient is not finite.
    """
    start = time.monotonic()
    encoded = [encode_example(tokenizer, example, config) for example in examples]
    usable = [example for example in encoded if example.counted]
    if not usable:
        raise ValueError("there is no example with a token to learn; check the prompts, the responses and max_tokens")
    objective = LanguageModelObjective(padding_id(tokenizer))
    losses = run_training(model, usable, objective, config, on_step)
    held_out = [example for example in (encode_example(tokenizer, item, config) for item in eval_examples) if example.counted]
    return SFTResult(
        steps=len(losses),
        losses=tuple(losses),
        eval_loss=mean_loss(model, held_out, objective, config.batch_size) if held_out else None,
        tokens=sum(example.counted for example in usable) * config.epochs,
        skipped=len(encoded) - len(usable),
        seconds=time.monotonic() - start,
    )


# --- examples as tensors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedExample:
    """Token ids of prompt, response and end token; ``labels`` is the id where the token counts, else :data:`IGNORED`."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def counted(self) -> int:
        """Tokens that count; the first token of a text never does, since nothing predicts it."""
        return sum(label != IGNORED for label in self.labels[1:])


@dataclass(frozen=True)
class ExampleBatch:
    """Right-padded examples: ``input_ids`` and ``labels`` int64 (B, L), ``attention_mask`` int64 (B, L), 1 = real token."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor


def encode_example(tokenizer: Any, example: Example, config: SFTConfig) -> EncodedExample:
    """Token ids as PPO will see them: prompt and response are tokenized apart and joined, then the end token follows.

    An example that is cut at ``max_tokens`` has no end token, so the model does not learn to stop there.
    """
    prompt = list(tokenizer(example.prompt)["input_ids"]) if example.prompt else []
    response = list(tokenizer(example.response, add_special_tokens=False)["input_ids"])
    if tokenizer.eos_token_id is not None:
        response.append(tokenizer.eos_token_id)
    labels = [IGNORED] * len(prompt) if config.loss_on == "response" else prompt
    return EncodedExample(tuple([*prompt, *response][: config.max_tokens]), tuple([*labels, *response][: config.max_tokens]))


def padding_id(tokenizer: Any) -> int:
    """The id that fills padding: the pad token, else the end token, else 0. Which one does not matter, since masks hide it."""
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(candidate for candidate in candidates if candidate is not None)


def collate_examples(examples: Sequence[EncodedExample], pad_id: int, device: torch.device | str) -> ExampleBatch:
    """Examples as one batch, padded on the right: there padding needs no position ids, since positions count from the left."""
    return ExampleBatch(
        input_ids=pad_right([example.ids for example in examples], pad_id, device),
        attention_mask=pad_right([[1] * len(example.ids) for example in examples], 0, device),
        labels=pad_right([example.labels for example in examples], IGNORED, device),
    )


# --- the objective -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageModelObjective:
    """-log p(token | the tokens before it), summed over the tokens that count."""

    pad_id: int

    def count(self, items: Sequence[EncodedExample]) -> int:
        return sum(item.counted for item in items)

    def loss_sum(self, model: Any, items: Sequence[EncodedExample]) -> torch.Tensor:
        batch = collate_examples(items, self.pad_id, model.device)
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).logits
        # The logits at position t predict the token at t + 1.
        return cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch.labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
