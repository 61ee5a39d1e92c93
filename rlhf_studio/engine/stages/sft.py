"""Supervised fine-tuning: a causal language model learns to continue prompts as the examples do.

The loss is the mean of -log p(token) over the tokens that count, taken over the whole batch, however it is cut into
micro-batches. What padding holds changes nothing. :func:`run_training`, the loop below, also trains reward models.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import cross_entropy

from rlhf_studio.config import SFTConfig, TrainingConfig
from rlhf_studio.engine.padding import pad_right

IGNORED = -100
"""Label of a token that does not count; what ``cross_entropy`` leaves out."""


@dataclass(frozen=True)
class Example:
    """A prompt and the response to learn. The texts are joined as they are: a space between them belongs to the response."""

    prompt: str
    response: str


@dataclass(frozen=True)
class TrainingProgress:
    """Where a stage is, reported after each optimizer step.

    Attributes:
        step, steps: steps done, and steps in all.
        loss: of this step's batch (SFT: nats per token; reward model: nats per pair).
        learning_rate: used in this step.
        grad_norm: before clipping.
        seconds: since the stage began.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    seconds: float


Progress = Callable[[TrainingProgress], None]


@dataclass(frozen=True)
class SFTRecord:
    """What a finished stage reports. ``losses`` has one training loss per step; ``eval_loss`` is None without eval examples.

    All losses are in nats per counted token. ``skipped`` examples had no token that counts after cutting.
    """

    steps: int
    losses: tuple[float, ...]
    eval_loss: float | None
    tokens: int
    skipped: int
    seconds: float

    @property
    def perplexity(self) -> float | None:
        """exp(eval loss): between how many tokens the model hesitates on average."""
        return None if self.eval_loss is None else math.exp(min(self.eval_loss, 700.0))


def train_sft(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    config: SFTConfig,
    *,
    eval_examples: Sequence[Example] = (),
    progress: Progress | None = None,
) -> SFTRecord:
    """Train ``model`` (any Hugging Face causal LM, changed in place) on ``examples``; same seed, same result on a CPU.

    Raises ValueError when no example has a token that counts, FloatingPointError when the loss or gradient is not finite.
    """
    start = time.monotonic()
    encoded = [encode_example(tokenizer, example, config) for example in examples]
    usable = [example for example in encoded if example.counted]
    if not usable:
        raise ValueError("there is no example with a token to learn; check the prompts, the responses and max_tokens")
    objective = LanguageModelObjective(padding_id(tokenizer))
    losses = run_training(model, usable, objective, config, progress)
    held_out = [example for example in (encode_example(tokenizer, item, config) for item in eval_examples) if example.counted]
    return SFTRecord(
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
class TokenBatch:
    """Right-padded examples: ``input_ids`` and ``labels`` int64 (B, L), ``attention_mask`` int64 (B, L), 1 = real token."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor


def encode_example(tokenizer: Any, example: Example, config: SFTConfig) -> EncodedExample:
    """Token ids as PPO will see them: prompt and response are encoded apart, then joined, then the end token follows.

    A cut example (``max_tokens``) has no end token, so the model does not learn to stop there.
    """
    prompt = list(tokenizer(example.prompt)["input_ids"]) if example.prompt else []
    response = list(tokenizer(example.response, add_special_tokens=False)["input_ids"])
    if tokenizer.eos_token_id is not None:
        response.append(tokenizer.eos_token_id)
    labels = [IGNORED] * len(prompt) if config.loss_on == "response" else prompt
    return EncodedExample(tuple([*prompt, *response][: config.max_tokens]), tuple([*labels, *response][: config.max_tokens]))


def padding_id(tokenizer: Any) -> int:
    """An id to fill padding with: the pad token, else the end token, else 0. Masks hide it either way."""
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(candidate for candidate in candidates if candidate is not None)


def collate_examples(examples: Sequence[EncodedExample], pad_id: int, device: torch.device | str) -> TokenBatch:
    """Stack examples; on the right padding needs no position ids, since positions count from the left."""
    return TokenBatch(
        input_ids=pad_right([example.ids for example in examples], pad_id, device),
        attention_mask=pad_right([[1] * len(example.ids) for example in examples], 0, device),
        labels=pad_right([example.labels for example in examples], IGNORED, device),
    )


# --- objectives --------------------------------------------------------------------------------------------------------------


class Objective(Protocol):
    """A loss that is a sum over countable things, so that micro-batches of unequal size add up to the batch's mean."""

    def count(self, items: Sequence[Any]) -> int:
        """How many things (tokens, pairs) the loss of these items sums over."""

    def loss_sum(self, model: Any, items: Sequence[Any]) -> torch.Tensor:
        """The summed loss of these items, a float32 scalar."""


@dataclass(frozen=True)
class LanguageModelObjective:
    """-log p(token | what is left of it), summed over the tokens that count."""

    pad_id: int

    def count(self, items: Sequence[EncodedExample]) -> int:
        return sum(item.counted for item in items)

    def loss_sum(self, model: Any, items: Sequence[EncodedExample]) -> torch.Tensor:
        batch = collate_examples(items, self.pad_id, model.device)
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).logits
        # The logits at position t predict the token at t + 1.
        return cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch.labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")


def mean_loss(model: Any, items: Sequence[Any], objective: Objective, batch_size: int) -> float:
    """The objective's mean over all items, without dropout and without gradients."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        total = sum(float(objective.loss_sum(model, items[start : start + batch_size])) for start in range(0, len(items), batch_size))
    model.train(was_training)
    return total / objective.count(items)


# --- the loop ----------------------------------------------------------------------------------------------------------------


def learning_rate_at(step: int, steps: int, config: TrainingConfig) -> float:
    """Learning rate of step 0, 1, ... steps - 1: warm-up to the highest, then the schedule, which would reach 0 at ``steps``."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    factor = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}
    return config.learning_rate * factor[config.lr_schedule]


def run_training(
    model: Any, items: Sequence[Any], objective: Objective, config: TrainingConfig, progress: Progress | None = None
) -> list[float]:
    """Minimise the objective with AdamW for ``config.epochs`` passes, each in a new order; returns the loss of every step.

    One optimizer step per batch. The caller's random state is left as it was, and so is the model's train or eval mode.
    """
    start = time.monotonic()
    optimizer = _optimizer(model, config)
    order = torch.Generator().manual_seed(config.seed)
    steps = config.epochs * math.ceil(len(items) / config.batch_size)
    losses: list[float] = []
    was_training = model.training
    model.train()
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        for _ in range(config.epochs):
            shuffled = [items[index] for index in torch.randperm(len(items), generator=order).tolist()]
            for first in range(0, len(shuffled), config.batch_size):
                rate = learning_rate_at(len(losses), steps, config)
                loss, norm = _step(model, shuffled[first : first + config.batch_size], objective, optimizer, rate, config)
                losses.append(loss)
                if progress is not None:
                    progress(TrainingProgress(len(losses), steps, loss, rate, norm, time.monotonic() - start))
    model.train(was_training)
    return losses


def _optimizer(model: Any, config: TrainingConfig) -> torch.optim.AdamW:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.adam_beta2))


def _step(
    model: Any, batch: Sequence[Any], objective: Objective, optimizer: torch.optim.Optimizer, rate: float, config: TrainingConfig
) -> tuple[float, float]:
    """One optimizer step on one batch: (mean loss, gradient norm before clipping)."""
    optimizer.zero_grad(set_to_none=True)
    for group in optimizer.param_groups:
        group["lr"] = rate
    count = objective.count(batch)
    size = config.micro_batch_size or len(batch)
    total = 0.0
    for first in range(0, len(batch), size):
        loss = objective.loss_sum(model, batch[first : first + size]) / count
        loss.backward()
        total += float(loss.detach())
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm or math.inf))
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise FloatingPointError(f"the loss is {total} and the gradient norm {norm}; a lower learning rate often helps")
    optimizer.step()
    return total, norm
