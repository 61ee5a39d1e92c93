"""The other terms of PPO's loss, and the whole of it: value clipping, the entropy bonus, one step on four tokens."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, ledger, line
from rlhf_studio.ppo.advantages import whiten
from rlhf_studio.ppo.diagnostics import UpdateSums
from rlhf_studio.ppo.logprobs import token_logprobs_and_entropy
from rlhf_studio.ppo.losses import entropy_bonus, policy_loss, value_loss
from rlhf_studio.ppo.objective import Minibatch, NewPass, ObjectiveSettings, ppo_objective

EDGE = 1e-9


def row(numbers: list[float]) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# --- the critic's clip -------------------------------------------------------------------------------------------------------

CURVE_VALUES = [round(-2 + 0.05 * index, 2) for index in range(81)]


def critic_at(value: float, old: float, target: float, eps: float | None) -> tuple[float, float, bool]:
    """The critic's loss on one token, its slope along the value, and whether clipping decided it."""
    new = row([value]).requires_grad_()
    loss = value_loss(new, row([old]), row([target]), torch.ones(1, 1, dtype=torch.bool), eps)
    loss.loss_sum.backward()
    return loss.loss_sum.item(), 0.0 if new.grad is None else new.grad.item(), bool(loss.clipped.item())


def value_clip(value: float, target: float, eps: float) -> Numbers:
    """One value that was 0 when the response was sampled."""
    loss, slope, clipped = critic_at(value, 0.0, target, eps)
    plain = critic_at(value, 0.0, target, None)[0]
    limited = critic_at(max(-eps, min(eps, value)), 0.0, target, None)[0]
    return {
        "loss": loss,
        "slope": slope,
        "pulls": abs(slope) > EDGE,
        "clipped": clipped,
        "plain": plain,
        "limited": limited,
        "smaller": min(plain, limited),
        "low": -eps,
        "high": eps,
    }


def draw_critic(n: Numbers) -> Picture:
    larger = [critic_at(value, 0.0, n["target"], n["eps"])[0] for value in CURVE_VALUES]
    plain = [critic_at(value, 0.0, n["target"], None)[0] for value in CURVE_VALUES]
    limited = [critic_at(max(n["low"], min(n["high"], value)), 0.0, n["target"], None)[0] for value in CURVE_VALUES]
    curves = [
        Series(Word("smaller"), CURVE_VALUES, [min(a, b) for a, b in zip(plain, limited, strict=True)], tone="coef"),
        Series(Word("larger"), CURVE_VALUES, larger, tone="value"),
        Series(Word("this_value"), [n["value"]], [n["loss"]], tone="score", dots=True),
    ]
    return line(curves, x=Word("new_value"), y=Word("loss"), x_range=(-2, 2), y_range=(0, 6), at=n["value"])


# --- the entropy bonus -------------------------------------------------------------------------------------------------------

WORDS = ["superb", "good", "fine", "slow", "dull"]
OTHERS = [0.6, 0.2, -0.3, -0.8]


def entropy(liking: float, coef: float) -> Numbers:
    """What the bonus does to the next word's probabilities, in one step along its gradient."""
    logits = torch.tensor([[[liking, *OTHERS]]], dtype=torch.float64, requires_grad=True)
    entropies = token_logprobs_and_entropy(logits, torch.zeros(1, 1, dtype=torch.int64))[1]
    bonus = entropy_bonus(entropies, torch.ones(1, 1, dtype=torch.bool))
    (-coef * bonus).backward()
    gradient = torch.zeros_like(logits) if logits.grad is None else logits.grad
    with torch.no_grad():
        before, after, turned = (x.softmax(dim=-1)[0, 0].tolist() for x in (logits, logits - gradient, logits + gradient))
    change = after[0] - before[0]
    return {
        "before": before,
        "after": after,
        "turned": turned[0],
        "stepped": after[0],
        "entropy": bonus.item(),
        "most": math.log(len(WORDS)),
        "term": -coef * bonus.item(),
        "chance": before[0],
        "gradient": gradient[0, 0].tolist(),
        "moves": Word("rarer" if change < -EDGE else "likelier" if change > EDGE else "as_it_was"),
    }


def draw_entropy(n: Numbers) -> Picture:
    items = [Bar(word, [a, b]) for word, a, b in zip(WORDS, n["before"], n["after"], strict=True)]
    return bars(items, [Word("before"), Word("after")], label=Word("chance"), low=0, high=1)


# --- one step on four tokens -------------------------------------------------------------------------------------------------

COLUMNS = ["is", "superb", ".", "<end>", "·"]
REAL = 4
OLD = [-0.4, -1.6, -0.5, -0.1]
REFERENCE = [-0.5, -2.4, -0.4, -0.2]
MOVES = [-0.05, 0.3, 0.1, -0.3]  # of the log-probabilities in this step
ADVANTAGES = whiten(row([0.1, 1.9, 0.9, -0.4]), torch.ones(1, REAL, dtype=torch.bool))[0].tolist()
VALUES, NEW_VALUES, RETURNS = [0.9, 1.1, 1.4, 1.5], [1.0, 1.5, 1.4, 1.2], [1.2, 1.9, 1.7, 1.6]
ENTROPIES = [1.1, 2.0, 0.9, 0.3]
EPS, VF, BETA = 0.2, 0.5, 0.05


def padded(numbers: list[float]) -> torch.Tensor:
    return row([*numbers, math.nan])


def slopes_of(x: torch.Tensor) -> list[float]:
    return [0.0] * x.numel() if x.grad is None else x.grad[0].tolist()


def one_step(step: float, value_coef: float, entropy_coef: float, kl_in_loss: bool) -> Numbers:
    """Four tokens and one slot of padding, which holds no number at all: the loss, and what it is made of."""
    new = [old + step * move for old, move in zip(OLD, MOVES, strict=True)]
    mask = torch.arange(len(COLUMNS)).unsqueeze(0) < REAL
    batch = Minibatch(mask, *(padded(x) for x in (OLD, REFERENCE, VALUES, ADVANTAGES, RETURNS)))
    settings = ObjectiveSettings(EPS, None, None, EPS, value_coef, entropy_coef, BETA, "k3" if kl_in_loss else None)
    values = padded(NEW_VALUES).requires_grad_()
    now = NewPass(padded(new).requires_grad_(), values, padded(ENTROPIES))
    result = ppo_objective(batch, now, settings)
    (result.loss_sum / REAL).backward()
    sums = UpdateSums(*(float(x) for x in result.sums))
    each = [policy_loss(row([a]), row([b]), row([c]), mask[:, :1], EPS) for a, b, c in zip(new, OLD, ADVANTAGES, strict=True)]
    critic = [value_loss(row([a]), row([b]), row([c]), mask[:, :1], EPS) for a, b, c in zip(NEW_VALUES, VALUES, RETURNS, strict=True)]
    parts: dict[str, float] = {
        "policy": float(sums.mean_policy_loss),
        "critic": value_coef * float(sums.mean_value_loss),
        "bonus": -entropy_coef * float(sums.mean_entropy),
        "price": BETA * float(sums.kl_loss / sums.tokens),
    }
    largest = max(parts, key=lambda name: abs(parts[name]))
    return {
        **parts,
        "total": result.loss_sum.item() / REAL,
        "tokens": int(sums.tokens),
        "ratios": [token.ratio.item() for token in each],
        "policy_losses": [token.loss_sum.item() for token in each],
        "value_losses": [token.loss_sum.item() for token in critic],
        "new": new,
        "slopes": slopes_of(now.logprobs),
        "value_slopes": slopes_of(values),
        "clipped": float(sums.clip_fraction),
        "ratio_var": statistics.pvariance([token.ratio.item() for token in each]),
        "most_var": EPS**2,
        "largest": Word(largest if abs(parts[largest]) > EDGE else "no_term"),
    }


def draw_tokens(n: Numbers) -> Picture:
    gap = [None]
    rows: dict[str, list[Any]] = {
        Word("ratio"): [*n["ratios"], *gap],
        Word("advantage"): [*ADVANTAGES, *gap],
        Word("policy_loss"): [*n["policy_losses"], *gap],
        Word("slope"): n["slopes"],
        Word("new_value"): [*NEW_VALUES, *gap],
        Word("return"): [*RETURNS, *gap],
        Word("value_loss"): [*n["value_losses"], *gap],
        Word("entropy"): [*ENTROPIES, *gap],
    }
    return ledger(COLUMNS, rows)


def draw_terms(n: Numbers) -> Picture:
    items = [Bar(Word(name), [n[name]]) for name in ("policy", "critic", "bonus", "price", "total")]
    return bars(items, [Word("loss")], label=Word("per_token"), low=-0.4, high=0.1, digits=3)


SCENES = (
    Scene(
        "value_clip",
        value_clip,
        controls=(
            Slider("value", -1.2, 1.2, 0.05, start=0.6),
            Slider("target", -1.5, 1.5, 0.05, start=1.2),
            Slider("eps", 0.05, 0.6, 0.05, start=0.2),
        ),
        pictures={"critic": draw_critic},
    ),
    Scene(
        "entropy",
        entropy,
        controls=(Slider("liking", -2, 4, 0.1, start=2), Slider("coef", 0, 1, 0.05, start=0.5)),
        pictures={"entropy": draw_entropy},
    ),
    Scene(
        "one_step",
        one_step,
        controls=(
            Slider("step", 0, 2, 0.1, start=1),
            Slider("value_coef", 0, 1, 0.05, start=0.1),
            Slider("entropy_coef", 0, 0.2, 0.01, start=0.01),
            Toggle("kl_in_loss"),
        ),
        pictures={"tokens": draw_tokens, "terms": draw_terms},
    ),
)
