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

from rlhf_studio.engine.adapters import POLICY
from rlhf_studio.engine.critic import Trunk
from rlhf_studio.engine.fused import consume_logits
from rlhf_studio.engine.packing import own_attention
from rlhf_studio.engine.policy import Policy, ResponseModel, plain_model, spread
from rlhf_studio.engine.prompts import PromptBatch, PromptStream, pad_left
from rlhf_studio.engine.reading import Reading
from rlhf_studio.engine.rewards.scorer import Episodes
from rlhf_studio.engine.rollout import Player, decode_responses, ends_with_stop, sample
from rlhf_studio.engine.types import NonFiniteError, TokenBatch
from rlhf_studio.engine.yardstick import UnprovenError, Yardstick, rounded_anew, yardstick_of
from rlhf_studio.inputs.rotation import boundary_problem, rotation_boundary

SMALL = 20_000_000  # weights
ROWS = 4  # prompts of all lengths
TELLING = 0.25  # size of an adapter's change to a matrix during the proof, over the matrix's own
MOST_SAMPLED = 256  # tokens that are really sampled; a longer plan is reached with a longer prompt


@dataclass(frozen=True)
class Proof:
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


def prove(player: Player, stream: PromptStream) -> Proof:
    """Compare every pass of the run with the models' own. Every process calls this, with the same rows.

    Nothing stays changed: no random state, no weight. Raises :class:`UnprovenError` in all processes.
    """
    team = player.compute.team
    player = replace(player, stop_id=None, compute=replace(player.compute, lanes=player.compute.lanes.for_few()))
    prover = _Prover(player)
    try:
        with _threads_for(player):
            prover.run(stream)
    except UnprovenError as error:
        team.fail_together(str(error), UnprovenError)
        raise
    team.fail_together("", UnprovenError)
    return Proof(team.most(prover.largest), prover.scale, prover.noise)


class _Prover:
    def __init__(self, player: Player):
        self._player, self._config = player, player.config
        self._yardstick = yardstick_of(player)
        self.largest = self.scale = self.noise = 0.0

    def run(self, stream: PromptStream) -> None:
        """Everything, in the order in which a step computes it."""
        self._on_one_side(stream)
        prompts, limits = _rows(self._player, stream)
        with _as_refusal(self._config.model.policy):
            tokens = self._policy_and_reference(prompts, limits)
        self._rewards(prompts, tokens)

    def _on_one_side(self, stream: PromptStream) -> None:
        policy, copy, model = self._player.policy, self._player.reference.frozen_copy, self._config.model
        critic = policy.critic and policy.critic.model
        for name, read in ((model.policy, plain_model(policy.model)), (model.reference or model.policy, copy), ("the critic", critic)):
            boundary = None if read is None else rotation_boundary(read.config.get_text_config().to_dict())
            if problem := boundary_problem(name, boundary, stream.lengths, self._config.generation.response_length):
                raise UnprovenError(f"data.max_prompt_tokens: {problem}; nothing was trained")

    def _policy_and_reference(self, prompts: PromptBatch, limits: Tensor) -> TokenBatch:
        player, policy, model = self._player, self._player.policy, self._config.model
        with _telling_head(policy), _telling_adapters(player):
            tokens, said = _sampled(player, prompts, limits)
            own = _own(player, policy, tokens, policy)
            if policy.critic is not None:  # its values are read later
                said = replace(said, values=own.values)
            passes = {
                "what is noted while sampling": said,
                "what is read of the responses": player.reader.read(policy, tokens, 0, critic=policy),
                "what the update reads": _update(player, policy, tokens),
            }
            with player.reference.active() as reference:
                read = player.reader.read(reference, tokens, 0)
        for doing, ours in passes.items():
            what = f"log-probabilities ({doing})"
            self._hold_against("model.policy", model.policy, what, (ours.logprobs, own.logprobs), tokens, (own.scale, own.noise))
            field, name = ("critic.start", "the critic") if policy.critic else ("model.policy", model.policy)
            self._hold_against(field, name, f"values ({doing})", (ours.values, own.values), tokens, (own.width, own.values_noise))
        own = _own(player, policy, tokens) if policy.has_lora else own
        self.scale, self.noise = own.scale, own.noise
        with player.reference.active() as reference:  # its own pass knows nothing of the random adapters
            own = _own(player, reference, tokens)
        name = model.reference or model.policy
        what = "log-probabilities of the reference"
        self._hold_against("model.reference", name, what, (read.logprobs, own.logprobs), tokens, (own.scale, own.noise))
        return tokens

    def _rewards(self, prompts: PromptBatch, tokens: TokenBatch) -> None:
        responses = decode_responses(self._player, tokens)
        stopped = ends_with_stop(tokens, self._player.stop_id).tolist()
        episodes = Episodes(prompts.texts, responses, stopped, tokens.lengths.tolist(), prompts.references, prompts.chats)
        for field, model in self._player.scorer.models():
            scores, own, noise = model(episodes), model.alone(episodes), 0.0
            if model.half:
                with rounded_anew(model.network):
                    noise = _root_mean_square(model.alone(episodes) - own)
            self._judge(field, model.name, "scores", scores - own, (float(own.abs().max()), noise), Yardstick(model.half))

    def _hold_against(
        self, field: str, name: str, what: str, passes: tuple[Tensor, Tensor], tokens: TokenBatch, sizes: tuple[float, float]
    ) -> None:
        """``passes`` are ours and the model's own; ``sizes`` the scale and the noise of the latter."""
        ours, own = passes
        for row, kept in enumerate(tokens.mask):
            self._judge(field, name, what, (ours - own)[row][kept].cpu(), sizes, self._yardstick)

    def _judge(self, field: str, name: str, what: str, difference: Tensor, sizes: tuple[float, float], yardstick: Yardstick) -> None:
        size, allowed = yardstick.measure(difference, *sizes)
        if not size <= allowed:
            raise UnprovenError(
                f"{field}: {name} cannot be used here: its {what} differ by {size:.2g} from its own forward pass of one row "
                f"without padding, and rounding explains {allowed:.2g} at most; nothing was trained"
            )
        self.largest = max(self.largest, float(difference.abs().max()))


@contextlib.contextmanager
def _threads_for(player: Player) -> Iterator[None]:
    """Rows of a small model one at a time: a CPU's threads would wait for each other five times as long as one takes for all."""
    threads, size = torch.get_num_threads(), sum(weight.numel() for weight in player.policy.model.parameters())
    if player.compute.device.type == "cpu" and size < SMALL:
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
    except (UnprovenError, NonFiniteError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        raise UnprovenError(f"model.policy: {name} cannot be used here: its forward pass fails ({cause}); nothing was trained") from error


def _rows(player: Player, stream: PromptStream) -> tuple[PromptBatch, Tensor]:
    """Prompts of all lengths, shortest first, and how many tokens (B,) are sampled for each. The last row is as long as any will be."""
    longest = player.config.generation.response_length
    sampled = min(longest, MOST_SAMPLED)
    prompts = stream.of_all_lengths(max(min(ROWS, player.config.ppo.batch_size // player.compute.team.size), 2))
    rows = [ids[real].tolist() for ids, real in zip(prompts.ids, prompts.mask, strict=True)]
    rows[-1] = [*rows[-1], *itertools.islice(itertools.cycle(rows[-1]), longest - sampled)]
    ids, mask = pad_left(rows, player.pad_id)
    limits = torch.tensor([max(sampled >> place % 3, 1) for place in range(len(rows))])
    limits[-1] = sampled
    return replace(prompts, ids=ids, mask=mask), limits


def _sampled(player: Player, prompts: PromptBatch, limits: Tensor) -> tuple[TokenBatch, Reading]:
    """Responses up to their limits, whatever token would end one, and what the policy noted on the way."""
    settings = player.config.generation.model_copy(update={"response_length": int(limits.max())})
    generator = torch.Generator(device=player.compute.device).manual_seed(player.config.engine.seed + 3)
    return sample(player, prompts, settings, generator, limits=limits.to(player.compute.device))


def _update(player: Player, policy: Policy, tokens: TokenBatch) -> Reading:
    """What the update reads: in parts of a micro-batch, with gradients. Split weights expect a backward pass after those."""
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    with torch.set_grad_enabled(not player.compute.team.sharded):
        for index in torch.arange(len(tokens), device=tokens.mask.device).split(player.reader.size):
            part = tokens.rows(index)
            with player.compute.autocast():
                logits, said = policy.logits_and_values(part)
            chosen, _ = consume_logits(logits, part.response_ids[part.mask], player.config.generation.temperature)
            width = part.mask.shape[1]
            logprobs[index, :width], values[index, :width] = (spread(x.detach(), part.mask) for x in (chosen, said))
    return Reading(logprobs, torch.zeros_like(logprobs), values, None)


def _own(player: Player, model: ResponseModel, tokens: TokenBatch, critic: Policy | None = None) -> _Own:
    """The model's own forward pass, one episode at a time; in half precision once more, to see what rounding alone changes."""
    own = _alone(player, model, tokens, critic)
    if not yardstick_of(player).half:
        return own
    with rounded_anew(model):
        again = _alone(player, model, tokens, critic)
    noise, values_noise = (
        max(_root_mean_square((after - before)[row][kept]) for row, kept in enumerate(tokens.mask))
        for after, before in ((again.logprobs, own.logprobs), (again.values, own.values))
    )
    return replace(own, noise=noise, values_noise=values_noise)


def _root_mean_square(numbers: Tensor) -> float:
    return float(numbers.double().square().mean().sqrt())


@torch.no_grad()
def _alone(player: Player, model: ResponseModel, tokens: TokenBatch, critic: Policy | None) -> _Own:
    """One pass. The output layer is spared all but the response, which may be large."""
    logprobs, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
    scale = width = 0.0
    for row, kept in enumerate(tokens.mask):
        prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][kept]
        ids, wanted = torch.cat([prompt, response])[None], slice(len(prompt) - 1, -1)
        with player.compute.autocast(), own_attention(model.model), model.output_reads(_slicing(wanted)) as read:
            logits = model.model(input_ids=ids).logits.squeeze(0).float() / player.config.generation.temperature
        scale = max(scale, float(logits.abs().max()))
        logprobs[row, : len(response)] = logits.log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1)
        if critic is not None:
            hidden = read[0] if critic.critic is None else _own_states(player, critic.critic, ids)[wanted]
            width = max(width, float(hidden.float().square().mean(dim=-1).sqrt().max()))
            values[row, : len(response)] = critic.values(hidden)
    return _Own(logprobs, values, scale, width)


def _slicing(wanted: slice) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden[0, wanted]


def _own_states(player: Player, trunk: Trunk, ids: Tensor) -> Tensor:
    with player.compute.autocast(), own_attention(trunk.model):
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
def _telling_adapters(player: Player) -> Iterator[None]:
    """Inside, the policy's adapters are random ones: with factors that start at 0, merged, unmerged and off are one and the same model.

    Each changes its matrix by a quarter of the matrix's own size, which moves log-probabilities by far more than rounding does.
    Adapters that are split over processes (FSDP) stay as they are: no process holds a whole factor.
    """
    if not player.policy.has_lora or player.compute.team.sharded:
        yield
        return
    factors = [found for layer in player.policy.model.modules() if isinstance(layer, LoraLayer) for found in _factors(layer)]
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
