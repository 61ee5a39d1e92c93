"""How much memory a run needs, part by part, before anything is loaded: arithmetic on the models' shapes and the batch sizes.

Every figure is a range. Weights, gradients and the optimizer are exact; what a pass needs while it runs depends on the real
prompt lengths and on the memory allocator. docs/planner.md gives the formulas and how well they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlhf_studio.config import RunConfig
from rlhf_studio.estimate.cpu import LEAST_NUMBERS, LEAST_ROWS, MOST_LANES, prepacks_weights
from rlhf_studio.estimate.disk import BITS, trained_values
from rlhf_studio.estimate.machine import Machine
from rlhf_studio.inputs.lora_targets import target_names
from rlhf_studio.inputs.models import ModelFacts
from rlhf_studio.inputs.prompt_checks import PromptTokens
from rlhf_studio.inputs.shape import ModelShape

FLOAT32, BFLOAT16 = 4, 2  # bytes
CPU_FRAMEWORK = (360_000_000, 460_000_000)  # Python, torch and transformers, imported and having run
GPU_FRAMEWORK = (400_000_000, 900_000_000)  # the driver's context and kernels
PER_PROMPT_TOKEN = (10, 24)  # bytes of a prompt's token and of its piece of the text; of a chat, the text is there three times
PER_PROMPT = 1000  # bytes of the objects around a prompt, at most


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
    sampling = sum(sizes.pop(name, 0) for name in (CACHE, PREFILL, SAMPLING, MERGED, LAID_OUT))
    return [learning, sampling, *sizes.values()]


POLICY, REFERENCE, CRITIC, REWARDS = "Policy", "Reference", "Critic", "Reward models"
GRADIENTS, OPTIMIZER, FRAMEWORK, MERGED = "Gradients", "Optimizer", "Framework", "Merged adapters"
CACHE, SAMPLING, LOGITS, ACTIVATIONS, SCORING = "KV cache", "Next-token odds", "Logits", "Activations", "Scoring"
LAID_OUT, PREFILL, PROMPTS = "Weights laid out", "Prefill", "Prompts"


@dataclass(frozen=True)
class Models:
    """What a run's model files tell: one entry per reward model; ``reference`` and ``critic`` where they are models of their own."""

    policy: ModelFacts
    rewards: Sequence[ModelFacts] = ()
    reference: ModelFacts | None = None
    critic: ModelFacts | None = None


def make_plan(config: RunConfig, models: Models, machine: Machine, prompts: PromptTokens | None = None) -> Plan:
    """The plan for a run. ``prompts``: their lengths; None takes ``data.max_prompt_tokens`` for every prompt.

    The least is that of prompts of usual length, since nobody knows which of them meet in a batch; the most, that of the longest alone.
    """
    longest = config.data.max_prompt_tokens
    prompt = (min(prompts.usual, longest), min(prompts.longest[1], longest)) if prompts else (longest, longest)
    size = compute_bytes(config, machine)
    lasting = [*_lasting(config, models, machine, size), *_prompts(config, prompts, machine)]
    parts = [*lasting, *_passing(config, models, prompt, machine, size), *_scoring(config, models, prompts, size)]
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
    return sum(len(component.model_names()) for component in config.reward.components)


def rows_together(config: RunConfig) -> int:
    """How many responses are sampled at the same time."""
    return min(config.generation.batch_size or config.ppo.batch_size, config.ppo.batch_size)


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
    tied = matrix if policy.shape and policy.shape.tied else 0
    high = _plus(_times(learned, FLOAT32 * _gradient_copies(config, machine)), tied)
    yield Part(GRADIENTS, learned, _times(learned, FLOAT32), high)
    # AdamW's two moments; on a GPU all weights are stepped together, through one temporary copy of them.
    moments = _times(learned, 2 * FLOAT32)
    yield Part(OPTIMIZER, _times(learned, 2), moments, _times(learned, 3 * FLOAT32) if on_gpu else _plus(moments, matrix))


def _gradient_copies(config: RunConfig, machine: Machine) -> int:
    """How often the gradients are there at the same time, at most.

    On a CPU every lane adds up its own; and a lane with more than one part of the minibatch holds those of the part beside the sum.
    """
    rows, micro = config.ppo.mini_batch_size, config.ppo.micro_batch
    lanes = min(config.engine.threads or machine.cores, MOST_LANES) if machine.device == "cpu" else 1
    if micro < rows:
        return 2 * lanes if lanes > 1 else 1
    return max(min(lanes, rows // LEAST_ROWS), 1)


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


def _prompts(config: RunConfig, prompts: PromptTokens | None, machine: Machine) -> Iterable[Part]:
    """All prompts, kept as texts and token ids, never on a GPU. Of a source whose rows nobody has counted, up to ``data.max_prompts``."""
    if prompts is None or machine.device != "cpu":
        return
    least, most = (0, config.data.max_prompts) if prompts.count is None else (prompts.count, prompts.count)
    low, high = PER_PROMPT_TOKEN
    yield Part(PROMPTS, 0, least * prompts.usual * low, most * (prompts.usual * high + PER_PROMPT))


def _passing(config: RunConfig, models: Models, prompt: tuple[int, int], machine: Machine, size: int) -> Iterable[Part]:
    """What is held while a phase runs. ``prompt``: tokens of a usual and of the longest prompt."""
    ppo, response, shape = config.ppo, config.generation.response_length, models.policy.shape
    if shape is None or (models.critic is not None and models.critic.shape is None):
        yield from (Part(name, None, None, None, lasting=False) for name in (CACHE, PREFILL, SAMPLING, LOGITS, ACTIVATIONS))
        return
    tokens = (prompt[0] + response, prompt[1] + response)
    yield from _sampling(config, shape, prompt, machine, size)
    micro = ppo.micro_batch
    # The logits of the response, a copy of the real tokens' rows that is used up in place, and the gradients of both.
    logits = micro * response * shape.vocabulary * FLOAT32
    kept = 2 * ppo.batch_size * response * shape.vocabulary * FLOAT32 if ppo.kl_estimator == "full" else 0
    yield Part(LOGITS, 0, 2 * logits + kept, 5 * logits + kept, lasting=False)
    shapes = [shape, models.critic.shape] if models.critic and models.critic.shape else [shape]
    saved = [micro * length * sum(_kept_per_token(one, config) for one in shapes) * size for length in tokens]
    holes = micro * tokens[1] * sum(_freed_per_token(one, config) for one in shapes) * size
    yield Part(ACTIVATIONS, 0, saved[0], saved[1] + holes if machine.device == "cpu" else int(1.6 * saved[1]), lasting=False)


def _scoring(config: RunConfig, models: Models, prompts: PromptTokens | None, size: int) -> Iterable[Part]:
    """What reward models need while they read. Their own tokenizers are taken to make as many tokens as the policy's."""
    judges = [item for item in config.reward.components for _ in item.model_names()]
    if not judges or models.policy.shape is None:
        return
    response = config.generation.response_length
    least, most = ((prompts.usual_text or prompts.usual), prompts.longest_text) if prompts else (config.data.max_prompt_tokens, None)
    low = high = 0
    for judge, facts in zip(judges, models.rewards, strict=False):
        if facts.shape:
            each = min(judge.batch_size, config.ppo.batch_size) * read_per_token(facts.shape) * size
            low = max(low, each * min(least + response, judge.max_tokens) // 4)
            high = max(high, each * (judge.max_tokens if most is None else min(most + response, judge.max_tokens)))
    yield Part(SCORING, 0, low, high, lasting=False)


def _sampling(config: RunConfig, shape: ModelShape, prompt: tuple[int, int], machine: Machine, size: int) -> Iterable[Part]:
    """What is held while responses are sampled, of all rows that are sampled together."""
    response, rows = config.generation.response_length, rows_together(config)
    # Room for whole responses is taken at once; rows that have ended are dropped by copying.
    cache = [rows * (length + response) * shape.layers * shape.cached * size for length in prompt]
    yield Part(CACHE, 0, cache[0], int(1.5 * cache[1]), lasting=False)
    # The prompts go through the model together, as wide as the longest. What each token may attend to is worked out as yes or no,
    # and attention adds it to the scores as a number.
    reading = [rows * length * read_per_token(shape) * size for length in prompt]
    yield Part(PREFILL, 0, reading[0] // 4, reading[1] + rows * prompt[1] ** 2 * (1 + size), lasting=False)
    # One row of odds per response: logits, log-probabilities, probabilities, and their running sum in float64.
    odds = rows * shape.vocabulary * FLOAT32
    yield Part(SAMPLING, 0, 2 * odds, 6 * odds, lasting=False)
    if config.lora.enabled and size == FLOAT32 and config.model.quantization == "none" and not config.lora.use_dora:
        # While sampling, base and adapters are one matrix; the base's own weights are kept beside it.
        merged = shape.block_parameters * FLOAT32
        yield Part(MERGED, 0, merged, merged, lasting=False)
    plain = machine.device == "cpu" and size == FLOAT32 and config.model.quantization == "none"
    if plain and (prepacked := FLOAT32 * _large_matrices(shape)) and prepacks_weights(prepacked, machine.total, response):
        # Where the family and the processor's library allow it; what comes and goes beside it leaves holes of up to the same size.
        yield Part(LAID_OUT, 0, 0, 2 * prepacked, lasting=False)


def _large_matrices(shape: ModelShape) -> int:
    """Weights in the matrices that are large enough to be laid out anew for sampling."""
    blocks, head = (shape.block_parameters, shape.hidden * shape.inner), (shape.vocabulary * shape.hidden,) * 2
    return sum(count for count, matrix in (blocks, head) if matrix >= LEAST_NUMBERS)


def _kept_per_token(shape: ModelShape, config: RunConfig) -> int:
    """Values that the backward pass needs; with gradient checkpointing each block's input, and one block at a time in full."""
    if config.model.gradient_checkpointing:
        return shape.layers * shape.hidden + shape.saved_per_token // shape.layers
    return shape.saved_per_token


def _freed_per_token(shape: ModelShape, config: RunConfig) -> int:
    """Values that come and go while a pass makes what it keeps; on a CPU each can leave a hole that nothing after it fits into.

    Per block: results that are added to the residual stream and turned by their positions (6 H), and the feed-forward part before the
    activation (F; with a gate 2 F); with adapters, the adapter's result beside each matrix's, and that result scaled.
    """
    inner = (2 if shape.gated else 1) * shape.inner
    block = 6 * shape.hidden + inner
    if config.lora.enabled:
        block += 2 * (3 * shape.hidden + shape.cached + inner)
    return block * (1 if config.model.gradient_checkpointing else shape.layers)


def read_per_token(shape: ModelShape) -> int:
    """Values per token while a model reads without a backward pass, at most: a block's inner values twice, and the residual stream."""
    return 8 * shape.hidden + 4 * shape.inner


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _times(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor
