"""What must hold for every row of the first rollout, after a start or a resume, before the first optimizer step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.parity.tolerance import ParityError, Tolerance, tolerance_of
from rlhf_studio.engine.types import Rollout


def check_first_rollout(models: Models, rollout: Rollout, scale: float, noise: float = 0.0, *, at_start: bool) -> str:
    """Before the first update: every row is read again, among other rows, and must say what it will be trained against; the ratio is 1.

    ``scale`` and ``noise`` are those of the proof: how large logits are, and how far rounding moves log-probabilities.

    With ``at_start`` and a reference of the policy's own weights the KL must be 0 too. In half precision it need not be: the reference's
    weights are rounded and the policy's are not, and how far that goes depends on the model. So there it is a warning, which is returned;
    empty where all is well. All else raises :class:`ParityError`, in all processes.
    """
    ranks, config = models.compute.ranks, models.config
    tolerance, mask = tolerance_of(models), rollout.tokens.mask
    mine = torch.arange(len(mask), device=mask.device)[ranks.rows(len(mask))].flip(0)
    part = rollout.tokens.rows(mine)
    width = part.mask.shape[1]
    again = models.forward_pass.read(models.policy, part, 0).logprobs
    wrong = _beyond(tolerance, again - rollout.logprobs[mine, :width], part.mask, (scale, noise))
    problem = f"model.policy: before the first update the ratio is not 1: {wrong}; nothing was trained" if wrong else ""
    warning = ""
    if at_start and _reference_is_start(config):
        wrong = _beyond(tolerance, rollout.logprobs[mine] - rollout.ref_logprobs[mine], mask[mine], (scale, noise))
        if wrong and tolerance.half:
            warning = f"The reference has the policy's weights, but the KL does not begin at 0: {wrong}."
        elif wrong and not problem:
            problem = f"model.reference: it has the policy's weights, but the KL does not begin at 0: {wrong}; nothing was trained"
    ranks.raise_together(problem, ParityError)
    if problem:
        raise ParityError(problem)
    return warning


def _beyond(tolerance: Tolerance, difference: Tensor, mask: Tensor, sizes: tuple[float, float]) -> str:
    """What is wrong in the worst row. Twice is allowed what the proof allows, for there are many more rows. Empty where all is well."""
    found = [tolerance.measure(row[kept], *sizes) for row, kept in zip(difference.cpu(), mask.cpu(), strict=True)]
    size, allowed = max(found, key=lambda pair: pair[0] / pair[1] if pair[0] == pair[0] else math.inf)
    return "" if size <= 2 * allowed else f"log-probabilities differ by {size:.2g}, and rounding explains {2 * allowed:.2g} at most"


def _reference_is_start(config: RunConfig) -> bool:
    model = config.model
    same = not model.reference or (model.reference, model.reference_revision) == (model.policy, model.revision)
    return same and not config.lora.changes_base  # PiSSA and OLoRA take the base apart and round
