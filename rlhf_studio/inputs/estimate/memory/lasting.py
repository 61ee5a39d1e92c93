"""The parts of a run's memory that are held from loading to the end: weights, gradients, the optimizer, the prompts."""

from __future__ import annotations

from collections.abc import Iterable

from rlhf_studio.config import EngineConfig, RunConfig
from rlhf_studio.inputs.estimate.counts import FLOAT32, Learns, RunModels, parameters, trained_parameters
from rlhf_studio.inputs.estimate.cpu import MOST_LANES, least_rows
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.disk import probe_tokens
from rlhf_studio.inputs.estimate.memory.parts import (
    CRITIC,
    FRAMEWORK,
    GRADIENTS,
    OPTIMIZER,
    POLICY,
    PROBES,
    PROMPTS,
    REFERENCE,
    REWARD_MODELS,
    MemoryPart,
)
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.prompts.lengths import PromptTokens

CPU_FRAMEWORK = (360_000_000, 460_000_000)  # bytes: Python, torch and transformers, imported and having run
GPU_FRAMEWORK = (400_000_000, 900_000_000)  # the driver's context and kernels
BITS = {"none": 32, "8bit": 8, "4bit": 4}  # per weight of the policy's base
PER_PROMPT_TOKEN = (10, 24)  # bytes of a token and of its piece of the text; of a chat, the text is held three times
PER_PROMPT = 1000  # bytes of the Python objects around a prompt, at most


def lasting_parts(config: RunConfig, models: RunModels, device: Device, size: int) -> Iterable[MemoryPart]:
    """Everything but the prompts. ``size``: bytes of one number in the matrix products."""
    policy, lora = models.policy, config.lora.enabled
    count, trained = parameters(policy), trained_parameters(config, policy)
    on_gpu = device.kind == "cuda"
    yield MemoryPart(FRAMEWORK, 0, *(GPU_FRAMEWORK if on_gpu else CPU_FRAMEWORK))
    yield policy_part(config, count, trained, size)
    yield _reference(config, policy, models.reference, size)
    critic = _critic_weights(models) if config.ppo.has_critic else 0
    if config.ppo.has_critic:
        yield MemoryPart(CRITIC, critic, _times(critic, FLOAT32), _times(critic, FLOAT32))
    if models.rewards:
        counts = [parameters(facts) for facts in models.rewards]
        total = None if None in counts else sum(number or 0 for number in counts)
        yield MemoryPart(REWARD_MODELS, total, _times(total, size), _times(total, size))
    learned = None if trained is None or critic is None else trained + critic
    matrix = policy.shape.vocabulary * policy.shape.hidden * FLOAT32 if policy.shape and not lora else 0
    tied = matrix if policy.shape and policy.shape.tied else 0
    least = least_rows(count or 0, learned or 0)
    copies = gradient_copies(config.ppo.mini_batch_size, config.ppo.micro_batch, config.engine, device, least)
    yield from learning_parts(learned, copies, (matrix, tied), device)


def learning_parts(learned: int | None, copies: int, matrices: tuple[int, int], device: Device) -> Iterable[MemoryPart]:
    """Gradients and the optimizer of ``learned`` weights.

    Args:
        copies: of the gradients, at most; see :func:`gradient_copies`.
        matrices: bytes of the largest matrix that learns, and of an output layer that is tied to the embedding; 0 where there is none.
    """
    matrix, tied = matrices
    # The output layer's gradient is made beside that of the embedding that it is tied to; and AdamW works on a copy of the largest matrix.
    yield MemoryPart(GRADIENTS, learned, _times(learned, FLOAT32), _plus(_times(learned, FLOAT32 * copies), tied))
    # AdamW's two moments. On a GPU one kernel (fused) updates weights and moments in place.
    moments = _times(learned, 2 * FLOAT32)
    yield MemoryPart(OPTIMIZER, _times(learned, 2), moments, moments if device.kind == "cuda" else _plus(moments, matrix))


def prompt_parts(config: RunConfig, prompts: PromptTokens | None, device: Device) -> Iterable[MemoryPart]:
    """All prompts as texts and token ids, which stay in the computer's own memory. Nothing where their lengths are unknown.

    Of a source whose rows nobody has counted there may be up to ``data.max_prompts``.
    """
    if prompts is None or device.kind != "cpu":
        return
    least, most = (0, config.data.max_prompts) if prompts.count is None else (prompts.count, prompts.count)
    low, high = PER_PROMPT_TOKEN
    yield MemoryPart(PROMPTS, 0, least * prompts.usual * low, most * (prompts.usual * high + PER_PROMPT))


def probe_parts(config: RunConfig, models: RunModels, device: Device) -> Iterable[MemoryPart]:
    """The starting policy's distributions at the probes, which stay in the computer's own memory. Nothing where there are none."""
    shape, tokens = models.policy.shape, probe_tokens(config)
    if shape is not None and tokens and device.kind == "cpu":
        yield MemoryPart(PROBES, 0, 0, tokens * shape.vocabulary * FLOAT32)  # their answers may have ended early


def policy_part(config: Learns, count: int | None, trained: int | None, size: int) -> MemoryPart:
    """The weights of the model that learns, and its frozen base under LoRA."""
    if config.lora.enabled:
        bits = BITS[config.model.quantization] if config.model.quantization != "none" else 8 * size
        weights = None if count is None or trained is None else count * bits // 8 + trained * FLOAT32
        return MemoryPart(POLICY, None if count is None or trained is None else count + trained, weights, weights)
    # Trained weights stay float32; autocast keeps bfloat16 copies of them while a pass runs.
    cast = 0 if size == FLOAT32 else size
    return MemoryPart(POLICY, count, _times(count, FLOAT32), _times(count, FLOAT32 + cast))


def _reference(config: RunConfig, policy: ModelFacts, reference: ModelFacts | None, size: int) -> MemoryPart:
    if reference is not None:  # an adapter of the policy's own base needs no second model
        own, frozen = parameters(reference), _frozen(config, reference, size)
        return MemoryPart(REFERENCE, own, 0 if reference.base and config.lora.enabled else frozen, frozen)
    if config.lora.enabled and config.lora.off_is_start and not config.ppo.reference_ema:
        return MemoryPart(REFERENCE, 0, 0, 0)  # the policy's own base with the adapters off
    frozen = _frozen(config, policy, size)
    return MemoryPart(REFERENCE, parameters(policy), frozen, frozen)


def _frozen(config: RunConfig, facts: ModelFacts, size: int) -> int | None:
    """Bytes of a frozen copy.

    With LoRA every weight has the computation's number format. Without it, only the matrices of linear layers have it, and in a reference
    that moves (``reference_ema``) none has. All other weights are float32, as are all weights of a model with an unknown shape.
    """
    count = parameters(facts)
    if config.lora.enabled or count is None:
        return _times(count, size)
    shape, rounded = facts.shape, 0
    if shape is not None and not config.ppo.reference_ema:
        rounded = min(shape.block_parameters + (0 if shape.tied else shape.vocabulary * shape.hidden), count)
    return FLOAT32 * count - (FLOAT32 - size) * rounded


def _critic_weights(models: RunModels) -> int | None:
    """Weights of the critic: the value head, and the trunk where it has its own."""
    owner = models.critic or models.policy
    head = owner.shape.hidden + 1 if owner.shape else 0
    return head if models.critic is None else _plus(parameters(models.critic), head)


def gradient_copies(rows: int, micro: int, engine: EngineConfig, device: Device, least: int) -> int:
    """How many copies of the gradients are held at the same time, at most.

    ``rows`` are in an optimizer step, ``micro`` in a pass, and ``least`` are worth a lane.

    On a CPU every lane adds up gradients of its own. A lane that takes more than one micro-batch of the minibatch holds the gradients of
    that micro-batch beside their sum.
    """
    lanes = min(engine.threads or device.cores, MOST_LANES) if device.kind == "cpu" else 1
    if micro < rows:
        return 2 * lanes if lanes > 1 else 1
    return max(min(lanes, rows // least), 1)


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _times(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor
