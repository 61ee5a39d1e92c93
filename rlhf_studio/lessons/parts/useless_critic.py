"""A critic that explains nothing: what the explained variance of its values says."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Numbers, Picture, Scene, Series, Slider, Word, plane
from rlhf_studio.ppo.diagnostics import explained_variance

RETURNS = (-1.2, -0.7, -0.3, 0.1, 0.4, 0.8, 1.1, 1.8)
NOISE = (0.6, -0.9, 0.3, 0.8, -0.7, -0.2, 0.5, -0.4)  # of the critic, in points
PADDING = 50.0  # behind the mask, where it must not count


def useless_critic(skill: float, offset: float, noise: float) -> Numbers:
    """The values of a critic that follows the returns with some skill, plus a constant error and noise."""
    middle = sum(RETURNS) / len(RETURNS)
    values = [middle + skill * (target - middle) + offset + noise * error for target, error in zip(RETURNS, NOISE, strict=True)]
    given, truth = (torch.tensor([[*row, end]], dtype=torch.float64) for row, end in ((values, PADDING), (RETURNS, -PADDING)))
    mask = torch.arange(len(RETURNS) + 1)[None] < len(RETURNS)
    explained = explained_variance(given, truth, mask).item()
    wrong = sum((value - target) ** 2 for value, target in zip(values, RETURNS, strict=True)) / len(RETURNS)
    of_mean = sum((target - middle) ** 2 for target in RETURNS) / len(RETURNS)
    return {"values": values, "explained": explained, "wrong": wrong, "of_mean": of_mean, "helps": explained > 0}


def draw_critic(n: Numbers) -> Picture:
    points = [
        Series(Word("as_earned"), list(RETURNS), list(RETURNS), tone="coef", dots=True),
        Series(Word("critic_said"), list(RETURNS), n["values"], tone="value", dots=True),
    ]
    return plane(points, x=Word("earned"), y=Word("value"), x_range=(-2, 2), y_range=(-4, 4))


SCENE = Scene(
    "useless_critic",
    useless_critic,
    controls=(Slider("skill", -1, 1, 0.1, start=0.3), Slider("offset", -1.5, 1.5, 0.1, start=1.2), Slider("noise", 0, 1, 0.1, start=0.2)),
    pictures={"critic": draw_critic},
)
