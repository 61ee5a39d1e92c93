"""A decoding step, recorded once and then run from start to end without Python.

One step of a small model is some hundred short operations. Between any two of them stands Python, and lanes that sample at the same
time wait for each other's turn. TorchScript's interpreter runs a recorded step without Python's lock and without a compiler. torch calls
it deprecated but ships nothing else of the kind, so nothing depends on it: a recording is only used for families where it is tested, and
after it gave the model's own numbers for another batch, another length and other tokens. Otherwise sampling goes through the model itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.cache_utils import DynamicCache, DynamicLayer

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.lanes import LEAST_ROWS, ONE_LANE, Lanes
from rlhf_studio.engine.models.kv_cache import PreallocatedLayer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.draw import Drawn, draw_next
from rlhf_studio.engine.sampling.prepacked import PrepackedWeight, layers_to_prepack, least_rows, multiplying_by, prepack
from rlhf_studio.engine.types import position_ids

TRACED_FAMILIES = {"gpt2", "gpt_neox", "llama", "mistral", "opt", "phi3", "qwen2", "qwen3"}
GROWING_ROTATIONS = {"dynamic", "longrope"}  # rotary embeddings whose frequencies depend on the length: a recording would keep the first
TOLERANCE = 1e-4  # a wrong recording is wrong by far more; rounding adds up over many layers


class CannotTrace(Exception):
    """Why a model's step is not recorded, for people."""


def _first_line(error: Exception) -> str:
    """What an error says, or its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


DecodingStep = Callable[[Tensor, Tensor, Tensor, Tensor, Cache], Drawn]
"""Takes token ids (B, 1), the attention mask up to them, their positions, random numbers (B,) and the cache, which grows by one."""


class TracedStep:
    """:func:`drawing.draw_next` for a single token per row, with :class:`PreallocatedLayer` caches.

    Attributes:
        rows_per_lane: with fewer, lanes sample more slowly apart than together.
    """

    def __init__(self, script: Any, settings: GenerationConfig, prepacked: Sequence[PrepackedWeight], rows_per_lane: int = LEAST_ROWS):
        self._script, self._settings, self._laid_out = script, settings, prepacked
        self.rows_per_lane = rows_per_lane

    def ready(self, settings: GenerationConfig, lanes: Lanes = ONE_LANE) -> DecodingStep | None:
        """The step with the weights as they are now, adapters included where they are merged; any thread may call it.

        ``lanes`` lay the weights out, for every step that was made ready before too. None where it was recorded for another temperature or
        other cuts.
        """
        if any(getattr(settings, name) != getattr(self._settings, name) for name in ("temperature", "top_k", "top_p")):
            return None
        lanes.map(PrepackedWeight.refresh, self._laid_out)
        return self.run

    @torch.no_grad()
    def run(self, ids: Tensor, attention: Tensor, positions: Tensor, uniforms: Tensor, cache: Cache) -> Drawn:
        """A :data:`DecodingStep` with the weights as they were laid out last."""
        packed = (weights.packed for weights in self._laid_out)
        return Drawn(*self._script(ids, attention, positions, uniforms, *packed, *_states(cache)))


def trace_step(policy: Policy, settings: GenerationConfig) -> TracedStep:
    """Record one decoding step of the policy, adapters merged as while sampling. Raises :class:`CannotTrace`."""
    if why := _why_not(policy):
        raise CannotTrace(why)
    layers = layers_to_prepack(policy.model, settings.response_length)
    places = [layer.weight.data_ptr() for layer in layers]
    with policy.merged(), torch.no_grad():
        *inputs, cache = _example(policy, rows=2, length=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, and a warning for each number that the recording keeps: it is checked
            try:
                prepacked = prepack(layers, places)
                example = (*inputs, *(weights.packed for weights in prepacked), *_states(cache))
                script = torch.jit.trace(_Step(policy, settings, layers), example, check_trace=False, _store_inputs=False)
                step = TracedStep(script, settings, prepacked, least_rows(policy.model, layers))
                _check(policy, step.run, settings)
            except CannotTrace:
                raise
            except Exception as error:  # whatever a model says to it: the model itself can still be asked
                raise CannotTrace(f"its step cannot be recorded ({_first_line(error)})") from error
    return step


def _why_not(policy: Policy) -> str:
    config = policy.model.config
    if config.model_type not in TRACED_FAMILIES:
        return f"models of the family {config.model_type} are not recorded"
    if not all(isinstance(layer, PreallocatedLayer) for layer in policy.new_cache(1).layers):
        return "its key-value cache is of a kind of its own"
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return f"its rotary embedding is {rotation}" if rotation in GROWING_ROTATIONS else ""


class _Step(nn.Module):
    """What is recorded: attention over states whose last place this step fills, and products with weights that are handed in."""

    def __init__(self, policy: Policy, settings: GenerationConfig, layers: Sequence[nn.Module]):
        super().__init__()
        self.policy, self._settings, self._layers = policy, settings, tuple(layers)

    def forward(self, ids: Tensor, attention: Tensor, positions: Tensor, uniforms: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        packed, states = others[: len(self._layers)], others[len(self._layers) :]
        cache = DynamicCache(config=self.policy.model.config)
        cache.layers = [_FullLayer(keys, values) for keys, values in zip(states[::2], states[1::2], strict=True)]
        lowest = torch.finfo(states[0].dtype).min
        # Four dimensions are taken as they are; from two, the model would work out a mask in Python, from numbers that change.
        mask = torch.zeros_like(attention, dtype=states[0].dtype).masked_fill(attention == 0, lowest)[:, None, None, :]
        with multiplying_by(self._layers, packed):
            return tuple(draw_next(self.policy, self._settings, ids, mask, positions, uniforms, cache))


class _FullLayer(DynamicLayer):
    """Keys and values (B, heads, length, size) in which the new token's place is there already, at the end."""

    def __init__(self, keys: Tensor, values: Tensor):
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys[:, :, -1:] = key_states
        self.values[:, :, -1:] = value_states
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.keys.shape[2] - 1


def _example(policy: Policy, rows: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Cache]:
    """Inputs of a step after ``length`` tokens; the first row has a token less than the others."""
    vocabulary, generator = policy.model.get_input_embeddings().weight.shape[0], torch.Generator().manual_seed(rows)
    drawn = torch.randint(vocabulary, (rows, length + 1), generator=generator)
    attention = torch.ones_like(drawn)
    attention[0, 0] = 0
    positions = position_ids(attention)
    cache = policy.new_cache(length + 1)
    policy.next_logits(drawn[:, :-1], attention[:, :-1], positions[:, :-1], cache)
    return drawn[:, -1:], attention, positions[:, -1:], torch.rand(rows, generator=generator, dtype=torch.float64), cache


def _states(cache: Cache) -> list[Tensor]:
    """Keys and values of each layer, the new token's place included."""
    return [state for layer in cache.layers for state in layer.grow()]


def _check(policy: Policy, step: DecodingStep, settings: GenerationConfig) -> None:
    for rows, length in ((3, 7), (1, 2)):
        ours, own = step(*_example(policy, rows, length)), draw_next(policy, settings, *_example(policy, rows, length))
        for mine, expected in zip(ours, own, strict=True):
            if mine.shape != expected.shape or not torch.allclose(mine, expected, atol=TOLERANCE, rtol=TOLERANCE):
                raise CannotTrace("its recorded step gives other numbers than the model")
