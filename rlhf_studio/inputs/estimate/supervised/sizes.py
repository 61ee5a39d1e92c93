"""How large the pieces of a supervised stage are: steps, texts, tokens of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from rlhf_studio.config import SFTRunConfig, SupervisedConfig
from rlhf_studio.inputs.checks.examples import ExampleTokens
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.families import TESTED_FAMILIES
from rlhf_studio.inputs.models.facts import ModelFacts


@dataclass(frozen=True)
class MicroBatch:
    """Tokens of one forward pass, usually and at most.

    Attributes:
        read: tokens that the model reads, padding included.
        counted: tokens that the loss is taken over, and for which there are logits.
        pairs: of tokens of one text, which attention compares: the squares of the texts' lengths together.
    """

    read: tuple[int, int]
    counted: tuple[int, int]
    pairs: tuple[int, int]


def planned_steps(config: SupervisedConfig, examples: int | None) -> int | None:
    """Optimizer steps of the run; ``examples``: how many it learns from. None where that is unknown and no limit is set."""
    training = config.training
    if not examples:
        return training.max_steps or None
    steps = training.epochs * ceil(examples / training.batch_size)
    return min(steps, training.max_steps) if training.max_steps else steps


def texts_per_example(config: SupervisedConfig) -> int:
    """1 for a demonstration, 2 for a pair."""
    return 1 if isinstance(config, SFTRunConfig) else 2


def is_packed(config: SupervisedConfig, facts: ModelFacts, device: Device) -> bool:
    """Whether texts go through the model one after the other in one row, without padding; see ``engine/compute/packing.py``."""
    return device.kind == "cpu" and facts.model_type in TESTED_FAMILIES and config.model.attention in ("auto", "sdpa")


def micro_batch(config: SupervisedConfig, tokens: ExampleTokens | None, packed: bool, examples: int | None = None) -> MicroBatch:
    """The tokens of one micro-batch. Without counted ``tokens`` every text may have ``data.max_tokens``, and all of them may count.

    Packed texts take what they have; padded ones, sorted by length before they are divided, what the longest beside them has.
    """
    training, most = config.training, config.data.max_tokens
    items = min(training.micro_batch, training.batch_size, examples or training.batch_size)
    rows = items * texts_per_example(config)
    if tokens is None:
        return MicroBatch((rows * most, rows * most), (rows * most, rows * most), (rows * most**2, rows * most**2))
    longest = min(most, tokens.longest) if tokens.complete else most
    usual = min(tokens.usual if packed else max(tokens.usual, tokens.longest_of(rows)), longest)
    counted = (int(rows * tokens.counted), ceil(rows * longest * tokens.counted / tokens.usual))
    return MicroBatch((rows * usual, rows * longest), counted, (rows * usual**2, rows * longest**2))
