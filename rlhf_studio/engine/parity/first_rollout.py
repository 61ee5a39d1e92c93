"""The check of the first rollout after a start or a resume, before the first optimizer step: every row's ratio is 1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.parity.tolerance import ParityError, Tolerance, tolerance_of
from rlhf_studio.engine.types import Rollout
from rlhf_studio.language import S_


def check_first_rollout(models: Models, rollout: Rollout, scale: float, noise: float = 0.0, *, at_start: bool) -> str:
    """Compute the log-probabilities of every row again, in other micro-batches, and compare them with the rollout's: the ratio must be 1.

    With ``at_start``, and a reference that is the policy's own start, the KL must be 0 too.

    Args:
        models: the run's models.
        rollout: the first rollout; nothing has been learned from it.
        scale: largest logit by size, from the :class:`ParityReport`.
        noise: how far rounding moves log-probabilities, from the :class:`ParityReport`.
        at_start: the run starts, and is not resumed.

    Returns:
        A warning for people when the KL does not begin at 0, and how large it is; empty when all is well. This happens when LoRA starts
        by splitting the base's matrices (PiSSA, OLoRA): the parts are rounded again, in half precision by much. Nothing is subtracted.

    Raises:
        ParityError: on all ranks, for any other difference.
    """
    ranks, config = models.compute.ranks, models.config
    tolerance, mask = tolerance_of(models), rollout.tokens.mask
    mine = torch.arange(len(mask), device=mask.device)[ranks.rows(len(mask))].flip(0)  # another order: other micro-batches
    part = rollout.tokens.rows(mine)
    width = part.mask.shape[1]
    again = models.forward_pass.run(models.policy, part, 0).logprobs
    wrong = _beyond(tolerance, again - rollout.logprobs[mine, :width], part.mask, (scale, noise))
    problem = S_(f"model.policy: before the first update the ratio is not 1: {wrong}; nothing was trained") if wrong else ""
    offset = ""
    if at_start and _reference_is_start(config):
        apart = rollout.logprobs[mine] - rollout.ref_logprobs[mine]
        wrong = _beyond(tolerance, apart, mask[mine], (scale, noise))
        if config.lora.changes_base:  # PiSSA and OLoRA split the base's matrices, which rounds them
            offset = _offset(apart, mask[mine]) if wrong or tolerance.half else ""
        elif wrong and not problem:
            problem = S_(f"model.reference: it has the policy's weights, but the KL does not begin at 0: {wrong}; nothing was trained")
    ranks.raise_together(problem, ParityError)
    if problem:
        raise ParityError(problem)
    return offset


def _offset(apart: Tensor, mask: Tensor) -> str:
    """How far policy and reference begin apart, as a sentence; empty when all of ``apart`` (b, T) is 0."""
    apart = apart * mask
    if not apart.any():
        return ""
    mean, most = float(apart.sum(dim=1).mean()), float(apart.abs().max())
    size = S_(f"{mean:+.2g} nats per response, at most {most:.2g} at one token")
    return S_(f"The reference is the policy's start, but rounding sets them apart: the KL begins at {size}. Nothing is subtracted for it.")


def _beyond(tolerance: Tolerance, difference: Tensor, mask: Tensor, scale_and_noise: tuple[float, float]) -> str:
    """What is wrong in the worst row of ``difference`` (b, T), as a clause; empty when all is well.

    ``scale_and_noise`` are those of :func:`check_first_rollout`. Twice the tolerance of :func:`check_parity` is allowed, because many more
    rows are compared.
    """
    measured = [tolerance.measure(row[real], *scale_and_noise) for row, real in zip(difference.cpu(), mask.cpu(), strict=True)]
    size, allowed = max(measured, key=lambda pair: pair[0] / pair[1] if pair[0] == pair[0] else math.inf)
    return "" if size <= 2 * allowed else S_(f"log-probabilities differ by {size:.2g}, and rounding explains {2 * allowed:.2g} at most")


def _reference_is_start(config: RunConfig) -> bool:
    """Whether the reference is the model with which the policy starts."""
    model = config.model
    return not model.reference or (model.reference, model.reference_revision) == (model.policy, model.revision)
