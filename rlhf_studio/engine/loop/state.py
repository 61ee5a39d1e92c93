"""What a resumed run needs beside the weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class TrainingState:
    """What a resumed run needs beside the weights.

    Attributes:
        numbers: JSON values: step, KL controller, running moments, place in the prompts, thread count.
        tensors: random states (uint8), by name.
        optimizer: AdamW's state dict.
        reference: weights of a reference that follows the policy, by name; empty for one that stays.
    """

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]
    reference: dict[str, Tensor] = field(default_factory=dict)
