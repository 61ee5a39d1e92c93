"""How far two passes of one model may lie apart when nothing is wrong, and the error when they lie further."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.engine.rollout import Player

EXACT = 1e-4  # float32
HALF_STEP = 2.0**-8  # bfloat16 rounds to eight binary digits


class UnprovenError(RuntimeError):
    """A model's numbers are not those of its own forward pass; nothing was trained. The message is one sentence."""


@dataclass(frozen=True)
class Yardstick:
    """How far two passes of one model may lie apart by rounding alone.

    Measured on random GPT-2, GPT-NeoX and Llama models of up to 32 layers, in batches against alone, with logits of up to 26:

    - float32: single numbers differed by at most 3e-6 of the largest logit. Allowed are 1e-4 up to logits of 4, above in proportion:
      eight times as much.
    - half precision: single tokens are off by up to 1.4 % of the largest logit, too much to tell a mistake by. The root mean square of a
      row was at most 1.1 steps of 2^-8 of it, mostly 0.2. Allowed are 1.5 steps, and 6 / sqrt(n) more for a row of n numbers.

    Wrong positions, a mask that is ignored or a padded recurrence cost 0.2 to 9 nats.

    Attributes:
        half: whether products are computed in half precision, or from quantized weights.
    """

    half: bool

    def measure(self, difference: Tensor, scale: float) -> tuple[float, float]:
        """The size of ``difference`` (n,), and what is allowed beside numbers as large as ``scale``."""
        if not self.half:
            return float(difference.abs().max()), EXACT * max(1.0, scale / 4)
        steps = 1.5 + 6 / math.sqrt(len(difference))
        return float(difference.double().square().mean().sqrt()), steps * HALF_STEP * max(1.0, scale)


def yardstick_of(player: Player) -> Yardstick:
    """For policy, critic and reference of a run."""
    return Yardstick(player.compute.dtype is not torch.float32 or player.config.model.quantization != "none")
