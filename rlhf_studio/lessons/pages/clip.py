"""The loss of PPO: the ratio, the clipped objective and when a token is silent, the critic's clip, the entropy bonus, one whole step."""

from __future__ import annotations

import math

import torch

from rlhf_studio.lessons.kit import Arrow, Bar, Numbers, Picture, Scene, Series, Slider, Word, Zone, bars, line, options, plane
from rlhf_studio.lessons.parts import microscope, whole_loss
from rlhf_studio.ppo.logprobs import token_logprobs
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 12

RATIOS = [round(0.4 + 0.02 * index, 2) for index in range(61)]
EDGE = 1e-6


# --- the ratio ---------------------------------------------------------------------------------------------------------------

WORDS = ["superb", "good", "fine", "slow", "dull"]
OLD = [0.8, 0.6, 0.2, -0.3, -0.8]
REFERENCE = [0.1, 0.7, 0.4, -0.1, -0.5]


def ratio(push: float, shift: float, advantage: float) -> Numbers:
    """The word "superb" was drawn. Its logit moves by ``push``, and all logits by ``shift``."""
    ids, mask = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    logits = (torch.tensor([[OLD]], dtype=torch.float64) + shift).index_add(2, ids[0], torch.full((1, 1, 1), push, dtype=torch.float64))
    logits.requires_grad_()
    old, ref = (token_logprobs(torch.tensor([[x]], dtype=torch.float64), ids) for x in (OLD, REFERENCE))
    new = token_logprobs(logits, ids)
    scores = torch.full((1, 1), advantage, dtype=torch.float64)
    loss = policy_loss(new, old, scores, mask, 0.99, 1e9)  # nothing is clipped here
    loss.loss_sum.backward()
    gradient = torch.zeros_like(logits) if logits.grad is None else logits.grad
    rho = loss.ratio.item()
    return {
        "rho": rho,
        "old_chance": old.exp().item(),
        "new_chance": new.exp().item(),
        "of_logits": math.exp(push + shift),
        "against_ref": policy_loss(old, ref, scores, mask, 0.99, 1e9).ratio.item(),
        "old_against_old": policy_loss(old, old, scores, mask, 0.99, 1e9).ratio.item(),
        "steps": (-gradient)[0, 0].tolist(),
        "logits": logits[0, 0].tolist(),
        "becomes": Word("above" if rho > 1 + EDGE else "below" if rho < 1 - EDGE else "exactly_one"),
    }


def draw_steps(n: Numbers) -> Picture:
    items = [Bar(word, [step]) for word, step in zip(WORDS, n["steps"], strict=True)]
    return bars(items, [Word("push")], label=Word("push"), low=-2.5, high=2.5)


# --- the four cases ----------------------------------------------------------------------------------------------------------


def gradient_at(ratio: float, advantage: float, eps: float) -> tuple[float, float]:
    """The loss of one token, and its slope along the token's log-probability, by the engine's own function."""
    new = torch.tensor([[ratio]], dtype=torch.float64).log().requires_grad_()
    unit = torch.ones(1, 1, dtype=torch.float64)
    loss = policy_loss(new, torch.zeros_like(unit), advantage * unit, unit.bool(), eps)
    loss.loss_sum.backward()
    return loss.loss_sum.item(), 0.0 if new.grad is None else new.grad.item()


def dead_zones(ratio: float, advantage: float, eps: float) -> Numbers:
    """One token in the plane of ratio and advantage."""
    loss, gradient = gradient_at(ratio, advantage, eps)
    outside = not 1 - eps - EDGE <= ratio <= 1 + eps + EDGE
    pushes = abs(gradient) > EDGE
    case = "inside" if not outside else "outside_pushes" if pushes else "silent"
    if abs(advantage) < EDGE:
        case = "no_advantage"
    within = min(max(ratio, 1 - eps), 1 + eps)
    return {
        "loss": loss,
        "clip_alone": -advantage * within,
        "gradient": gradient,
        "direction": -gradient,
        "pushes": pushes,
        "outside": outside,
        "case": Word(case),
        "low": 1 - eps,
        "high": 1 + eps,
    }


def draw_plane(n: Numbers) -> Picture:
    zones = [Zone(Word("silent_zone"), (n["high"], 1.6), (0, 2)), Zone(Word("silent_zone"), (0.4, n["low"]), (-2, 0))]
    point = Series(Word("token"), [n["ratio"]], [n["advantage"]], tone="policy" if n["pushes"] else "coef", dots=True)
    arrows = [Arrow(n["ratio"], n["advantage"], 0.12 * n["direction"], 0.0)] if n["pushes"] else []
    return plane([point], x=Word("ratio"), y=Word("advantage"), x_range=(0.4, 1.6), y_range=(-2, 2), zones=zones, arrows=arrows)


def draw_loss(n: Numbers) -> Picture:
    losses = [gradient_at(ratio, n["advantage"], n["eps"])[0] for ratio in RATIOS]
    plain = [-n["advantage"] * ratio for ratio in RATIOS]
    curves = [
        Series(Word("without_clip"), RATIOS, plain, tone="coef"),
        Series(Word("clip_alone"), RATIOS, [-n["advantage"] * min(max(ratio, n["low"]), n["high"]) for ratio in RATIOS], tone="clip"),
        Series(Word("with_clip"), RATIOS, losses, tone="policy"),
        Series(Word("token"), [n["ratio"]], [n["loss"]], tone="score", dots=True),
    ]
    return line(curves, x=Word("ratio"), y=Word("loss"), x_range=(0.4, 1.6), y_range=(-3.2, 3.2))


# --- a check -----------------------------------------------------------------------------------------------------------------


def check_yourself(ratio: float, advantage: float, eps: float) -> Numbers:
    """A token: its slope, and whether clipping decided its loss."""
    _, slope = gradient_at(ratio, advantage, eps)
    unit = torch.ones(1, 1, dtype=torch.float64)
    loss = policy_loss((ratio * unit).log(), 0 * unit, advantage * unit, unit.bool(), eps)
    full = -advantage * ratio
    silent = abs(slope) < EDGE
    seed = round(10 * ratio + 10 * abs(advantage) + 20 * eps)
    return {
        "slope": slope,
        "low": 1 - eps,
        "high": 1 + eps,
        "clipped": bool(loss.clipped.item()),
        "why": Word("silent" if silent else "outside_pushes" if not 1 - eps - EDGE <= ratio <= 1 + eps + EDGE else "inside"),
        **options(slope, [full if silent else 0.0, -full], seed),
    }


def draw_check(n: Numbers) -> Picture:
    return line(
        [Series(Word("with_clip"), RATIOS, [gradient_at(ratio, n["advantage"], n["eps"])[0] for ratio in RATIOS], tone="policy")],
        x=Word("ratio"),
        y=Word("loss"),
        x_range=(0.4, 1.6),
        y_range=(-3.2, 3.2),
        at=n["ratio"],
    )


SCENES = (
    Scene(
        "ratio",
        ratio,
        controls=(Slider("push", -2, 2, 0.1, start=0), Slider("shift", -3, 3, 0.5, start=2), Slider("advantage", -1.5, 1.5, 0.1, start=1)),
        pictures={"steps": draw_steps},
    ),
    Scene(
        "dead_zones",
        dead_zones,
        controls=(
            Slider("ratio", 0.4, 1.6, 0.02, start=1.3),
            Slider("advantage", -2, 2, 0.1, start=-1),
            Slider("eps", 0.05, 0.4, 0.05, start=0.2),
        ),
        pictures={"plane": draw_plane, "loss": draw_loss},
    ),
    *whole_loss.SCENES,
    microscope.SCENE,
    Scene(
        "check_yourself",
        check_yourself,
        controls=(
            Slider("ratio", 0.5, 1.5, 0.1, start=0.6),
            Slider("advantage", -1.9, 1.9, 0.2, start=-0.9),
            Slider("eps", 0.15, 0.35, 0.1, start=0.25),
        ),
        pictures={"check": draw_check},
    ),
)
