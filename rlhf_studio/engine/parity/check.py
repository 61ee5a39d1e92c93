"""The parity check: before anything is trained, the numbers that a run would learn from are compared with the models' own forward passes.

A run samples padded rows with a key-value cache, computes packed or padded rows, in lanes, with LoRA merged or switched off. A model for
which one of these is wrong would be trained on wrong log-probabilities without any error. So a few rows of unequal length, one of them as
long as the run's longest, are computed in every way in which the run computes them. The independent answer is each row alone, by
``model(input_ids=row)``: without padding, mask, position ids or cache. Where the two differ by more than rounding, the run stops.

A new value head predicts 0 for every input, and new adapters change nothing, so a mistake with them would not show. During the check they
get random weights; afterwards the original weights are back. Adapters that are sharded (FSDP) keep their weights: sampling does not merge
them either.

Shapes: B episodes, T longest response.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.lanes import ONE_LANE
from rlhf_studio.engine.compute.packing import transformers_attention
from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.models.adapters import POLICY
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.policy import Policy, ResponseModel, plain_model, to_padded
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.parity.tolerance import ParityError, Tolerance, tolerance_of, with_rounding_noise
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.types import ForwardOutput, NonFiniteError, PromptBatch, TokenBatch
from rlhf_studio.inputs.models.rotation import boundary_problem, rotation_boundary
from rlhf_studio.language import S_

SMALL_MODEL = 20_000_000  # weights
ROWS = 3  # prompts, from the shortest to the longest; with many lanes one more than lanes, so that one lane has two
RANDOM_ADAPTER_SIZE = 0.25  # of a random adapter's change to a matrix, relative to the matrix; root mean squares
MOST_SAMPLED = 8  # tokens that are sampled; a longer response_length is reached with a longer prompt
MOST_SAMPLED_IN_HALF = 256  # the same in half precision, where rounding is told from mistakes by a mean over many tokens


SAME_AGAIN = 1e-3  # nats between two passes of the same kind over one row; on a CPU there is no difference


@dataclass(frozen=True)
class ParityReport:
    """The result of a check in which all numbers agreed.

    Attributes:
        largest: largest difference of a single log-probability, value or score.
        scale: largest logit of the policy by size, over the temperature.
        noise: by how much its log-probabilities moved, in root mean square, with other rounding in every layer; 0 in float32.
    """

    largest: float
    scale: float
    noise: float = 0.0

    def sentence(self) -> str:
        """For people."""
        return S_(f"The forward pass was compared with the model's own: largest difference {self.largest:.2g}.")


@dataclass(frozen=True)
class _Expected:
    """Numbers of a model's plain forward pass, and what their tolerance depends on.

    Attributes:
        numbers: (B, T) log-probabilities or values.
        scale: how large the numbers are that they are computed from: the largest logit by size over the temperature, or the largest root
            mean square of a hidden state.
        noise: by how much a row's numbers move at most, in root mean square, with other rounding in every layer; 0 in float32.
    """

    numbers: Tensor
    scale: float
    noise: float = 0.0


@dataclass(frozen=True)
class _Subject:
    """What is compared, for the error message: the setting that names the model, the model, and the quantity."""

    setting: str
    model: str
    quantity: str


def check_parity(models: Models, stream: PromptStream) -> ParityReport:
    """Compare every forward pass of the run with the models' own. All ranks call this, with the same rows.

    Afterwards all weights and random states are what they were. Raises :class:`ParityError` on all ranks when any rank finds a difference.
    """
    ranks = models.compute.ranks
    models = replace(models, stop_ids=(), compute=replace(models.compute, lanes=models.compute.lanes.with_one_row_each()))
    check = _ParityCheck(models)
    try:
        with _one_thread_for_small_models(models):
            check.run(stream)
    except ParityError as error:
        ranks.raise_together(str(error), ParityError)
        raise
    ranks.raise_together("", ParityError)
    return ParityReport(ranks.all_reduce_max(check.largest), check.scale, check.noise)


class _ParityCheck:
    """The comparisons of one check. After :meth:`run`, ``largest``, ``scale`` and ``noise`` are those of :class:`ParityReport`."""

    def __init__(self, models: Models):
        self._models, self._config = models, models.config
        self._tolerance = tolerance_of(models)
        self.largest = self.scale = self.noise = 0.0

    def run(self, stream: PromptStream) -> None:
        """All comparisons, in the order in which a training step computes the numbers. Raises :class:`ParityError`."""
        self._lengths_on_one_side(stream)
        prompts, limits = _prompts_and_limits(self._models, stream)
        with _errors_as_parity_errors(self._config.model.policy):
            tokens = self._policy_and_reference(prompts, limits)
        self._rewards(prompts, tokens)

    def _lengths_on_one_side(self, stream: PromptStream) -> None:
        """Some rotary embeddings use other frequencies for texts above a length: all texts of the run must be on one side of it."""
        policy, copy, model = self._models.policy, self._models.reference.frozen_copy, self._config.model
        critic = policy.critic and policy.critic.model
        critic_name = S_("the critic")
        for name, network in ((model.policy, plain_model(policy.model)), (model.reference or model.policy, copy), (critic_name, critic)):
            settings: Any = None if network is None else network.config
            boundary = None if settings is None else rotation_boundary(settings.get_text_config().to_dict())
            if problem := boundary_problem(name, boundary, stream.lengths, self._config.generation.response_length):
                raise ParityError(f"data.max_prompt_tokens: {problem}; nothing was trained")

    def _policy_and_reference(self, prompts: PromptBatch, limits: Tensor) -> TokenBatch:
        """Sample responses, and compare every pass over them. Returns the sampled batch."""
        models, policy, names = self._models, self._models.policy, self._config.model
        with _random_value_head(policy), _random_adapters(models):
            tokens, sampled = _sample(models, prompts, limits)
            logprobs, values = _plain_pass(models, policy, tokens, policy if policy.has_critic else None)
            if policy.critic is not None:  # sampling computes no values then: nothing to compare
                sampled = replace(sampled, values=values.numbers)
            passes = (
                (S_("log-probabilities while sampling"), S_("values while sampling"), sampled),
                (
                    S_("log-probabilities in the forward pass over the responses"),
                    S_("values in the forward pass over the responses"),
                    models.forward_pass.run(policy, tokens, 0, critic=policy),
                ),
                (
                    S_("log-probabilities in the forward pass of the update"),
                    S_("values in the forward pass of the update"),
                    _update_pass(models, policy, tokens),
                ),
            )
            with models.reference.active() as reference:
                reference_output = models.forward_pass.run(reference, tokens, 0)
        critic_setting, critic_name = ("critic.start", S_("the critic")) if policy.critic else ("model.policy", names.policy)
        for of_logprobs, of_values, output in passes:
            self._compare(_Subject("model.policy", names.policy, of_logprobs), output.logprobs, logprobs, tokens)
            if output.values is not None:
                self._compare(_Subject(critic_setting, critic_name, of_values), output.values, values, tokens)
        with models.reference.active() as reference:  # computed without the random adapters, on which the reference must not depend
            expected, _ = _plain_pass(models, reference, tokens)
        subject = _Subject("model.reference", names.reference or names.policy, S_("log-probabilities of the reference"))
        self._compare(subject, reference_output.logprobs, expected, tokens)
        if policy.has_lora:  # with random adapters its logits are larger than its own, which are about as large as those of its base
            logprobs = expected if models.reference.frozen_copy is None else _plain_pass(models, policy, tokens)[0]
        self.scale, self.noise = logprobs.scale, logprobs.noise
        return tokens

    def _rewards(self, prompts: PromptBatch, tokens: TokenBatch) -> None:
        responses = decode_responses(self._models, tokens)
        longest = min(self._config.generation.response_length, MOST_SAMPLED_IN_HALF)
        responses[-1] *= math.ceil(longest / tokens.mask.shape[1])  # reward models read texts as long as the run's, too
        stopped = ends_with_stop(tokens, self._models.stop_ids).tolist()
        episodes = Episodes(prompts.texts, responses, stopped, tokens.lengths.tolist(), prompts.references, prompts.chats)
        for setting, model in self._models.scorer.reward_models():
            scores, expected, noise = model(episodes), model.alone(episodes), 0.0
            if model.half:
                with with_rounding_noise(model.network):
                    noise = _root_mean_square(model.alone(episodes) - expected)
            scale = float(expected.abs().max())
            self._judge(_Subject(setting, model.name, "scores"), scores - expected, (scale, noise), Tolerance(model.half))

    def _compare(self, subject: _Subject, numbers: Tensor, expected: _Expected, tokens: TokenBatch) -> None:
        """Compare ``numbers`` (B, T) with the expected ones, row by row, at the response tokens."""
        for row, real in enumerate(tokens.mask):
            difference = (numbers - expected.numbers)[row][real].cpu()
            self._judge(subject, difference, (expected.scale, expected.noise), self._tolerance)

    def _judge(self, subject: _Subject, difference: Tensor, scale_and_noise: tuple[float, float], tolerance: Tolerance) -> None:
        """Raises :class:`ParityError` when ``difference`` (n,) is larger than rounding explains, or not a number."""
        size, allowed = tolerance.measure(difference, *scale_and_noise)
        if not size <= allowed:
            raise ParityError(
                f"{subject.setting}: {subject.model} cannot be used here: its {subject.quantity} differ by {size:.2g} from its own forward "
                f"pass of one row without padding, and rounding explains {allowed:.2g} at most; nothing was trained"
            )
        self.largest = max(self.largest, float(difference.abs().max()))


@contextlib.contextmanager
def _one_thread_for_small_models(models: Models) -> Iterator[None]:
    """Inside, torch uses one thread for a small model on a CPU: for single rows several threads are five times slower than one."""
    threads, size = torch.get_num_threads(), sum(weight.numel() for weight in models.policy.model.parameters())
    if models.compute.device.type == "cpu" and size < SMALL_MODEL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _errors_as_parity_errors(name: str) -> Iterator[None]:
    """Any error of the model's own code becomes a :class:`ParityError` that names the model ``name`` and the cause."""
    try:
        yield
    except (ParityError, NonFiniteError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        raise ParityError(f"model.policy: {name} cannot be used here: its forward pass fails ({cause}); nothing was trained") from error


def _prompts_and_limits(models: Models, stream: PromptStream) -> tuple[PromptBatch, Tensor]:
    """Prompts from the shortest to the longest, and how many tokens (B,) are sampled for each.

    The last row, prompt and response together, is as long as the longest row that the run can have.
    """
    longest = models.config.generation.response_length
    sampled = min(longest, MOST_SAMPLED_IN_HALF if tolerance_of(models).half else MOST_SAMPLED)
    rows = max(ROWS, models.compute.lanes.count + 1)
    prompts = stream.of_all_lengths(max(min(rows, models.config.ppo.batch_size // models.compute.ranks.size), 2))
    texts = [ids[real].tolist() for ids, real in zip(prompts.ids, prompts.mask, strict=True)]
    texts[-1] = [*texts[-1], *itertools.islice(itertools.cycle(texts[-1]), longest - sampled)]
    ids, mask = pad_left(texts, models.pad_id)
    limits = torch.tensor([max(sampled >> index % 3, 1) for index in range(len(texts))])
    limits[-1] = sampled
    return replace(prompts, ids=ids, mask=mask), limits


def _sample(models: Models, prompts: PromptBatch, limits: Tensor) -> tuple[TokenBatch, ForwardOutput]:
    """Responses of exactly ``limits`` tokens, sampled as in a rollout but without a stop token, and what was computed while sampling."""
    settings = models.config.generation.model_copy(update={"response_length": int(limits.max())})
    generator = torch.Generator(device=models.compute.device).manual_seed(models.config.engine.seed + 3)
    return generate(models, prompts, settings, generator, limits=limits.to(models.compute.device))


def _update_pass(models: Models, policy: Policy, tokens: TokenBatch) -> ForwardOutput:
    """Log-probabilities and, with a critic, values as the update computes them: in micro-batches, with gradients.

    Without gradients where weights are sharded: FSDP expects a backward pass after each forward pass with gradients.
    """
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    with torch.set_grad_enabled(not models.compute.ranks.sharded):
        for index in torch.arange(len(tokens), device=tokens.mask.device).split(models.forward_pass.micro_batch_size):
            batch = tokens.rows(index)
            with models.compute.autocast():
                logits, predicted = policy.logits_and_values(batch)
            chosen, _ = consume_logits(logits, batch.response_ids[batch.mask], models.config.generation.temperature)
            width = batch.mask.shape[1]
            logprobs[index, :width] = to_padded(chosen.detach(), batch.mask)
            if predicted is not None:
                values[index, :width] = to_padded(predicted.detach(), batch.mask)
    return ForwardOutput(logprobs, torch.zeros_like(logprobs), values if policy.has_critic else None, None)


def _plain_pass(models: Models, model: ResponseModel, tokens: TokenBatch, critic: Policy | None = None) -> tuple[_Expected, _Expected]:
    """Log-probabilities and values (0 without ``critic``) by the model's plain forward pass, one episode at a time.

    In half precision there is a second pass, with other rounding, to measure the noise.
    """
    logprobs, values = _one_row_at_a_time(models, model, tokens, critic)
    if not tolerance_of(models).half:
        return logprobs, values
    _require_the_same_again(models, model, tokens, logprobs.numbers)
    with with_rounding_noise(model):
        disturbed = _one_row_at_a_time(models, model, tokens, critic)
    return _with_noise(logprobs, disturbed[0], tokens), _with_noise(values, disturbed[1], tokens)


def _require_the_same_again(models: Models, model: ResponseModel, tokens: TokenBatch, logprobs: Tensor) -> None:
    """The first row's log-probabilities once more: what is drawn anew in each pass (dropout) would be taken for rounding noise.

    Raises :class:`ParityError`.
    """
    first = tokens.rows(torch.zeros(1, dtype=torch.int64, device=tokens.mask.device))
    again = _one_row_at_a_time(models, model, first, None)[0].numbers
    difference = float((again[0] - logprobs[0, : again.shape[1]]).abs().max())
    if not difference <= SAME_AGAIN:
        raise ParityError(
            f"model.policy: the model cannot be used here: two passes over one text differ by {difference:.2g}, so something is drawn anew "
            "in each, such as dropout; nothing was trained"
        )


def _with_noise(plain: _Expected, disturbed: _Expected, tokens: TokenBatch) -> _Expected:
    difference = disturbed.numbers - plain.numbers
    return replace(plain, noise=max(_root_mean_square(difference[row][real]) for row, real in enumerate(tokens.mask)))


def _root_mean_square(numbers: Tensor) -> float:
    return float(numbers.double().square().mean().sqrt())


@torch.no_grad()
def _one_row_at_a_time(models: Models, model: ResponseModel, tokens: TokenBatch, critic: Policy | None) -> tuple[_Expected, _Expected]:
    """Log-probabilities and values. The output layer computes logits for the response only, to save memory.

    The rows are divided among the lanes, but not in half precision, where the random rounding is drawn in their order.
    """
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    lanes = ONE_LANE if tolerance_of(models).half else models.compute.lanes
    trunk = critic.critic if critic else None

    def alone(row: int) -> tuple[float, float]:
        prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][tokens.mask[row]]
        ids, predicting = torch.cat([prompt, response])[None], slice(len(prompt) - 1, -1)
        with models.compute.autocast(), model.select_outputs(_slicing(predicting)) as selected:
            logits = model.model(input_ids=ids).logits.squeeze(0).float() / models.config.generation.temperature
        logprobs[row, : len(response)] = logits.log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1)
        if critic is None:
            return float(logits.abs().max()), 0.0
        hidden = selected[0] if trunk is None else _plain_hidden(models, trunk, ids)[predicting]
        values[row, : len(response)] = critic.values(hidden)
        return float(logits.abs().max()), float(hidden.float().square().mean(dim=-1).sqrt().max())

    with transformers_attention(model.model), transformers_attention(trunk.model) if trunk else contextlib.nullcontext():
        logit_scales, hidden_scales = zip(*lanes.map(alone, range(len(tokens))), strict=True)
    return _Expected(logprobs, max(logit_scales)), _Expected(values, max(hidden_scales))


def _slicing(positions: slice) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden[0, positions]


def _plain_hidden(models: Models, trunk: Trunk, ids: Tensor) -> Tensor:
    """Hidden states (L, H) of one row ``ids`` (1, L)."""
    with models.compute.autocast():
        hidden: Tensor = trunk(ids)
        return hidden


@contextlib.contextmanager
def _random_value_head(policy: Policy) -> Iterator[None]:
    """Inside, the value head, where there is one, has random weights: with weights of 0 it would predict 0 for every input."""
    generator, head = torch.Generator().manual_seed(0), policy.value_head
    if head is None:
        yield
        return
    with _restored(list(head.parameters())) as parameters:
        for parameter in parameters:
            drawn = torch.randn(parameter.shape, generator=generator) * head.in_features**-0.5
            parameter.detach().copy_(drawn)
        yield


@contextlib.contextmanager
def _random_adapters(models: Models) -> Iterator[None]:
    """Inside, the policy's adapters have random weights: while one factor is 0, the model is the same with LoRA merged, on and off.

    Each adapter changes its matrix by a quarter of the matrix's size, which moves log-probabilities by far more than rounding does.
    Sharded adapters (FSDP) keep their weights, because no rank holds a full factor.
    """
    if not models.policy.has_lora or models.compute.ranks.sharded:
        yield
        return
    factors = [factor for layer in models.policy.model.modules() if isinstance(layer, LoraLayer) for factor in _factors(layer)]
    generator = torch.Generator().manual_seed(1)
    with _restored([second for _, second, _ in factors]):
        for first, second, size in factors:
            drawn = torch.randn(second.shape, generator=generator) * size / (_size(first) or 1.0)
            second.detach().copy_(drawn)
        yield


def _factors(layer: LoraLayer) -> Iterator[tuple[Tensor, Tensor, float]]:
    """The policy's two factors in a layer (the second is the one that starts at 0), and what the product of their sizes shall be.

    The size of scaling · B A is about scaling · sqrt(r) · size(A) · size(B) for random factors of rank r.
    """
    for firsts, seconds in ((layer.lora_A, layer.lora_B), (layer.lora_embedding_B, layer.lora_embedding_A)):
        if POLICY in firsts:
            factors: Any = (firsts[POLICY], seconds[POLICY])
            first, second = (getattr(factor, "weight", factor) for factor in factors)
            weight: Any = getattr(layer.get_base_layer(), "weight", None)
            readable = isinstance(weight, Tensor) and weight.is_floating_point()  # of a quantized matrix, a usual size is assumed
            size = _size(weight) if readable else first.shape[-1] ** -0.5
            yield first, second, RANDOM_ADAPTER_SIZE * size / (layer.scaling[POLICY] * layer.r[POLICY] ** 0.5)


def _size(weight: Tensor) -> float:
    """Root mean square."""
    return float(torch.linalg.vector_norm(weight.detach(), dtype=torch.float32)) * math.pow(weight.numel(), -0.5)


@contextlib.contextmanager
def _restored(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Inside, the parameters may be changed; afterwards they are what they were, bit for bit."""
    originals = [parameter.detach().clone() for parameter in parameters]
    try:
        yield parameters
    finally:
        for parameter, original in zip(parameters, originals, strict=True):
            parameter.detach().copy_(original)
