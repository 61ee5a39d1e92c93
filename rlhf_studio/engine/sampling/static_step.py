"""The static decoding step: for a GPU, one step of sampling from and into memory that stays where it is, as a captured CUDA graph.

One decoding step of a small model is some hundred short operations. A GPU finishes each sooner than Python can start the next. A graph is
captured once, and then starts all of them at one call. It reads and writes the addresses that it was captured with, so everything that a
step needs has a fixed place here: inputs, keys and values of the longest row, and the weights.

- Keys and values have their full length from the start. The mask hides what is not written yet.
- A weight that sampling uses in another form than training (rounded to bfloat16, or with LoRA added) has a copy, which is filled anew
  before each rollout.
- There is one graph for each number of rows. When half of the rows have ended, the other half goes on with the next graph.

A static step is used only for model families where it is tested, and only after it has given the model's own numbers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.pytorch_utils import Conv1D

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import LEAST_ROWS, ONE_LANE, Lanes
from rlhf_studio.engine.models.kv_cache import FixedLayer, KeyValueMemory
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.draw import DecodingStep, Drawn, StepInputs, draw_next
from rlhf_studio.engine.sampling.same_numbers import CannotTrace, draws_alike, require_same_numbers, why_not
from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.estimate.memory.phases import MOST_KEPT

LENGTH_MULTIPLE = 64  # attention's kernels want lengths that are multiples of 8, and a prompt somewhat longer needs no new graphs
MOST_GRAPHS = 12  # numbers of rows: a batch, its halves, and those of the watched prompts


class StaticStep(DecodingStep):
    """One new token per row, with a cache from :meth:`new_cache` alone.

    Args:
        policy: the model to sample from, a family of which :func:`why_not` says nothing.
        settings: how tokens are drawn.
        compute: the device, and the number format of products.
        captured: False computes the same step without a graph, on any device.

    Attributes:
        rows_per_lane: as in ``TracedStep``; a GPU has one lane.
    """

    rows_per_lane = LEAST_ROWS
    by_halves = True

    def __init__(self, policy: Policy, settings: GenerationConfig, compute: Compute, *, captured: bool):
        super().__init__(policy, settings)
        self._compute, self._captured = compute, captured
        self._copies = weight_copies(policy, compute.dtype)
        self._inputs: _Inputs | None = None
        self._memories: list[KeyValueMemory] = []
        self._graphs: dict[int, _Graph] = {}
        self._addresses: list[int] = []
        self._pool: Any = None

    def ready(self, settings: GenerationConfig, lanes: Lanes = ONE_LANE) -> StaticStep | None:
        """This step with the weights as they are now; adapters count when they are merged now. None for other settings of drawing."""
        if not draws_alike(settings, self._settings):
            return None
        for copy in self._copies:
            copy.refresh()
        addresses = self._used_addresses()
        if addresses != self._addresses:  # a weight that is read where it lies now lies elsewhere
            self._graphs.clear()
            self._addresses = addresses
        return self

    def new_cache(self, rows: int, max_length: int) -> Cache:
        """An empty cache for ``rows`` of up to ``max_length`` tokens, in this step's own memory: the last one's content is lost."""
        cache = DynamicCache(config=self._policy.model.config)
        if self._inputs is None or rows > self._inputs.rows or max_length > self._inputs.length:
            most_rows, length = (self._inputs.rows, self._inputs.length) if self._inputs else (0, 0)
            length = max(-(-max_length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, length)
            self._graphs.clear()
            self._inputs = None  # its memory is free before the new one is taken
            self._memories = [KeyValueMemory(max(rows, most_rows), length) for _ in cache.layers]
            self._inputs = _Inputs(max(rows, most_rows), length, self._policy.model.device)
        self._inputs.forget()
        for memory in self._memories:
            memory.forget()
        cache.layers = [FixedLayer(memory) for memory in self._memories]
        return cache

    def rest(self) -> None:
        """After a rollout: where keys and values are a large part of the device's memory, it is free for the update, and the graphs go."""
        if (
            self._captured
            and sum(memory.nbytes for memory in self._memories)
            > MOST_KEPT * torch.cuda.get_device_properties(self._policy.model.device).total_memory
        ):
            self._graphs.clear()
            self._inputs, self._memories = None, []

    @torch.no_grad()
    def __call__(self, inputs: StepInputs) -> Drawn:
        assert self._inputs is not None
        rows = len(inputs.ids)
        self._inputs.take(inputs)
        if not self._captured:
            return self._compute_step(rows)
        graph = self._graphs.get(rows) or self._capture(rows)
        graph.replay()
        return graph.drawn

    def _capture(self, rows: int) -> _Graph:
        """A graph for so many rows. The step is computed once before, as it is: libraries set themselves up at their first call."""
        while len(self._graphs) >= MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        if not self._graphs:  # those that are gone held the pool
            self._pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._compute_step(rows)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            drawn = self._compute_step(rows)
        self._graphs[rows] = _Graph(graph, drawn)
        return self._graphs[rows]

    def _compute_step(self, rows: int) -> Drawn:
        assert self._inputs is not None
        cache = DynamicCache(config=self._policy.model.config)
        cache.layers = [_WrittenLayer(memory.keys[:rows], memory.values[:rows], self._inputs.at) for memory in self._memories]
        inputs = self._inputs.step_inputs(rows, self._memories[0].values.dtype, cache)
        with contextlib.ExitStack() as stack:
            if self._compute.dtype is not torch.float32:
                # Without autocast's own cache: a graph would go on reading the conversions of this one rollout.
                stack.enter_context(torch.autocast(self._compute.device.type, dtype=self._compute.dtype, cache_enabled=False))
            stack.enter_context(using_copies(self._copies))
            return draw_next(self._policy, self._settings, inputs)

    def _used_addresses(self) -> list[int]:
        moving = {id(copy.layer.weight) for copy in self._copies if copy.merged}
        head = self._policy.value_head
        modules = [self._policy.model, *([head] if head is not None else [])]
        tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        return [tensor.data_ptr() for tensor in tensors if id(tensor) not in moving]


@dataclass(frozen=True)
class _Graph:
    """A captured step and the tensors that each replay fills."""

    graph: Any
    drawn: Drawn

    def replay(self) -> None:
        self.graph.replay()


class _Inputs:
    """Where a step finds its inputs: those of :class:`StepInputs` for up to ``rows`` rows of ``length`` tokens.

    Attributes:
        at: (1,) the position at which the new token's keys and values are written.
    """

    def __init__(self, rows: int, length: int, device: torch.device):
        self.rows, self.length = rows, length
        self._ids, self._positions = (torch.zeros((rows, 1), dtype=torch.int64, device=device) for _ in range(2))
        self._uniforms = torch.zeros(rows, dtype=torch.float64, device=device)
        self._visible = torch.zeros((rows, length), dtype=torch.bool, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)

    def forget(self) -> None:
        self._visible.zero_()

    def take(self, inputs: StepInputs) -> None:
        rows, length = inputs.attention.shape
        self._ids[:rows], self._positions[:rows], self._uniforms[:rows] = inputs.ids, inputs.positions, inputs.uniforms
        self._visible[:rows, :length] = inputs.attention
        self.at.fill_(length - 1)

    def step_inputs(self, rows: int, dtype: torch.dtype, cache: Cache) -> StepInputs:
        # A mask of four dimensions is used as it is.
        hidden = torch.zeros((rows, self.length), dtype=dtype, device=self.at.device)
        mask = hidden.masked_fill_(~self._visible[:rows], torch.finfo(dtype).min)[:, None, None, :]
        return StepInputs(self._ids[:rows], mask, self._positions[:rows], self._uniforms[:rows], cache)


class _WrittenLayer(DynamicLayer):
    """All positions (b, heads, length, size) of one layer; the new token's keys and values are written at ``at`` (1,)."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, at: Tensor):
        super().__init__()
        self.keys, self.values, self._at = keys, values, at
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self._at, key_states.to(self.dtype))
        self.values.index_copy_(2, self._at, value_states.to(self.dtype))
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.keys.shape[2] - 1


# --- weights -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightCopy:
    """A layer's weight and bias in the form in which a step uses them, at an address of their own.

    Attributes:
        merged: LoRA is added into the weight while sampling, each time at another address.
    """

    layer: Any
    weight: Tensor
    bias: Tensor | None
    merged: bool

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy what the layer has now."""
        self.weight.copy_(self.layer.weight)
        if self.bias is not None:
            self.bias.copy_(self.layer.bias)


@torch.no_grad()
def weight_copies(policy: Policy, dtype: torch.dtype) -> list[WeightCopy]:
    """Copies for each layer whose weight sampling uses in another form: products in ``dtype``, and LoRA added in. To be refreshed.

    Adapters must not be merged at the time of the call.
    """
    layers: list[Any] = [module for module in policy.model.modules() if type(module) in (nn.Linear, Conv1D, nn.Embedding)]
    apart = [layer.weight.data_ptr() for layer in layers]
    with policy.merged():
        changed = [layer.weight.data_ptr() != address for layer, address in zip(layers, apart, strict=True)]
    copies = []
    for layer, merged in zip(layers, changed, strict=True):
        product = type(layer) is not nn.Embedding
        kind = dtype if product and layer.weight.dtype is torch.float32 else layer.weight.dtype
        if merged or kind is not layer.weight.dtype:
            bias = getattr(layer, "bias", None)
            own = None if bias is None else torch.empty_like(bias, dtype=kind)
            copies.append(WeightCopy(layer, torch.empty_like(layer.weight, dtype=kind), own, merged))
    return copies


@contextlib.contextmanager
def using_copies(copies: Sequence[WeightCopy]) -> Iterator[None]:
    """Inside, the layers compute with the copies instead of their own weights; gradients do not pass through."""
    for copy in copies:
        copy.layer.forward = functools.partial(_forward, copy)
    try:
        yield
    finally:
        for copy in copies:
            del copy.layer.forward  # the method of the class is used again


def _forward(copy: WeightCopy, x: Tensor) -> Tensor:
    if type(copy.layer) is nn.Embedding:
        return functional.embedding(x, copy.weight, copy.layer.padding_idx)
    weight = copy.weight.t() if type(copy.layer) is Conv1D else copy.weight
    return functional.linear(x, weight, copy.bias)


def static_step(policy: Policy, settings: GenerationConfig, compute: Compute, *, captured: bool = True) -> StaticStep:
    """A static step that has given the model's own numbers. Raises :class:`CannotTrace`."""
    if why := why_not(policy):
        raise CannotTrace(why)
    step = StaticStep(policy, settings, compute, captured=captured)
    with policy.merged(), torch.no_grad():
        try:
            step.ready(settings)
            require_same_numbers(policy, step, settings, compute)
        except CannotTrace:
            raise
        except Exception as error:  # any error of any model's code: sampling can still call the model itself
            raise CannotTrace(f"its step cannot be captured ({first_line(error)})") from error
    return step
