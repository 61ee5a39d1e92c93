"""The gradient of several parts of a batch, in one lane or in several; the same whichever lane is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from rlhf_studio.engine.compute.lanes import Lanes, balanced_parts

Gradients = list[Tensor | None]
"""One for each trained parameter; None where there is none."""

Part = TypeVar("Part")
Result = TypeVar("Result")


def add_gradients(
    lanes: Lanes, parameters: Sequence[torch.nn.Parameter], parts: Sequence[Part], work: Callable[[Part], tuple[Tensor, Result]]
) -> list[Result]:
    """Add the gradients of all parts to the ``grad`` of ``parameters``; the parts' results, lane by lane.

    Each lane sums its own gradients; the lanes' sums are added in a fixed order.

    Args:
        work: computes a part's loss, and a result that is returned.
    """
    if lanes.count == 1 or len(parts) == 1:
        results = []
        for part in parts:
            loss, result = work(part)
            loss.backward()
            results.append(result)
        return results

    def lane(own: list[Part]) -> tuple[list[Result], Gradients]:
        gradients: Gradients = [None] * len(parameters)
        return [_work_off(part, work, parameters, gradients) for part in own], gradients

    done, gradients = zip(*lanes.map(lane, balanced_parts(parts, lanes.count)), strict=True)
    for parameter, *of_lanes in zip(parameters, *gradients, strict=True):
        for gradient in of_lanes:
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return [result for of_lane in done for result in of_lane]


def _work_off(
    part: Part, work: Callable[[Part], tuple[Tensor, Result]], parameters: Sequence[torch.nn.Parameter], gradients: Gradients
) -> Result:
    loss, result = work(part)
    for index, new in enumerate(torch.autograd.grad(loss, list(parameters), allow_unused=True)):
        so_far = gradients[index]
        gradients[index] = new if so_far is None else so_far if new is None else so_far.add_(new)
    return result
