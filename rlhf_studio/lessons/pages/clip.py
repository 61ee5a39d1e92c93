"""The clipped objective: when a token pushes the policy, and when it is silent."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Arrow, Numbers, Picture, Scene, Series, Slider, Word, Zone, line, plane
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 11

RATIOS = [round(0.4 + 0.02 * place, 2) for place in range(61)]
EDGE = 1e-6


def gradient_at(ratio: float, advantage: float, eps: float) -> tuple[float, float]:
    """The loss of one token, and its slope along the token's log-probability, by the engine's own function."""
    new = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
    one = torch.ones(1, 1, dtype=torch.float64)
    found = policy_loss(new, torch.zeros_like(one), advantage * one, one.bool(), eps)
    found.loss_sum.backward()
    return found.loss_sum.item(), 0.0 if new.grad is None else new.grad.item()


def dead_zones(ratio: float, advantage: float, eps: float) -> Numbers:
    """One token in the plane of ratio and advantage."""
    loss, gradient = gradient_at(ratio, advantage, eps)
    outside = not 1 - eps - EDGE <= ratio <= 1 + eps + EDGE
    pushes = abs(gradient) > EDGE
    case = "inside" if not outside else "outside_pushes" if pushes else "silent"
    if abs(advantage) < EDGE:
        case = "no_advantage"
    return {
        "loss": loss,
        "gradient": gradient,
        "direction": -gradient,
        "pushes": pushes,
        "outside": outside,
        "case": Word(case),
        "low": 1 - eps,
        "high": 1 + eps,
    }


def draw_plane(n: Numbers) -> Picture:
    zones = [
        Zone(Word("silent_zone"), (n["high"], 1.6), (0, 2)),
        Zone(Word("silent_zone"), (0.4, n["low"]), (-2, 0)),
    ]
    point = Series(Word("token"), [n["ratio"]], [n["advantage"]], tone="policy" if n["pushes"] else "coef", dots=True)
    arrows = [Arrow(n["ratio"], n["advantage"], 0.12 * n["direction"], 0.0)] if n["pushes"] else []
    return plane([point], x=Word("ratio"), y=Word("advantage"), x_range=(0.4, 1.6), y_range=(-2, 2), zones=zones, arrows=arrows)


def draw_loss(n: Numbers) -> Picture:
    losses = [gradient_at(ratio, n["advantage"], n["eps"])[0] for ratio in RATIOS]
    plain = [-n["advantage"] * ratio for ratio in RATIOS]
    curves = [
        Series(Word("without_clip"), RATIOS, plain, tone="coef"),
        Series(Word("with_clip"), RATIOS, losses, tone="policy"),
        Series(Word("token"), [n["ratio"]], [n["loss"]], tone="score", dots=True),
    ]
    return line(curves, x=Word("ratio"), y=Word("loss"), x_range=(0.4, 1.6), y_range=(-3.2, 3.2))


SCENES = (
    Scene(
        "dead_zones",
        dead_zones,
        controls=(
            Slider("ratio", 0.4, 1.6, 0.02, start=1.3),
            Slider("advantage", -2, 2, 0.1, start=-1),
            Slider("eps", 0.05, 0.4, 0.05, start=0.2),
        ),
        pictures={"plane": draw_plane, "loss": draw_loss},
        claims={
            "a silent token with an advantage has left the range": lambda n: n["pushes"] or n["outside"] or abs(n["advantage"]) < EDGE,
            "a token that has moved against its advantage pushes": lambda n: n["pushes"] or (n["ratio"] - 1) * n["advantage"] >= 0,
            "the slope is that of minus A times the ratio, or 0": lambda n: (
                not n["pushes"] or abs(n["gradient"] + n["advantage"] * n["ratio"]) < 1e-6
            ),
        },
    ),
)
