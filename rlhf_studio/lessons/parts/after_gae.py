"""What happens to advantages once gae has found them: whitening, and what is held constant."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Slider, Toggle, Word, bars, ledger
from rlhf_studio.ppo.advantages import gae, whiten
from rlhf_studio.ppo.losses import policy_loss

EDGE = 1e-9


def row(numbers: list[float]) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# --- whitening ---------------------------------------------------------------------------------------------------------------

BATCH = ["warm", "and", "funny", "<end>", "a", "fine", "film", "<end>"]
LENGTHS = (4, 4)
AROUND = [[0.3, -0.9, 1.4, -0.1, 0.0], [-1.2, 0.6, -0.4, 0.3, 0.0]]


def whitening(level: float, spread: float, padding: bool) -> Numbers:
    """Advantages of two responses around a level, before and after whitening; on request with the padding counted in."""
    x = level + spread * torch.tensor(AROUND, dtype=torch.float64)
    real = torch.tensor([[index < length for index in range(5)] for length in LENGTHS])
    x = torch.where(real, x, 0.0)
    whitened = whiten(x, torch.ones_like(real) if padding else real)[real].tolist()
    before = x[real].tolist()
    return {
        "before": before,
        "after": whitened,
        "mean": statistics.fmean(before),
        "std": statistics.stdev(before),
        "mean_after": statistics.fmean(whitened),
        "below_before": sum(value < -EDGE for value in before),
        "below": sum(value < -EDGE for value in whitened),
        "tokens": len(before),
        "turned": sum(a > EDGE and b < -EDGE for a, b in zip(before, whitened, strict=True)),
        "turns": any(a > EDGE and b < -EDGE for a, b in zip(before, whitened, strict=True)),
        "stretch": (whitened[2] - whitened[1]) / (before[2] - before[1]),
    }


def draw_whitening(n: Numbers) -> Picture:
    items = [Bar(token, [a, b]) for token, a, b in zip(BATCH, n["before"], n["after"], strict=True)]
    return bars(items, [Word("before"), Word("after")], label=Word("advantage_in_full"), low=-3.5, high=3.5)


# --- what is held constant ---------------------------------------------------------------------------------------------------

COLUMNS = ["The", "acting", "is", "superb", ".", "<end>"]
REAL = len(COLUMNS)
EARNED = [-0.02, 0.05, 0.0, -0.15, -0.03, 1.75]
VALUES = [0.9, 0.8, 1.0, 1.5, 1.6, 1.7]
LOGPROBS = [-0.2, -1.1, -0.3, -1.6, -0.4, -0.1]
STEP = 0.1  # of a gradient step on the values


def constants(lam: float, detach: bool) -> Numbers:
    """The gradient of the policy's loss, with the values held constant and without."""
    values = row(VALUES).requires_grad_()
    new = row(LOGPROBS).requires_grad_()
    mask = torch.ones_like(new, dtype=torch.bool)
    rewards = row(EARNED)
    advantages = gae(rewards, values.detach() if detach else values, mask, 1.0, lam)[0]
    loss = policy_loss(new, new.detach(), advantages, mask, 0.2).loss_sum
    loss.backward()
    gradient = torch.zeros_like(values) if values.grad is None else values.grad
    into_values = gradient[0].tolist()
    after = gae(rewards, values.detach() - STEP * gradient, mask, 1.0, lam)[0]
    into_policy = [] if new.grad is None else new.grad[0].tolist()
    return {
        "advantages": advantages[0].tolist(),
        "loss": loss.item() / REAL,
        "loss_after": policy_loss(new.detach(), new.detach(), after, mask, 0.2).loss_sum.item() / REAL,
        "into_policy": into_policy,
        "into_values": into_values,
        "reaches": any(abs(x) > EDGE for x in into_values),
    }


def draw_gradients(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {
        Word("advantage"): n["advantages"],
        Word("into_policy"): n["into_policy"],
        Word("into_values"): n["into_values"],
    }
    return ledger(COLUMNS, rows, result=Word("into_values"))


SCENES = (
    Scene(
        "whitening",
        whitening,
        controls=(Slider("level", -2, 2, 0.1, start=1.5), Slider("spread", 0.02, 1.5, 0.02, start=0.5), Toggle("padding")),
        pictures={"whitening": draw_whitening},
    ),
    Scene(
        "constants", constants, controls=(Slider("lam", 0, 1, 0.05, start=0.95), Toggle("detach")), pictures={"gradients": draw_gradients}
    ),
)
