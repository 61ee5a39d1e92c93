"""The key-value cache of sampling: transformers' cache, with the memory for the whole response allocated at the start.

transformers' own cache concatenates: for every new token it copies all keys and values that it holds.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer


def new_cache(config: PretrainedConfig, max_length: int) -> DynamicCache:
    """An empty cache for rows of up to ``max_length`` tokens. Layers of other kinds (sliding windows, states) stay transformers' own."""
    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer(max_length) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer, (B, heads, length, size): views of the first ``length`` positions of buffers with the full length.

    Keys are kept in the values' number format. Under autocast a rotation by position makes float32 of bfloat16 keys, and attention would
    convert all of them again for every token.
    """

    def __init__(self, max_length: int):
        super().__init__()
        self._max_length = max_length

    keys: Tensor
    values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = value_states.dtype, value_states.device
        self._all_keys, self._all_values = self._memory(key_states, value_states)
        self.keys, self.values = self._all_keys[:, :, :0], self._all_values[:, :, :0]
        self.is_initialized = True

    def _memory(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        shapes = [(*states.shape[:2], self._max_length, states.shape[3]) for states in (key_states, value_states)]
        return value_states.new_empty(shapes[0]), value_states.new_empty(shapes[1])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[2]
        keys, values = self.extend(key_states.shape[2])
        keys[:, :, start:] = key_states
        values[:, :, start:] = value_states
        return keys, values

    def extend(self, tokens: int = 1) -> tuple[Tensor, Tensor]:
        """Make the keys and values longer by ``tokens`` positions at the end, which the caller fills. Returns both."""
        end = self.keys.shape[2] + tokens
        self.keys, self.values = self._all_keys[:, :, :end], self._all_values[:, :, :end]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.keys.shape[2] if self.is_initialized else 0

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.is_initialized:
            length = self.keys.shape[2]
            self._all_keys, self._all_values = self._all_keys[indices], self._all_values[indices]
            self.keys, self.values = self._all_keys[:, :, :length], self._all_values[:, :, :length]


class KeyValueMemory:
    """Keys and values (rows, heads, length, size) of one layer that keep their place from rollout to rollout; zeros at first.

    They must not hold NaN: what a mask hides is multiplied by 0.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, rows: int, length: int):
        self.rows, self.length = rows, length
        self._taken = False

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, 0 before it is taken."""
        return self.keys.nbytes + self.values.nbytes if self._taken else 0

    def forget(self) -> None:
        """Zeros again: a rollout may have ended because its numbers were not finite."""
        if self._taken:
            self.keys.zero_()
            self.values.zero_()

    def views(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """The first rows of the memory, as many as the states (b, heads, ., size) have; taken from the device at the first call."""
        if not self._taken:
            shapes = [(self.rows, states.shape[1], self.length, states.shape[3]) for states in (key_states, value_states)]
            self.keys, self.values = value_states.new_zeros(shapes[0]), value_states.new_zeros(shapes[1])
            self._taken = True
        rows = len(key_states)
        return self.keys[:rows], self.values[:rows]


class FixedLayer(PreallocatedLayer):
    """A layer in a :class:`KeyValueMemory`; rows that stay move to the front of it."""

    def __init__(self, memory: KeyValueMemory):
        super().__init__(memory.length)
        self._fixed = memory

    def _memory(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        return self._fixed.views(key_states, value_states)

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.is_initialized:
            length, rows = self.keys.shape[2], len(indices)
            for memory in (self._all_keys, self._all_values):
                memory[:rows] = memory[indices]
            self._all_keys, self._all_values = self._all_keys[:rows], self._all_values[:rows]
            self.keys, self.values = self._all_keys[:, :, :length], self._all_values[:, :, :length]
