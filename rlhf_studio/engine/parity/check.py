"""The proof of a run's forward passes: before anything is trained, the numbers that it would learn from are held against the models' own.

Episodes are sampled padded and with a cache, read packed or padded, in lanes, with adapters merged or switched off; a family that any of
this does not suit would be trained on wrong log-probabilities without a word. So a few rows of unequal length, one of them as long as the
run will ever make one, go through every pass, and once more each by itself: ``model(input_ids=row)``, without padding, mask, positions or
cache. Where the two differ by more than rounding, the run stops.

A fresh value head says 0 and fresh adapters change nothing, so mistakes with them would not show: during the proof they are random ones.
Adapters that are split over processes (FSDP) stay as they are; sampling does not merge them either.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.packing import own_attention
from rlhf_studio.engine.loop.prompts import PromptBatch, PromptStream, pad_left
from rlhf_studio.engine.loop.rollout import Models, decode_responses, ends_with_stop, sample
from rlhf_studio.engine.models.adapters import POLICY
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.forward import ForwardOutput
from rlhf_studio.engine.models.policy import Policy, ResponseModel, plain_model, spread
from rlhf_studio.engine.parity.tolerance import ParityError, Tolerance, rounded_anew, tolerance_of
from rlhf_studio.engine.rewards.scorer import Episodes
from rlhf_studio.engine.types import NonFiniteError, TokenBatch
from rlhf_studio.inputs.models.rotation import boundary_problem, rotation_boundary

SMALL = 20_000_000  # weights
ROWS = 4  # prompts of all lengths
TELLING = 0.25  # size of an adapter's change to a matrix during the proof, over the matrix's own
MOST_SAMPLED = 256  # tokens that are really sampled; a longer plan is reached with a longer prompt


@dataclass(frozen=True)
class ParityReport:
    """What was found where nothing was wrong.

    Attributes:
        largest: difference of a single log-probability, value or score.
        scale: largest logit by size, over the temperature.
        noise: by how much log-probabilities moved when every layer of the policy was rounded anew; 0 in float32.
    """

    largest: float
    scale: float
    noise: float = 0.0

    def sentence(self) -> str:
        """For people."""
        return f"The forward pass was compared with the model's own: largest difference {self.largest:.2g}."


@dataclass(frozen=True)
class _Own:
    """What a model says by itself: (B, T) log-probabilities and values, and how large logits and hidden states are.

    Attributes:
        noise, values_noise: by how much the numbers of a row move at most, in root mean square, when all is rounded anew; 0 in float32.
    """

    logprobs: Tensor
    values: Tensor
    scale: float
    width: float
    noise: float = 0.0
    values_noise: float = 0.0


def prove(models: Models, stream: PromptStream) -> ParityReport:
    """Compare every pass of the run with the models' own. Every process calls this, with the same rows.

    Nothing stays changed: no random state, no weight. Raises :class:`ParityError` in all processes.
    """
    ranks = models.compute.ranks
    models = replace(models, stop_id=None, compute=replace(models.compute, lanes=models.compute.lanes.for_few()))
    check = _ParityCheck(models)
    try:
        with _threads_for(models):
            check.run(stream)
    except ParityError as error:
        ranks.raise_together(str(error), ParityError)
        raise
    ranks.raise_together("", ParityError)
    return ParityReport(ranks.all_reduce_max(check.largest), check.scale, check.noise)


class _ParityCheck:
    def __init__(self, models: Models):
        self._models, self._config = models, models.config
        self._yardstick = tolerance_of(models)
        self.largest = self.scale = self.noise = 0.0

    def run(self, stream: PromptStream) -> None:
        """Everything, in the order in which a step computes it."""
        self._on_one_side(stream)
        prompts, limits = _rows(self._models, stream)
        with _as_refusal(self._config.model.policy):
            tokens = self._policy_and_reference(prompts, limits)
        self._rewards(prompts, tokens)

    def _on_one_side(self, stream: PromptStream) -> None:
        policy, copy, model = self._models.policy, self._models.reference.frozen_copy, self._config.model
        critic = policy.critic and policy.critic.model
        for name, read in ((model.policy, plain_model(policy.model)), (model.reference or model.policy, copy), ("the critic", critic)):
            boundary = None if read is None else rotation_boundary(read.config.get_text_config().to_dict())
            if problem := boundary_problem(name, boundary, stream.lengths, self._config.generation.response_length):
                raise ParityError(f"data.max_prompt_tokens: {problem}; nothing was trained")

    def _policy_and_reference(self, prompts: PromptBatch, limits: Tensor) -> TokenBatch:
        models, policy, model = self._models, self._models.policy, self._config.model
        with _telling_head(policy), _telling_adapters(models):
            tokens, said = _sampled(models, prompts, limits)
            own = _own(models, policy, tokens, policy)
            if policy.critic is not None:  # its values are read later
                said = replace(said, values=own.values)
            passes = {
                "what is noted while sampling": said,
                "what is read of the responses": models.reader.read(policy, tokens, 0, critic=policy),
                "what the update reads": _update(models, policy, tokens),
            }
            with models.reference.active() as reference:
                read = models.reader.read(reference, tokens, 0)
        for doing, ours in passes.items():
            what = f"log-probabilities ({doing})"
            self._hold_against("model.policy", model.policy, what, (ours.logprobs, own.logprobs), tokens, (own.scale, own.noise))
            field, name = ("critic.start", "the critic") if policy.critic else ("model.policy", model.policy)
            self._hold_against(field, name, f"values ({doing})", (ours.values, own.values), tokens, (own.width, own.values_noise))
        own = _own(models, policy, tokens) if policy.has_lora else own
        self.scale, self.noise = own.scale, own.noise
        with models.reference.active() as reference:  # its own pass knows nothing of the random adapters
            own = _own(models, reference, tokens)
        name = model.reference or model.policy
        what = "log-probabilities of the reference"
        self._hold_against("model.reference", name, what, (read.logprobs, own.logprobs), tokens, (own.scale, own.noise))
        return tokens

    def _rewards(self, prompts: PromptBatch, tokens: TokenBatch) -> None:
        responses = decode_responses(self._models, tokens)
        stopped = ends_with_stop(tokens, self._models.stop_id).tolist()
        episodes = Episodes(prompts.texts, responses, stopped, tokens.lengths.tolist(), prompts.references, prompts.chats)
        for field, model in self._models.scorer.models():
            scores, own, noise = model(episodes), model.alone(episodes), 0.0
            if model.half:
                with rounded_anew(model.network):
                    noise = _root_mean_square(model.alone(episodes) - own)
            self._judge(field, model.name, "scores", scores - own, (float(own.abs().max()), noise), Tolerance(model.half))

    def _hold_against(
        self, field: str, name: str, what: str, passes: tuple[Tensor, Tensor], tokens: TokenBatch, sizes: tuple[float, float]
    ) -> None:
        """``passes`` are ours and the model's own; ``sizes`` the scale and the noise of the latter."""
        ours, own = passes
        for row, kept in enumerate(tokens.mask):
            self._judge(field, name, what, (ours - own)[row][kept].cpu(), sizes, self._yardstick)

    def _judge(self, field: str, name: str, what: str, difference: Tensor, sizes: tuple[float, float], tolerance: Tolerance) -> None:
        size, allowed = tolerance.measure(difference, *sizes)
        if not size <= allowed:
            raise ParityError(
                f"{field}: {name} cannot be used here: its {what} differ by {size:.2g} from its own forward pass of one row "
                f"without padding, and rounding explains {allowed:.2g} at most; nothing was trained"
            )
        self.largest = max(self.largest, float(difference.abs().max()))


@contextlib.contextmanager
def _threads_for(models: Models) -> Iterator[None]:
    """Rows of a small model one at a time: a CPU's threads would wait for each other five times as long as one takes for all."""
    threads, size = torch.get_num_threads(), sum(weight.numel() for weight in models.policy.model.parameters())
    if models.compute.device.type == "cpu" and size < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _as_refusal(name: str) -> Iterator[None]:
    """A model that cannot be asked at all is refused with what it says."""
    try:
        yield
    except (ParityError, NonFiniteError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        raise ParityError(f"model.policy: {name} cannot be used here: its forward pass fails ({cause}); nothing was trained") from error


def _rows(models: Models, stream: PromptStream) -> tuple[PromptBatch, Tensor]:
    """Prompts of all lengths, shortest first, and how many tokens (B,) are sampled for each. The last row is as long as any will be."""
    longest = models.config.generation.response_length
    sampled = min(longest, MOST_SAMPLED)
    prompts = stream.of_all_lengths(max(min(ROWS, models.config.ppo.batch_size // models.compute.ranks.size), 2))
    rows = [ids[real].tolist() for ids, real in zip(prompts.ids, prompts.mask, strict=True)]
    rows[-1] = [*rows[-1], *itertools.islice(itertools.cycle(rows[-1]), longest - sampled)]
    ids, mask = pad_left(rows, models.pad_id)
    limits = torch.tensor([max(sampled >> place % 3, 1) for place in range(len(rows))])
    limits[-1] = sampled
    return replace(prompts, ids=ids, mask=mask), limits


def _sampled(models: Models, prompts: PromptBatch, limits: Tensor) -> tuple[TokenBatch, ForwardOutput]:
    """Responses up to their limits, whatever token would end one, and what the policy noted on the way."""
    settings = models.config.generation.model_copy(update={"response_length": int(limits.max())})
    generator = torch.Generator(device=models.compute.device).manual_seed(models.config.engine.seed + 3)
    return sample(models, prompts, settings, generator, limits=limits.to(models.compute.device))


def _update(models: Models, policy: Policy, tokens: TokenBatch) -> ForwardOutput:
    """What the update reads: in parts of a micro-batch, with gradients. Split weights expect a backward pass after those."""
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    with torch.set_grad_enabled(not models.compute.ranks.sharded):
        for index in torch.arange(len(tokens), device=tokens.mask.device).split(models.reader.size):
            part = tokens.rows(index)
            with models.compute.autocast():
                logits, said = policy.logits_and_values(part)
            chosen, _ = consume_logits(logits, part.response_ids[part.mask], models.config.generation.temperature)
            width = part.mask.shape[1]
            logprobs[index, :width], values[index, :width] = (spread(x.detach(), part.mask) for x in (chosen, said))
    return ForwardOutput(logprobs, torch.zeros_like(logprobs), values, None)


def _own(models: Models, model: ResponseModel, tokens: TokenBatch, critic: Policy | None = None) -> _Own:
    """The model's own forward pass, one episode at a time; in half precision once more, to see what rounding alone changes."""
    own = _alone(models, model, tokens, critic)
    if not tolerance_of(models).half:
        return own
    with rounded_anew(model):
        again = _alone(models, model, tokens, critic)
    noise, values_noise = (
        max(_root_mean_square((after - before)[row][kept]) for row, kept in enumerate(tokens.mask))
        for after, before in ((again.logprobs, own.logprobs), (again.values, own.values))
    )
    return replace(own, noise=noise, values_noise=values_noise)


def _root_mean_square(numbers: Tensor) -> float:
    return float(numbers.double().square().mean().sqrt())


@torch.no_grad()
def _alone(models: Models, model: ResponseModel, tokens: TokenBatch, critic: Policy | None) -> _Own:
    """One pass. The output layer is spared all but the response, which may be large."""
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    scale = width = 0.0
    for row, kept in enumerate(tokens.mask):
        prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][kept]
        ids, wanted = torch.cat([prompt, response])[None], slice(len(prompt) - 1, -1)
        with models.compute.autocast(), own_attention(model.model), model.output_reads(_slicing(wanted)) as read:
            logits = model.model(input_ids=ids).logits.squeeze(0).float() / models.config.generation.temperature
        scale = max(scale, float(logits.abs().max()))
        logprobs[row, : len(response)] = logits.log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1)
        if critic is not None:
            hidden = read[0] if critic.critic is None else _own_states(models, critic.critic, ids)[wanted]
            width = max(width, float(hidden.float().square().mean(dim=-1).sqrt().max()))
            values[row, : len(response)] = critic.values(hidden)
    return _Own(logprobs, values, scale, width)


def _slicing(wanted: slice) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden[0, wanted]


def _own_states(models: Models, trunk: Trunk, ids: Tensor) -> Tensor:
    with models.compute.autocast(), own_attention(trunk.model):
        return trunk(ids)


@contextlib.contextmanager
def _telling_head(policy: Policy) -> Iterator[None]:
    """Inside, the value head is a random one: a head that starts at 0 would say 0 whatever it reads."""
    generator = torch.Generator().manual_seed(0)
    with _put_back(list(policy.value_head.parameters())) as parameters:
        for parameter in parameters:
            drawn = torch.randn(parameter.shape, generator=generator) * policy.value_head.in_features**-0.5
            parameter.detach().copy_(drawn)
        yield


@contextlib.contextmanager
def _telling_adapters(models: Models) -> Iterator[None]:
    """Inside, the policy's adapters are random ones: with factors that start at 0, merged, unmerged and off are one and the same model.

    Each changes its matrix by a quarter of the matrix's own size, which moves log-probabilities by far more than rounding does.
    Adapters that are split over processes (FSDP) stay as they are: no process holds a whole factor.
    """
    if not models.policy.has_lora or models.compute.ranks.sharded:
        yield
        return
    factors = [found for layer in models.policy.model.modules() if isinstance(layer, LoraLayer) for found in _factors(layer)]
    generator = torch.Generator().manual_seed(1)
    with _put_back([changed for _, changed, _ in factors]):
        for kept, changed, wanted in factors:
            drawn = torch.randn(changed.shape, generator=generator) * wanted / (_size(kept) or 1.0)
            changed.detach().copy_(drawn)
        yield


def _factors(layer: LoraLayer) -> Iterator[tuple[Tensor, Tensor, float]]:
    """The policy's two factors in a layer, the one that starts at 0 as the second, and what the product of their sizes is to be."""
    for first, second in ((layer.lora_A, layer.lora_B), (layer.lora_embedding_B, layer.lora_embedding_A)):
        if POLICY in first:
            kept, changed = (getattr(factors[POLICY], "weight", factors[POLICY]) for factors in (first, second))
            weight = getattr(layer.get_base_layer(), "weight", None)
            readable = isinstance(weight, Tensor) and weight.is_floating_point()  # quantized ones are of a usual size
            size = _size(weight) if readable else kept.shape[-1] ** -0.5
            yield kept, changed, TELLING * size / (layer.scaling[POLICY] * layer.r[POLICY] ** 0.5)


def _size(weight: Tensor) -> float:
    """Root mean square."""
    return float(torch.linalg.vector_norm(weight.detach(), dtype=torch.float32)) * weight.numel() ** -0.5


@contextlib.contextmanager
def _put_back(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Afterwards the parameters are what they were, bit for bit."""
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        yield parameters
    finally:
        for parameter, number in zip(parameters, before, strict=True):
            parameter.detach().copy_(number)
