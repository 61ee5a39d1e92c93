"""The memory of a supervised stage, part by part."""

from __future__ import annotations

from collections.abc import Iterable

from rlhf_studio.config import DPORunConfig, RewardModelRunConfig, SFTRunConfig, SupervisedConfig
from rlhf_studio.inputs.checks.examples import ExampleTokens
from rlhf_studio.inputs.estimate.counts import FLOAT32, RunModels, bytes_per_number, parameters, trained_parameters
from rlhf_studio.inputs.estimate.cpu import least_rows
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import CPU_FRAMEWORK, GPU_FRAMEWORK, gradient_copies, learning_parts, policy_part
from rlhf_studio.inputs.estimate.memory.parts import (
    ACTIVATIONS,
    EXAMPLES,
    FRAMEWORK,
    LEARNER,
    LOGITS,
    MEASURING,
    REFERENCE,
    REFERENCE_PASS,
    MemoryPart,
)
from rlhf_studio.inputs.estimate.memory.phases import activations_part, read_per_token, sampling_parts
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_of_parts
from rlhf_studio.inputs.estimate.supervised.sizes import MicroBatch, is_packed, micro_batch, texts_per_example
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import ModelShape

PER_TOKEN = (8, 80)  # bytes of a token's id and label: a pointer in each list, and often a number of its own; its piece of the text
PER_EXAMPLE = 2000  # bytes of the Python objects around an example, at most


def estimate_training_memory(
    config: SupervisedConfig, models: RunModels, device: Device, tokens: ExampleTokens | None = None, examples: int | None = None
) -> MemoryEstimate:
    """The memory that a supervised run needs.

    Args:
        tokens: lengths of the texts; None takes ``data.max_tokens`` for every text.
        examples: how many there are; None when unknown.
    """
    size = bytes_per_number(config, device)
    batch = micro_batch(config, tokens, is_packed(config, models.policy, device), examples)
    return estimate_of_parts(
        device,
        [
            *_lasting(config, models, device, size),
            *_examples(config, tokens, examples, device),
            *_learning(config, models.policy, batch, device, size),
            *_reading(config, models, batch, size),
            *_writing(config, models.policy.shape, tokens, device, size),
        ],
    )


def _lasting(config: SupervisedConfig, models: RunModels, device: Device, size: int) -> Iterable[MemoryPart]:
    """Weights, gradients and the optimizer."""
    count, trained = (
        _weights(config, models, parameters(models.policy)),
        _weights(config, models, trained_parameters(config, models.policy)),
    )
    yield MemoryPart(FRAMEWORK, 0, *(GPU_FRAMEWORK if device.kind == "cuda" else CPU_FRAMEWORK))
    own = policy_part(config, count, trained, size)
    yield MemoryPart(LEARNER, own.parameters, own.low, own.high)
    if isinstance(config, DPORunConfig):
        yield _reference(config, models, size)
    shape, training = models.policy.shape, config.training
    matrix = shape.vocabulary * shape.hidden * FLOAT32 if shape and not config.lora.enabled else 0
    tied = matrix if shape and shape.tied and not isinstance(config, RewardModelRunConfig) else 0  # a reward model has no output layer
    copies = gradient_copies(training.batch_size, training.micro_batch, config.engine, device, least_rows(count or 0, trained or 0))
    yield from learning_parts(trained, copies, (matrix, tied), device)


def _weights(config: SupervisedConfig, models: RunModels, count: int | None) -> int | None:
    """A number of weights; of a reward model without the language model's output layer, where that is a matrix of its own."""
    shape = models.policy.shape
    if count is None or shape is None or shape.tied or config.lora.enabled or not isinstance(config, RewardModelRunConfig):
        return count
    return max(count - shape.vocabulary * shape.hidden, 0)


def _reference(config: DPORunConfig, models: RunModels, size: int) -> MemoryPart:
    """The frozen model that margins are measured from: another model, a copy, or with LoRA the policy with its adapters off."""
    if models.reference is not None:
        count = parameters(models.reference)
        weights = None if count is None else count * size
        return MemoryPart(REFERENCE, count, 0 if models.reference.base and config.lora.enabled else weights, weights)
    if config.lora.enabled and config.lora.off_is_start:
        return MemoryPart(REFERENCE, 0, 0, 0)
    count = parameters(models.policy)
    return MemoryPart(REFERENCE, count, None if count is None else count * size, None if count is None else count * size)


def _examples(config: SupervisedConfig, tokens: ExampleTokens | None, examples: int | None, device: Device) -> Iterable[MemoryPart]:
    """All examples as token ids, which stay in the computer's own memory. Nothing where their lengths are unknown."""
    if tokens is None or device.kind != "cpu":
        return
    least, most = (0, config.data.max_rows) if examples is None else (examples, examples)
    each = tokens.usual * texts_per_example(config)
    yield MemoryPart(EXAMPLES, 0, least * each * PER_TOKEN[0], most * (each * PER_TOKEN[1] + PER_EXAMPLE))


def _learning(config: SupervisedConfig, facts: ModelFacts, batch: MicroBatch, device: Device, size: int) -> Iterable[MemoryPart]:
    """What one micro-batch needs."""
    shape = facts.shape
    if shape is None:
        yield from (MemoryPart(name, None, None, None, lasting=False) for name in (LOGITS, ACTIVATIONS))
        return
    if not isinstance(config, RewardModelRunConfig):  # its head has one output, at the last token of each text
        # The logits where a token counts, and a copy whose memory is used again in place for their gradient.
        logits = [count * shape.vocabulary * FLOAT32 for count in batch.counted]
        yield MemoryPart(LOGITS, 0, logits[0], 5 * logits[1], lasting=False)
    part = activations_part(config, [shape], batch.read, device, size)
    dropped = [count * _dropout_bytes_per_pair(config, facts, device) for count in batch.pairs]
    yield MemoryPart(ACTIVATIONS, 0, (part.low or 0) + dropped[0], (part.high or 0) + dropped[1], lasting=False)


def _dropout_bytes_per_pair(config: SupervisedConfig, facts: ModelFacts, device: Device) -> int:
    """Bytes that attention keeps for each pair of tokens of a text; 0 on a GPU, and where attention has no dropout.

    On a CPU the fast attention has no dropout. So the weights of every head are kept, the weights after dropping, and which were dropped.
    With gradient checkpointing this is so in one block at a time. Only fine-tuning trains with the model's own dropout.
    """
    if not (facts.attention_dropout and isinstance(config, SFTRunConfig)) or device.kind != "cpu" or facts.shape is None:
        return 0
    blocks = 1 if config.model.gradient_checkpointing else facts.shape.layers
    return blocks * (facts.heads or 1) * (2 * FLOAT32 + 1)


def _reading(config: SupervisedConfig, models: RunModels, batch: MicroBatch, size: int) -> Iterable[MemoryPart]:
    """Passes without gradients, of as many texts: over held-out examples, and of DPO's reference."""
    names = (MEASURING, REFERENCE_PASS) if isinstance(config, DPORunConfig) else (MEASURING,)
    for name, facts in zip(names, (models.policy, models.reference or models.policy), strict=False):
        if facts.shape is None:
            continue
        logits = 0 if isinstance(config, RewardModelRunConfig) else batch.counted[1] * facts.shape.vocabulary * FLOAT32
        yield MemoryPart(name, 0, 0, batch.read[1] * read_per_token(facts.shape) * size + 2 * logits, lasting=False)


def _writing(
    config: SupervisedConfig, shape: ModelShape | None, tokens: ExampleTokens | None, device: Device, size: int
) -> Iterable[MemoryPart]:
    """What the answers to the watched prompts need; a reward model writes none."""
    rows = config.engine.watch_prompts
    if shape is None or not rows or not isinstance(config, SFTRunConfig | DPORunConfig):
        return
    prompt = config.data.max_tokens if tokens is None or not tokens.complete else tokens.longest
    adapted = config.lora.enabled and not config.lora.use_dora
    for part in sampling_parts(config, shape, (1, prompt), device, size, rows, adapted):
        yield MemoryPart(part.name, part.parameters, 0, part.high, lasting=False)  # prompts may be short, and answers end early
