"""How much memory a run needs, part by part, before anything is loaded: arithmetic on the models' shapes and the batch sizes.

Every figure is a range. Weights, gradients and the optimizer are exact; what a pass needs while it runs depends on the real
prompt lengths and on the memory allocator. docs/planner.md gives the formulas and how well they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlhf_studio.config import EnsembleReward, RewardComponent, RewardModelReward, RunConfig
from rlhf_studio.inputs.hardware import Machine
from rlhf_studio.inputs.models import ModelFacts
from rlhf_studio.inputs.shape import ModelShape
from rlhf_studio.inputs.sizes import BITS, LEAST_NUMBERS, lays_weights_out, target_names, trained_values

FLOAT32, BFLOAT16 = 4, 2  # bytes
CPU_FRAMEWORK = (360_000_000, 460_000_000)  # Python, torch and transformers, imported and having run
GPU_FRAMEWORK = (400_000_000, 900_000_000)  # the driver's context and kernels


@dataclass(frozen=True)
class Part:
    """One row of the plan. ``low`` and ``high`` are bytes; None with ``parameters`` None: the model's files do not tell."""

    name: str
    parameters: int | None
    low: int | None
    high: int | None
    lasting: bool = True  # held all the time; else only while one phase runs


@dataclass(frozen=True)
class Plan:
    """Memory of one run on one device.

    Attributes:
        parts: in the order of the table.
        unknown: one sentence why there is no total, or empty.
    """

    machine: Machine
    parts: list[Part]
    unknown: str = ""

    @property
    def low(self) -> int | None:
        """Least bytes at the peak: everything that lasts, and the largest of the phases."""
        if self.unknown:
            return None
        return sum(part.low or 0 for part in self.parts if part.lasting) + max(_phases(self.parts))

    @property
    def high(self) -> int | None:
        """Most bytes at the peak: everything together, since an allocator does not always give memory back in between."""
        return None if self.unknown else sum(part.high or 0 for part in self.parts)

    @property
    def fits(self) -> bool | None:
        """Whether even the high figure fits into what is free; None when one of them is unknown."""
        return None if self.high is None or self.machine.free is None else self.high <= self.machine.free

    @property
    def too_large(self) -> bool:
        """Whether even the low figure does not fit."""
        return self.low is not None and self.machine.free is not None and self.low > self.machine.free

    def measured_range(self) -> tuple[int, int] | None:
        """What the metric memory/peak should lie between: on a GPU it counts tensors only, not the framework."""
        if self.low is None or self.high is None:
            return None
        if self.machine.device == "cpu":
            return self.low, self.high
        return self.low - GPU_FRAMEWORK[0], self.high - GPU_FRAMEWORK[1]


def _phases(parts: Sequence[Part]) -> Iterable[int]:
    """Least bytes of the phases that do not overlap: learning, sampling, scoring."""
    sizes = {part.name: part.low or 0 for part in parts if not part.lasting}
    learning = sizes.pop(ACTIVATIONS, 0) + sizes.pop(LOGITS, 0)
    sampling = sizes.pop(CACHE, 0) + sizes.pop(SAMPLING, 0) + sizes.pop(MERGED, 0) + sizes.pop(LAID_OUT, 0)
    return [learning, sampling, *sizes.values()]


POLICY, REFERENCE, CRITIC, REWARDS = "Policy", "Reference", "Critic", "Reward models"
GRADIENTS, OPTIMIZER, FRAMEWORK, MERGED = "Gradients", "Optimizer", "Framework", "Merged adapters"
CACHE, SAMPLING, LOGITS, ACTIVATIONS, SCORING = "KV cache", "Next-token odds", "Logits", "Activations", "Scoring"
LAID_OUT = "Weights laid out"


@dataclass(frozen=True)
class Models:
    """What a run's model files tell: one entry per reward model; ``reference`` and ``critic`` where they are models of their own."""

    policy: ModelFacts
    rewards: Sequence[ModelFacts] = ()
    reference: ModelFacts | None = None
    critic: ModelFacts | None = None


def make_plan(config: RunConfig, models: Models, machine: Machine, prompt: tuple[int, int] | None = None) -> Plan:
    """The plan for a run. ``prompt``: (least, most) tokens of the longest prompt; None takes ``data.max_prompt_tokens`` for both."""
    longest = config.data.max_prompt_tokens
    prompt = (min(prompt[0], longest), min(prompt[1], longest)) if prompt else (longest, longest)
    size = compute_bytes(config, machine)
    parts = [*_lasting(config, models, machine, size), *_passing(config, models, prompt, machine, size)]
    missing = [part.name.lower() for part in parts if part.low is None]
    unknown = f"unknown: the model's files do not tell the size of {', '.join(missing)}" if missing else ""
    return Plan(machine, parts, unknown)


def compute_bytes(config: RunConfig, machine: Machine) -> int:
    """Bytes of one number in matrix products."""
    bfloat16 = config.model.dtype == "bfloat16" or (config.model.dtype == "auto" and machine.device == "cuda" and machine.bfloat16)
    return BFLOAT16 if bfloat16 else FLOAT32


def parameters(facts: ModelFacts) -> int | None:
    """Number of weights: counted in the files, else from the shape."""
    return facts.parameters or (facts.shape.parameters if facts.shape else None)


def trained_parameters(config: RunConfig, policy: ModelFacts) -> int | None:
    """Weights that PPO changes, without the value head; None when they are not known."""
    if not config.lora.enabled:
        return parameters(policy)
    known = trained_values(config, policy)
    if known is not None or policy.shape is None or target_names(config.lora) != ["auto"]:
        return known
    # The matrices are not on this machine: r × (rows + columns) of those that the shape has.
    shape = policy.shape
    attention = (shape.hidden + shape.hidden + shape.cached) + 2 * shape.hidden
    return config.lora.r * shape.layers * (attention + (3 if shape.gated else 2) * (shape.hidden + shape.inner))


def judge_count(config: RunConfig) -> int:
    """How many reward models the components name."""
    return sum(_members(component) for component in config.reward.components)


def _lasting(config: RunConfig, models: Models, machine: Machine, size: int) -> Iterable[Part]:
    """What is held from loading to the end."""
    policy, lora = models.policy, config.lora.enabled
    count, trained = parameters(policy), trained_parameters(config, policy)
    on_gpu = machine.device == "cuda"
    yield Part(FRAMEWORK, 0, *(GPU_FRAMEWORK if on_gpu else CPU_FRAMEWORK))
    if lora:
        bits = BITS[config.model.quantization] if config.model.quantization != "none" else 8 * size
        weights = None if count is None or trained is None else count * bits // 8 + trained * FLOAT32
        yield Part(POLICY, None if weights is None else count + trained, weights, weights)
    else:
        # Trained weights stay float32; autocast keeps bfloat16 copies of them while a pass runs.
        cast = 0 if size == FLOAT32 else size
        yield Part(POLICY, count, _times(count, FLOAT32), _times(count, FLOAT32 + cast))
    yield _reference(config, count, models.reference, size)
    critic = _critic(models)
    yield Part(CRITIC, critic, _times(critic, FLOAT32), _times(critic, FLOAT32))
    if models.rewards:
        counts = [parameters(facts) for facts in models.rewards]
        total = None if None in counts else sum(number or 0 for number in counts)
        yield Part(REWARDS, total, _times(total, size), _times(total, size))
    learned = None if trained is None or critic is None else trained + critic
    # The output layer's gradient is made beside that of the embedding that it is tied to, and AdamW works on the largest matrix in a copy.
    matrix = policy.shape.vocabulary * policy.shape.hidden * FLOAT32 if policy.shape and not lora else 0
    yield Part(
        GRADIENTS, learned, _times(learned, FLOAT32), _plus(_times(learned, FLOAT32), matrix if policy.shape and policy.shape.tied else 0)
    )
    # AdamW's two moments; on a GPU all weights are stepped together, through one temporary copy of them.
    moments = _times(learned, 2 * FLOAT32)
    yield Part(OPTIMIZER, _times(learned, 2), moments, _times(learned, 3 * FLOAT32) if on_gpu else _plus(moments, matrix))


def _critic(models: Models) -> int | None:
    """Weights of the critic: the value head, and the trunk where it has its own."""
    owner = models.critic or models.policy
    head = owner.shape.hidden + 1 if owner.shape else 0
    return head if models.critic is None else _plus(parameters(models.critic), head)


def _reference(config: RunConfig, count: int | None, reference: ModelFacts | None, size: int) -> Part:
    if reference is not None:  # an adapter of the policy's own base needs no second model
        own = parameters(reference)
        return Part(REFERENCE, own, 0 if reference.base and config.lora.enabled else _times(own, size), _times(own, size))
    if config.lora.enabled and config.lora.off_is_start and not config.ppo.reference_ema:
        return Part(REFERENCE, 0, 0, 0)  # the policy's own base with the adapters off
    return Part(REFERENCE, count, _times(count, size), _times(count, size))


def _passing(config: RunConfig, models: Models, prompt: tuple[int, int], machine: Machine, size: int) -> Iterable[Part]:
    """What is held while a phase runs."""
    ppo, response, shape = config.ppo, config.generation.response_length, models.policy.shape
    if shape is None or (models.critic is not None and models.critic.shape is None):
        yield from (Part(name, None, None, None, lasting=False) for name in (CACHE, SAMPLING, LOGITS, ACTIVATIONS))
        return
    micro = ppo.micro_batch_size or ppo.mini_batch_size
    tokens = tuple(length + response for length in prompt)
    # Room for whole responses is taken at once; rows that have ended are dropped by copying.
    cache = [ppo.batch_size * length * shape.layers * shape.cached * size for length in tokens]
    yield Part(CACHE, 0, cache[0], int(1.5 * cache[1]), lasting=False)
    # One row of odds per response: logits, log-probabilities, probabilities, and their running sum in float64.
    odds = ppo.batch_size * shape.vocabulary * FLOAT32
    yield Part(SAMPLING, 0, 2 * odds, 6 * odds, lasting=False)
    if config.lora.enabled and size == FLOAT32 and config.model.quantization == "none" and not config.lora.use_dora:
        # While sampling, base and adapters are one matrix; the base's own weights are kept beside it.
        merged = shape.block_parameters * FLOAT32
        yield Part(MERGED, 0, merged, merged, lasting=False)
    plain = machine.device == "cpu" and size == FLOAT32 and config.model.quantization == "none"
    if plain and (laid_out := FLOAT32 * _large_matrices(shape)) and lays_weights_out(laid_out, machine.total, response):
        # Where the family and the processor's library allow it; what comes and goes beside it leaves holes of up to the same size.
        yield Part(LAID_OUT, 0, 0, 2 * laid_out, lasting=False)
    # The logits of the response, a copy of the real tokens' rows that is used up in place, and the gradients of both.
    logits = micro * response * shape.vocabulary * FLOAT32
    kept = 2 * ppo.batch_size * response * shape.vocabulary * FLOAT32 if ppo.kl_estimator == "full" else 0
    yield Part(LOGITS, 0, 2 * logits + kept, 5 * logits + kept, lasting=False)
    each = _kept_per_token(shape, config) + (_kept_per_token(models.critic.shape, config) if models.critic and models.critic.shape else 0)
    saved = [micro * length * each * size for length in tokens]
    yield Part(ACTIVATIONS, 0, saved[0], int(1.6 * saved[1]), lasting=False)
    judges = [item for item in config.reward.components for _ in range(_members(item))]
    if judges:
        # Nothing is kept for a backward pass: a block's inner values twice, and the residual stream.
        reading = [
            min(judge.batch_size, ppo.batch_size) * min(tokens[1], judge.max_tokens) * (8 * facts.shape.hidden + 4 * facts.shape.inner)
            for judge, facts in zip(judges, models.rewards, strict=False)
            if facts.shape
        ]
        yield Part(SCORING, 0, max(reading, default=0) * size // 4, max(reading, default=0) * size, lasting=False)


def _large_matrices(shape: ModelShape) -> int:
    """Weights in the matrices that are large enough to be laid out anew for sampling."""
    blocks, head = (shape.block_parameters, shape.hidden * shape.inner), (shape.vocabulary * shape.hidden,) * 2
    return sum(count for count, matrix in (blocks, head) if matrix >= LEAST_NUMBERS)


def _kept_per_token(shape: ModelShape, config: RunConfig) -> int:
    """Values that the backward pass needs; with gradient checkpointing each block's input, and one block at a time in full."""
    if config.model.gradient_checkpointing:
        return shape.layers * shape.hidden + shape.saved_per_token // shape.layers
    return shape.saved_per_token


def _members(component: RewardComponent) -> int:
    """Reward models behind one component."""
    if isinstance(component, EnsembleReward):
        return len(component.model_names())
    return int(isinstance(component, RewardModelReward))


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _times(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor
