"""How far the numbers of two correct forward passes of one model may differ by rounding, and the error for larger differences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlhf_studio.engine.loop.models import Models

FLOAT32_TOLERANCE = 1e-4  # of a log-probability, value or score
HALF_STEP = 2.0**-8  # relative rounding step of bfloat16, which has eight binary digits
NOISE_MARGIN = 4.0  # times the measured noise


class ParityError(RuntimeError):
    """Numbers of a run differ from the model's own forward pass. Nothing was trained. The message is one sentence for people."""


@dataclass(frozen=True)
class Tolerance:
    """How far the numbers of two correct forward passes of one model may differ by rounding alone.

    Measured on random GPT-2, GPT-NeoX and Llama models of up to 32 layers with logits of up to 26, rows in a batch against rows alone:

    - float32: single numbers differed by at most 3e-6 of the largest logit. Allowed are 1e-4 for logits of up to 4, and in proportion
      above: eight times what was measured.
    - half precision: single tokens differ by up to 1.4 % of the largest logit, which would hide mistakes, so the root mean square of a
      row is used. It was at most 1.1 rounding steps (2^-8 of the largest logit), mostly 0.2. Allowed are 1.5 + 6 / sqrt(n) steps for a
      row of n numbers. Models that are deep, or whose distributions are sharp, amplify rounding by a factor of their own. So that noise
      is measured on the model itself (:func:`with_rounding_noise`), and four times as much is allowed: among 48 random models of 12 and
      24 layers in bfloat16, full and with adapters, correct passes differed by at most 1.1 times the measured noise, and passes that
      attend to padding by at least 11 times.

    For comparison: wrong position ids, an ignored mask or a recurrence over padding change log-probabilities by 0.2 to 9 nats.

    Attributes:
        half: whether matrix products are computed in half precision, or from quantized weights.
    """

    half: bool

    def measure(self, difference: Tensor, scale: float, noise: float = 0.0) -> tuple[float, float]:
        """The size of ``difference`` (n,), and the largest size that rounding explains.

        Args:
            difference: the numbers of one pass minus those of the other.
            scale: the largest logit, hidden state or score, by size, that the numbers are computed from.
            noise: by how much the numbers move, in root mean square, :func:`with_rounding_noise`; used in half precision only.
        """
        if not self.half:
            return float(difference.abs().max()), FLOAT32_TOLERANCE * max(1.0, scale / 4)
        steps = 1.5 + 6 / math.sqrt(len(difference))
        return float(difference.double().square().mean().sqrt()), max(steps * HALF_STEP * max(1.0, scale), NOISE_MARGIN * noise)


def tolerance_of(models: Models) -> Tolerance:
    """The tolerance for policy, critic and reference of a run."""
    return Tolerance(models.compute.dtype is not torch.float32 or models.config.model.quantization != "none")


@contextlib.contextmanager
def with_rounding_noise(model: nn.Module) -> Iterator[None]:
    """Inside, the result of each layer with a weight matrix is changed at random by up to one rounding step of half precision.

    A pass that adds the same numbers in another order differs in this way too. So the change of the model's outputs shows how far two
    correct passes of this model may differ. The random numbers are the same each time, and no global random state is used.
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
