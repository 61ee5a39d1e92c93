"""The optimizer: from gradients to other weights."""

from __future__ import annotations

from functools import cache

import torch

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import MOST, NEEDS, STEP, label, table

NUMBER = 13


@cache
def head(run: LessonRun, step: int) -> torch.Tensor:
    """The weights (1, H) of the value head after a step."""
    layer = run.policy(step).value_head
    assert layer is not None
    return layer.weight.detach()


def stepped(run: LessonRun, step: float) -> Numbers:
    """Weights of the value head before and after a step, and the sizes of the changes."""
    number, ppo = int(step), run.config.ppo
    before, after = head(run, number - 1), head(run, number)
    change = after - before
    rate, made = run.curve("lr")[number - 1], run.curve("optim/steps")[number - 1]
    norm = run.curve("optim/grad_norm")[number - 1]
    first = slice(0, MOST)
    tensors = {"weight before": before, "weight after": after, "change": change}
    return {
        "columns": [f"[{index}]" for index in range(MOST)],
        "rows": {label(name, tensor): tensor[0, first].tolist() for name, tensor in tensors.items()},
        "digits": 4,
        "rate": rate,
        "first_rate": ppo.learning_rate,
        "steps": ppo.steps,
        "made": made,
        "farthest": rate * made,
        "largest": float(change.abs().max()),
        "weights": change.numel(),
        "norm": norm,
        "most_norm": ppo.max_grad_norm,
        "within": float(change.abs().max()) <= rate * made,
        "cut": norm > ppo.max_grad_norm,
        "start": number == 1,
        "at_start": float(before.abs().max()),
    }


SCENES = (Scene("line", stepped, controls=(STEP,), needs=NEEDS, pictures={"tensors": table}),)
