"""The parts of a run's memory that are held while one phase runs: sampling, scoring, learning."""

from __future__ import annotations

from collections.abc import Iterable

from rlhf_studio.config import ClassifierReward, DPORunConfig, EvaluationRunConfig, RunConfig, SFTRunConfig
from rlhf_studio.inputs.estimate.counts import FLOAT32, Learns, RunModels, rows_together
from rlhf_studio.inputs.estimate.cpu import LEAST_NUMBERS, prepacks_weights
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.parts import (
    ACTIVATIONS,
    CACHE,
    CAPTURED,
    LOGITS,
    MERGED,
    NEXT_TOKEN,
    PREFILL,
    PREPACKED,
    SCORING,
    MemoryPart,
)
from rlhf_studio.inputs.models.shape import ModelShape
from rlhf_studio.inputs.prompts.lengths import PromptTokens

Samples = RunConfig | SFTRunConfig | DPORunConfig | EvaluationRunConfig
"""The stages whose model writes responses."""

MOST_KEPT = 0.05  # of a GPU's memory, for keys and values between two rollouts

LEARNING_PARTS = (LOGITS, ACTIVATIONS)
SAMPLING_PARTS = (CACHE, PREFILL, NEXT_TOKEN, MERGED, PREPACKED)


def sampling_and_learning_parts(
    config: RunConfig, models: RunModels, prompt: tuple[int, int], device: Device, size: int
) -> Iterable[MemoryPart]:
    """What sampling and learning need.

    Args:
        prompt: tokens of a usual prompt and of the longest.
        size: bytes of one number in the matrix products.
    """
    shape = models.policy.shape
    if shape is None or (models.critic is not None and models.critic.shape is None):
        yield from (MemoryPart(name, None, None, None, lasting=False) for name in (CACHE, PREFILL, NEXT_TOKEN, LOGITS, ACTIVATIONS))
        return
    adapted = config.lora.enabled and not config.lora.use_dora
    yield from sampling_parts(config, shape, prompt, device, size, rows_together(config), adapted)
    yield from _learning(config, [shape, models.critic.shape] if models.critic and models.critic.shape else [shape], prompt, device, size)


def scoring_parts(config: RunConfig, models: RunModels, prompts: PromptTokens | None, size: int) -> Iterable[MemoryPart]:
    """What reward models need while they read. Their own tokenizers are taken to make as many tokens as the policy's."""
    classifiers = [component for component in config.reward.components if isinstance(component, ClassifierReward)]
    components = [component for component in classifiers for _ in component.model_names()]
    if not components or models.policy.shape is None:
        return
    response = config.generation.response_length
    least, most = ((prompts.usual_text or prompts.usual), prompts.longest_text) if prompts else (config.data.max_prompt_tokens, None)
    low = high = 0
    for component, facts in zip(components, models.rewards, strict=False):
        if facts.shape:
            each = min(component.batch_size, config.ppo.batch_size) * read_per_token(facts.shape) * size
            low = max(low, each * min(least + response, component.max_tokens) // 4)
            high = max(high, each * (component.max_tokens if most is None else min(most + response, component.max_tokens)))
    yield MemoryPart(SCORING, 0, low, high, lasting=False)


def sampling_parts(
    config: Samples, shape: ModelShape, prompt: tuple[int, int], device: Device, size: int, rows: int, adapted: bool
) -> Iterable[MemoryPart]:
    """What is held while responses are sampled.

    Args:
        prompt: tokens of a usual prompt and of the longest.
        size: bytes of one number in the matrix products.
        rows: responses that are sampled together.
        adapted: whether adapters are merged into their base meanwhile.
    """
    response = config.generation.response_length
    # Room for whole responses is taken at once; rows that have ended are removed by copying the others.
    cache = [rows * (length + response) * shape.layers * shape.cached * size for length in prompt]
    yield MemoryPart(CACHE, 0, cache[0], int(1.5 * cache[1]), lasting=False)
    # The prompts go through the model together, padded to the longest. Which tokens each token may attend to is first a table of
    # yes and no (1 byte each); then attention adds it to its scores as numbers.
    reading = [rows * length * read_per_token(shape) * size for length in prompt]
    yield MemoryPart(PREFILL, 0, reading[0] // 4, reading[1] + rows * prompt[1] ** 2 * (1 + size), lasting=False)
    # For each response one row over the vocabulary of: logits, log-probabilities, probabilities, and their running sum in float64.
    row = rows * shape.vocabulary * FLOAT32
    yield MemoryPart(NEXT_TOKEN, 0, 2 * row, 6 * row, lasting=False)
    if adapted and config.model.quantization == "none":
        # While sampling, base and adapters are one matrix; the base's own weights are kept beside it.
        merged = shape.block_parameters * size
        yield MemoryPart(MERGED, 0, merged, merged, lasting=False)
    if device.kind == "cuda" and config.model.quantization == "none":
        # Only for some families of models: copies of all matrices, and keys and values where they are a small part of the GPU's memory.
        copies = (shape.block_parameters + shape.vocabulary * shape.hidden) * size if adapted or size < FLOAT32 else 0
        kept = cache[1] if cache[1] <= MOST_KEPT * (device.total or 0) else 0
        yield MemoryPart(CAPTURED, 0, 0, copies + kept + 2 * row)
    plain = device.kind == "cpu" and size == FLOAT32 and config.model.quantization == "none"
    if plain and (prepacked := FLOAT32 * _prepacked_weights(shape)) and prepacks_weights(prepacked, device.total, response):
        # It happens only where the model's family and the processor's library allow it. While it is made, memory comes and goes, and
        # the gaps that stay behind can be as large again.
        yield MemoryPart(PREPACKED, 0, 0, 2 * prepacked, lasting=False)


def _learning(config: RunConfig, shapes: list[ModelShape], prompt: tuple[int, int], device: Device, size: int) -> Iterable[MemoryPart]:
    """What one micro-batch needs. ``shapes``: the policy's, and that of a separate critic."""
    ppo, response, micro = config.ppo, config.generation.response_length, config.ppo.micro_batch
    tokens = (prompt[0] + response, prompt[1] + response)
    # The logits of the response, a copy of the real tokens' rows whose memory is used again in place, and the gradients of both. On a GPU
    # they are in the number format of the products.
    logits = micro * response * shapes[0].vocabulary * (size if device.kind == "cuda" else FLOAT32)
    odds = 2 * ppo.batch_size * response * shapes[0].vocabulary * FLOAT32 if ppo.kl_estimator == "full" else 0
    yield MemoryPart(LOGITS, 0, 2 * logits + odds, 5 * logits + odds, lasting=False)
    yield activations_part(config, shapes, (micro * tokens[0], micro * tokens[1]), device, size)


def activations_part(config: Learns, shapes: list[ModelShape], tokens: tuple[int, int], device: Device, size: int) -> MemoryPart:
    """What forward passes of ``tokens`` (usually, at most) keep for the backward pass; ``shapes``: of the models that learn together."""
    saved = [count * sum(_saved_per_token(shape, config) for shape in shapes) * size for count in tokens]
    gaps = tokens[1] * sum(_freed_per_token(shape, config) for shape in shapes) * size
    return MemoryPart(ACTIVATIONS, 0, saved[0], saved[1] + gaps if device.kind == "cpu" else int(1.6 * saved[1]), lasting=False)


def _prepacked_weights(shape: ModelShape) -> int:
    """Weights in the matrices that are large enough to be prepacked for sampling."""
    blocks, head = (shape.block_parameters, shape.hidden * shape.inner), (shape.vocabulary * shape.hidden,) * 2
    return sum(count for count, matrix in (blocks, head) if matrix >= LEAST_NUMBERS)


def _saved_per_token(shape: ModelShape, config: Learns) -> int:
    """Values that the backward pass needs; with gradient checkpointing the input of each block, and one block at a time in full."""
    if config.model.gradient_checkpointing:
        return shape.layers * shape.hidden + shape.saved_per_token // shape.layers
    return shape.saved_per_token


def _freed_per_token(shape: ModelShape, config: Learns) -> int:
    """Values that are made and freed again during a pass. On a CPU each can leave a gap in memory that is too small for what is made later.

    Per block: results that are added to the residual stream or rotated by position (6 H), and the feed-forward part before its activation
    (F; with a gate 2 F). With LoRA also, beside each matrix's result, the adapter's result and the same scaled.
    """
    inner = (2 if shape.gated else 1) * shape.inner
    block = 6 * shape.hidden + inner
    if config.lora.enabled:
        block += 2 * (3 * shape.hidden + shape.cached + inner)
    return block * (1 if config.model.gradient_checkpointing else shape.layers)


def read_per_token(shape: ModelShape) -> int:
    """Values per token of a forward pass without gradients, at most: a block's inner values twice, and the residual stream."""
    return 8 * shape.hidden + 4 * shape.inner
