"""What an evaluation needs of memory and disk. Its policies answer one after the other, so that one is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable

from rlhf_studio.config import ClassifierReward, EvaluationRunConfig
from rlhf_studio.inputs.estimate.counts import FLOAT32, RunModels, bytes_per_number, parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.disk import BYTES_PER_EPISODE, BYTES_PER_EPISODE_TOKEN, BYTES_PER_RECORDED_TOKEN
from rlhf_studio.inputs.estimate.memory.lasting import BITS, CPU_FRAMEWORK, GPU_FRAMEWORK
from rlhf_studio.inputs.estimate.memory.parts import FRAMEWORK, POLICY, REFERENCE, REFERENCE_PASS, REWARD_MODELS, SCORING, MemoryPart
from rlhf_studio.inputs.estimate.memory.phases import read_per_token, sampling_parts
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_of_parts
from rlhf_studio.inputs.prompts.lengths import PromptTokens


def rows_at_once(config: EvaluationRunConfig) -> int:
    """Answers that are written at the same time."""
    rows = config.evaluation.batch_size * config.evaluation.samples
    return min(config.generation.batch_size or rows, rows)


def estimate_evaluation_memory(
    config: EvaluationRunConfig, models: RunModels, device: Device, prompts: PromptTokens | None
) -> MemoryEstimate:
    """The memory that an evaluation needs; ``models.policy`` is the largest of its policies."""
    size = bytes_per_number(config, device)
    longest = config.data.max_prompt_tokens
    prompt = (min(prompts.usual, longest), min(prompts.longest[1], longest)) if prompts else (longest, longest)
    return estimate_of_parts(device, [*_lasting(config, models, device, size), *_phases(config, models, prompt, device, size)])


def _lasting(config: EvaluationRunConfig, models: RunModels, device: Device, size: int) -> Iterable[MemoryPart]:
    yield MemoryPart(FRAMEWORK, 0, *(GPU_FRAMEWORK if device.kind == "cuda" else CPU_FRAMEWORK))
    count, bits = parameters(models.policy), 8 * size
    bits = BITS[config.model.quantization] if config.model.quantization != "none" else bits
    weights = None if count is None else count * bits // 8
    # The next policy may be loaded before the last one's memory is given back.
    yield MemoryPart(POLICY, count, weights, None if weights is None else 2 * weights)
    own = parameters(models.reference) if models.reference else count
    yield MemoryPart(REFERENCE, own, *(2 * (None if own is None else own * size,)))
    if models.rewards:
        counts = [parameters(facts) for facts in models.rewards]
        total = None if None in counts else sum(number or 0 for number in counts) * size
        yield MemoryPart(REWARD_MODELS, None if total is None else total // size, total, total)


def _phases(config: EvaluationRunConfig, models: RunModels, prompt: tuple[int, int], device: Device, size: int) -> Iterable[MemoryPart]:
    shape, rows, response = models.policy.shape, rows_at_once(config), config.generation.response_length
    if shape is None:
        yield MemoryPart(REFERENCE_PASS, None, None, None, lasting=False)
        return
    yield from sampling_parts(config, shape, prompt, device, size, rows, adapted=False)
    reader = models.reference.shape if models.reference and models.reference.shape else shape
    logits = rows * response * reader.vocabulary * FLOAT32
    yield MemoryPart(REFERENCE_PASS, 0, 0, 2 * logits + rows * (prompt[1] + response) * read_per_token(reader) * size, lasting=False)
    readers = [component for component in config.reward.components if isinstance(component, ClassifierReward)]
    each = [
        min(component.batch_size, rows) * component.max_tokens * read_per_token(facts.shape) * size
        for component, facts in zip((component for component in readers for _ in component.model_names()), models.rewards, strict=False)
        if facts.shape
    ]
    if each:
        yield MemoryPart(SCORING, 0, 0, max(each), lasting=False)


def evaluation_disk_bytes(config: EvaluationRunConfig, steps: int | None, policies: int) -> int:
    """Upper estimate of what an evaluation records: every answer, and of some every token. 0 where the number of steps is unknown."""
    if steps is None:
        return 0
    engine, length = config.engine, config.generation.response_length
    answers = config.evaluation.batch_size * config.evaluation.samples * max(policies, 1)
    recorded = min(engine.record_samples, answers) * length * BYTES_PER_RECORDED_TOKEN
    return steps * (recorded + answers * (length * BYTES_PER_EPISODE_TOKEN + BYTES_PER_EPISODE + 4 * len(config.reward.components)))
