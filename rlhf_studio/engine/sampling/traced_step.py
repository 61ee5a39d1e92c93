"""The traced decoding step: one step of sampling as a TorchScript program (``torch.jit.trace``) that runs without Python.

One decoding step of a small model is some hundred short operations. Python runs between any two of them, and lanes that sample at the same
time wait for Python's global lock (GIL). TorchScript's interpreter runs a traced step without that lock, and needs no compiler.

torch calls TorchScript deprecated, but has no replacement for this use. So the engine can do without it: a traced step is used only for
model families where it is tested, and only after it has given the model's own numbers for another batch size, another length and other
tokens than those that it was traced with. In all other cases sampling calls the model itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.cache_utils import DynamicCache, DynamicLayer

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import LEAST_ROWS, ONE_LANE, Lanes
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.draw import DecodingStep, Drawn, StepInputs, draw_next
from rlhf_studio.engine.sampling.prepacked import PrepackedWeight, layers_to_prepack, min_rows_per_lane, prepack, using_packed, weight_of
from rlhf_studio.engine.sampling.same_numbers import CannotTrace, draws_alike, example, require_same_numbers, why_not
from rlhf_studio.inputs.error_text import first_line


class TracedStep(DecodingStep):
    """:func:`draw_next` for one new token per row, with a cache of :class:`PreallocatedLayer`. Any thread may call it.

    Attributes:
        rows_per_lane: with fewer rows in each lane, sampling in lanes is slower than sampling all rows together.
    """

    def __init__(
        self,
        policy: Policy,
        script: Any,
        settings: GenerationConfig,
        prepacked: Sequence[PrepackedWeight],
        rows_per_lane: int = LEAST_ROWS,
    ):
        super().__init__(policy, settings)
        self._script, self._prepacked = script, prepacked
        self.rows_per_lane = rows_per_lane

    def ready(self, settings: GenerationConfig, lanes: Lanes = ONE_LANE) -> TracedStep | None:
        """This step with the weights as they are now; adapters count when they are merged now.

        The prepacked weights are refreshed in ``lanes``. None when the step was traced with another temperature, top-k or top-p.
        """
        if not draws_alike(settings, self._settings):
            return None
        lanes.map(PrepackedWeight.refresh, self._prepacked)
        return self

    @torch.no_grad()
    def __call__(self, inputs: StepInputs) -> Drawn:
        """With the weights as they were when last refreshed."""
        packed = (weights.packed for weights in self._prepacked)
        with torch.jit.optimized_execution(False):  # optimising takes seconds for a large model, and makes no step faster
            return Drawn(*self._script(*inputs[:4], *packed, *_extended_states(inputs.cache)))


def trace_step(policy: Policy, settings: GenerationConfig) -> TracedStep:
    """Trace one decoding step of the policy, with merged adapters as in sampling. Raises :class:`CannotTrace`."""
    if why := why_not(policy):
        raise CannotTrace(why)
    layers = layers_to_prepack(policy.model, settings.response_length)
    addresses = [weight_of(layer).data_ptr() for layer in layers]
    with policy.merged(), torch.no_grad():
        *tensors, cache = example(policy, rows=2, length=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation, and numbers that become constants: the comparison finds wrong ones
            try:
                prepacked = prepack(layers, addresses)
                inputs = (*tensors, *(weights.packed for weights in prepacked), *_extended_states(cache))
                script = torch.jit.trace(_Step(policy, settings, layers), inputs, check_trace=False, _store_inputs=False)
                step = TracedStep(policy, script, settings, prepacked, min_rows_per_lane(policy.model, layers))
                require_same_numbers(policy, step, settings, Compute(torch.device("cpu"), torch.float32))
            except CannotTrace:
                raise
            except Exception as error:  # any error of any model's code: sampling can still call the model itself
                raise CannotTrace(f"its step cannot be traced ({first_line(error)})") from error
    return step


class _Step(nn.Module):
    """The module that is traced. Prepacked weights, keys and values are inputs; the new token's keys and values are written in place."""

    def __init__(self, policy: Policy, settings: GenerationConfig, layers: Sequence[nn.Module]):
        super().__init__()
        # torch would first compile every module of the policy, which takes far longer than tracing. So the policy is no module of this one,
        # which has all its parameters and buffers itself: the trace reads them from here.
        self._policy, self._settings, self._layers = (policy,), settings, tuple(layers)
        for number, weight in enumerate(policy.parameters()):
            self.register_parameter(f"parameter_{number}", weight)
        for number, buffer in enumerate(policy.buffers()):
            self.register_buffer(f"buffer_{number}", buffer)

    def forward(self, ids: Tensor, attention: Tensor, positions: Tensor, uniforms: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """``others`` are the prepacked weights of the layers, then keys and values of each attention layer."""
        (policy,) = self._policy
        packed, states = others[: len(self._layers)], others[len(self._layers) :]
        cache = DynamicCache(config=policy.model.config)
        cache.layers = [_FullLayer(keys, values) for keys, values in zip(states[::2], states[1::2], strict=True)]
        lowest = torch.finfo(states[0].dtype).min
        # A mask of four dimensions is used as it is. From one of two dimensions the model would compute the mask in Python, and the trace
        # would keep the example's lengths as constants.
        mask = torch.zeros_like(attention, dtype=states[0].dtype).masked_fill(attention == 0, lowest)[:, None, None, :]
        with using_packed(self._layers, packed):
            return tuple(draw_next(policy, self._settings, StepInputs(ids, mask, positions, uniforms, cache)))


class _FullLayer(DynamicLayer):
    """Keys and values (b, heads, length, size) that already have a position for the new token, at the end."""

    keys: Tensor
    values: Tensor

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


def _extended_states(cache: Cache) -> list[Tensor]:
    """Keys and values of each layer, longer by one position for the new token."""
    layers: Any = cache.layers  # ours: models.kv_cache
    return [state for layer in layers for state in layer.extend()]
