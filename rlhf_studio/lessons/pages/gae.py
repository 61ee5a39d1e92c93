"""Advantages: the ledger from right to left, how far credit reaches, bias against variance, whitening, and what is held constant."""

from __future__ import annotations

import math
from typing import Any

import torch

from rlhf_studio.lessons.kit import Numbers, Picture, Scene, Series, Slider, Word, heat, ledger, line, options
from rlhf_studio.lessons.parts import after_gae, dice
from rlhf_studio.ppo.advantages import estimate_advantages, gae

NUMBER = 10


def row(numbers: list[float]) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# --- the ledger --------------------------------------------------------------------------------------------------------------

COLUMNS = ["The", "acting", "is", "superb", ".", "<end>", "·"]
REAL = 6
REWARDS = [-0.02, 0.05, 0.0, -0.15, -0.03, -0.05]  # the price of KL; the score comes on top of the last one
VALUES = [0.9, 0.8, 1.0, 1.5, 1.6, 1.7]
LITTLE = 0.05  # what comes from the right neighbour, when a reader could take it for nothing


def right_to_left(score: float, gamma: float, lam: float, at: float) -> Numbers:
    """One response: rewards and values to advantages and returns. Behind the end stands a number that must not count."""
    earned = [*REWARDS[:-1], REWARDS[-1] + score]
    mask = torch.arange(len(COLUMNS)).unsqueeze(0) < REAL
    rewards, values = row([*earned, 50.0]), row([*VALUES, 50.0])
    estimate = estimate_advantages(rewards, values, mask, gamma, lam, whitening=False)
    lonely = torch.where(torch.arange(len(COLUMNS)) == REAL - 1, values, 0.0)
    assert estimate.returns is not None and estimate.deltas is not None  # there is a critic
    advantages, deltas = (x[0].tolist() for x in (estimate.advantages, estimate.deltas))
    index = int(at) - 1
    carried = gamma * lam * advantages[index + 1]
    near = abs(carried) < LITTLE  # then the surprise alone would be right too: the wrong numbers come from other mistakes
    wrong = (
        [estimate.returns[0, index].item(), deltas[index] - gamma * VALUES[index + 1]] if near else [deltas[index], deltas[index] - carried]
    )
    return {
        "earned": earned,
        "advantages": advantages,
        "deltas": deltas,
        "used": estimate.whitened[0].tolist(),
        "returns": estimate.returns[0].tolist(),
        "lonely": gae(rewards, lonely, mask, gamma, lam)[0][0].tolist(),
        "delta": deltas[index],
        "next_advantage": advantages[index + 1],
        "carried": carried,
        "found": advantages[index],
        "token": COLUMNS[index],
        "fade": gamma * lam,
        **options(advantages[index], wrong, index),
    }


def draw_half(n: Numbers) -> Picture:
    """The ledger up to the chosen token."""
    index = int(n["at"]) - 1
    hidden = [None] * (index + 1)
    rows: dict[str, list[Any]] = {
        Word("reward"): n["earned"],
        Word("value"): VALUES,
        Word("delta"): n["deltas"][:REAL],
        Word("advantage"): [*hidden, *n["advantages"][index + 1 : REAL]],
    }
    return ledger(COLUMNS[:REAL], rows, result=Word("advantage"), at=index)


def draw_whole(n: Numbers) -> Picture:
    gap = [None]
    rows: dict[str, list[Any]] = {
        Word("reward"): [*n["earned"], *gap],
        Word("value"): [*VALUES, *gap],
        Word("delta"): n["deltas"],
        Word("advantage"): n["advantages"],
        Word("return"): n["returns"],
        Word("lonely"): n["lonely"],
    }
    return ledger(COLUMNS, rows, result=Word("advantage"), at=int(n["at"]) - 1)


# --- how far credit reaches --------------------------------------------------------------------------------------------------

STEPS = 6


def credit(gamma: float, lam: float, score: float) -> Numbers:
    """A surprise of 1 at each token in turn, and what each token before it gets; computed by the engine's gae, one row for each."""
    impulses = torch.eye(STEPS, dtype=torch.float64)
    nothing, mask = torch.zeros_like(impulses), torch.ones(STEPS, STEPS, dtype=torch.bool)
    shares = gae(impulses, nothing, mask, gamma, lam)[0].T.tolist()  # token t by surprise k
    end = row([0.0] * (STEPS - 1) + [score])
    returns = gae(end, nothing[:1], mask[:1], gamma, 1.0)[1][0].tolist()
    return {
        "shares": shares,
        "reach": shares[0][-1],
        "rewards": end[0].tolist(),
        "returns": returns,
        "first_return": returns[0],
        "at_first": Word("all" if gamma == 1 and score else "part" if score and returns[0] else "none"),
        "terms": STEPS * (STEPS + 1) // 2,
        "steps": STEPS,
    }


def draw_credit(n: Numbers) -> Picture:
    names = [str(index + 1) for index in range(STEPS)]
    cells = {f"A{name}": [None if k < t else n["shares"][t][k] for k in range(STEPS)] for t, name in enumerate(names)}
    return heat([f"δ{name}" for name in names], cells, label=Word("share"), size=1.0)


def draw_returns(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {Word("reward"): n["rewards"], Word("return"): n["returns"], Word("taken"): n["rewards"]}
    return ledger([str(index + 1) for index in range(STEPS)], rows, result=Word("return"))


# --- bias and variance -------------------------------------------------------------------------------------------------------

EPISODES, LENGTH, EDGE_OF_TOKEN = 400, 10, 0.5
SLOW_EYES = 0.5  # with each further token the critic misses half as much
LAMS = [round(0.05 * index, 2) for index in range(21)]


def simulated(blind: float, noise: float, seed: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Episodes whose first token makes the end better by a known amount, and a critic that sees it only step by step.

    Rewards are noise, plus the amount at the last token. The true advantage of the first token is the amount.
    """
    generator = torch.Generator().manual_seed(int(seed))
    rewards = noise * torch.randn(EPISODES, LENGTH, generator=generator, dtype=torch.float64)
    rewards[:, -1] += EDGE_OF_TOKEN
    missed = blind * SLOW_EYES ** (torch.arange(LENGTH, dtype=torch.float64) - 1)
    observed = (EDGE_OF_TOKEN * (1 - missed)).repeat(EPISODES, 1)
    observed[:, 0] = 0.0  # before the first token nobody can know
    return rewards, observed, torch.ones(EPISODES, LENGTH, dtype=torch.bool)


def measured(lam: float, blind: float, noise: float, seed: float) -> tuple[float, float]:
    """Mean and standard deviation of the first token's advantage over the episodes."""
    first = gae(*simulated(blind, noise, seed), 1.0, lam)[0][:, 0]
    return first.mean().item(), first.std().item()


def bias_and_variance(lam: float, blind: float, noise: float, seed: float) -> Numbers:
    """What λ does to the estimate of one token's advantage, measured."""
    curve = [measured(each, blind, noise, seed) for each in LAMS]
    errors = [math.sqrt((mean - EDGE_OF_TOKEN) ** 2 + spread**2) for mean, spread in curve]
    mean, spread = measured(lam, blind, noise, seed)
    return {
        "mean": mean,
        "spread": spread,
        "bias": mean - EDGE_OF_TOKEN,
        "error": math.sqrt((mean - EDGE_OF_TOKEN) ** 2 + spread**2),
        "truth": EDGE_OF_TOKEN,
        "biases": [abs(each - EDGE_OF_TOKEN) for each, _ in curve],
        "spreads": [each for _, each in curve],
        "errors": errors,
        "best": LAMS[min(range(len(LAMS)), key=errors.__getitem__)],
        "better": Word("critic" if errors[0] < errors[-1] else "earned"),
        "critic_is": Word("alike" if blind else "sees_all"),
        "error_0": errors[0],
        "error_1": errors[-1],
        "episodes": EPISODES,
    }


def draw_errors(n: Numbers) -> Picture:
    curves = [
        Series(Word("bias"), LAMS, n["biases"], tone="value"),
        Series(Word("spread"), LAMS, n["spreads"], tone="kl"),
        Series(Word("error"), LAMS, n["errors"], tone="policy"),
    ]
    return line(curves, x="λ", y=Word("points"), x_range=(0, 1), y_range=(0, 1.1), at=n["lam"])


# --- a check -----------------------------------------------------------------------------------------------------------------


def check_yourself(example: float, gamma: float, lam: float) -> Numbers:
    """A response of two tokens with plain numbers: the first advantage."""
    generator = torch.Generator().manual_seed(int(example))
    score, first, second = ((torch.randint(2, 20, (1,), generator=generator) / 10).item() for _ in range(3))
    mask = torch.ones(1, 2, dtype=torch.bool)
    advantages, returns, deltas = (x[0].tolist() for x in gae(row([0.0, score]), row([first, second]), mask, gamma, lam))
    wrong = [returns[0], advantages[0] - gamma * second]  # the return; and a surprise that forgets the next value
    return {
        "score": score,
        "v_first": first,
        "v_second": second,
        "advantages": advantages,
        "returns": returns,
        "delta_first": deltas[0],
        "delta_second": deltas[1],
        "found": advantages[0],
        **options(advantages[0], wrong, int(example)),
    }


def draw_two(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {Word("reward"): [0.0, n["score"]], Word("value"): [n["v_first"], n["v_second"]]}
    return ledger(["good", "<end>"], rows)


def draw_two_found(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {
        Word("delta"): [n["delta_first"], n["delta_second"]],
        Word("advantage"): n["advantages"],
        Word("return"): n["returns"],
    }
    return ledger(["good", "<end>"], rows, result=Word("advantage"))


SCENES = (
    Scene(
        "right_to_left",
        right_to_left,
        controls=(
            Slider("score", -2, 4, 0.1, start=1.8),
            Slider("gamma", 0.8, 1, 0.01, start=1),
            Slider("lam", 0, 1, 0.05, start=0.95),
            Slider("at", 1, 5, 1, start=4),
        ),
        pictures={"half": draw_half, "whole": draw_whole},
    ),
    Scene(
        "credit",
        credit,
        controls=(Slider("gamma", 0.8, 1, 0.01, start=1), Slider("lam", 0, 1, 0.05, start=0.9), Slider("score", 0.05, 2, 0.05, start=0.85)),
        pictures={"credit": draw_credit, "returns": draw_returns},
    ),
    Scene(
        "bias_and_variance",
        bias_and_variance,
        controls=(
            Slider("lam", 0, 1, 0.05, start=0.95),
            Slider("blind", 0, 1, 0.05, start=0.8),
            Slider("noise", 0.02, 0.3, 0.02, start=0.1),
            Slider("seed", 1, 40, 1, start=1),
        ),
        pictures={"errors": draw_errors},
    ),
    dice.SCENE,
    *after_gae.SCENES,
    Scene(
        "check_yourself",
        check_yourself,
        controls=(Slider("example", 1, 60, 1, start=4), Slider("gamma", 0.8, 1, 0.1, start=1), Slider("lam", 0, 1, 0.25, start=0.5)),
        pictures={"two": draw_two, "found": draw_two_found},
    ),
)
