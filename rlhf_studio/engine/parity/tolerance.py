"""How far two passes of one model may lie apart when nothing is wrong, and the error when they lie further."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlhf_studio.engine.loop.models import Models

EXACT = 1e-4  # float32
HALF_STEP = 2.0**-8  # bfloat16 rounds to eight binary digits
MARGIN = 4.0  # over what one step of rounding in every layer changes


class ParityError(RuntimeError):
    """A model's numbers are not those of its own forward pass; nothing was trained. The message is one sentence."""


@dataclass(frozen=True)
class Tolerance:
    """How far two passes of one model may lie apart by rounding alone.

    Measured on random GPT-2, GPT-NeoX and Llama models of up to 32 layers, in batches against alone, with logits of up to 26:

    - float32: single numbers differed by at most 3e-6 of the largest logit. Allowed are 1e-4 up to logits of 4, above in proportion:
      eight times as much.
    - half precision: single tokens are off by up to 1.4 % of the largest logit, too much to tell a mistake by. The root mean square of a
      row was at most 1.1 steps of 2^-8 of it, mostly 0.2. Allowed are 1.5 steps, and 6 / sqrt(n) more for a row of n numbers. Deep or
      sharp models magnify rounding, each by its own factor, so that the model itself is asked as well (:func:`rounded_anew`) and four
      times its answer is allowed: of 48 random models of 12 and 24 layers in bfloat16, full and with adapters, right passes were off by
      at most 1.1 times that answer, and passes that attend to padding by at least 11 times.

    Wrong positions, a mask that is ignored or a padded recurrence cost 0.2 to 9 nats.

    Attributes:
        half: whether products are computed in half precision, or from quantized weights.
    """

    half: bool

    def measure(self, difference: Tensor, scale: float, noise: float = 0.0) -> tuple[float, float]:
        """The size of ``difference`` (n,), and what is allowed beside numbers as large as ``scale``.

        ``noise`` is by how much the numbers moved, in root mean square, when they were :func:`rounded_anew`; half precision only.
        """
        if not self.half:
            return float(difference.abs().max()), EXACT * max(1.0, scale / 4)
        steps = 1.5 + 6 / math.sqrt(len(difference))
        return float(difference.double().square().mean().sqrt()), max(steps * HALF_STEP * max(1.0, scale), MARGIN * noise)


def tolerance_of(models: Models) -> Tolerance:
    """For policy, critic and reference of a run."""
    return Tolerance(models.compute.dtype is not torch.float32 or models.config.model.quantization != "none")


@contextlib.contextmanager
def rounded_anew(model: nn.Module) -> Iterator[None]:
    """Inside, each result of a layer with a matrix is off by up to one step of half precision, always by the same random numbers.

    That is what another order of additions does to a pass. How far it moves what the model says in the end is how far two right passes
    of this model may lie apart. No global random state is used.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def disturb(_layer: nn.Module, _inputs: object, output: object) -> Tensor | None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        generator = generators.setdefault(output.device, torch.Generator(output.device).manual_seed(2))
        drawn = torch.rand(output.shape, generator=generator, device=output.device)
        return (output.float() * (1 + HALF_STEP * (2 * drawn - 1))).to(output.dtype)

    layers = [layer for layer in model.modules() if getattr(getattr(layer, "weight", None), "ndim", 0) >= 2 and not list(layer.children())]
    hooks = [layer.register_forward_hook(disturb) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
