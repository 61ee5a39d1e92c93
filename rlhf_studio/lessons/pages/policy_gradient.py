"""Policy gradient, from the expected reward to PPO's surrogate, with three actions: every step exactly, then from draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from rlhf_studio.lessons.kit import (
    Bar,
    Choice,
    Numbers,
    Picture,
    Scene,
    Series,
    Slider,
    Typed,
    Word,
    bars,
    ledger,
    line,
    numbers_of,
    options,
)
from rlhf_studio.ppo.logprobs import token_logprobs
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 11

ACTIONS = ("sunny", "cloudy", "rainy")
LOGITS = Typed("logits", "2 1.5 0.5", ("0 0 0", "-1 0 2", "1 2 0.5", "3 0 -1"), -6, 6)
REWARDS = Typed("rewards", "0.2 1 -0.5", ("1 0 0", "-1 0.5 2", "1.5 1 0.5", "0.3 0.3 1"), -5, 5)
SMALL, LEVEL = 1e-4, 0.005  # of a logit; below this a number is called level
MOVES = [round(-2 + 0.1 * index, 1) for index in range(41)]


class Policy(NamedTuple):
    """Logits that can be differentiated, log-probabilities and probabilities of the three actions, and their rewards."""

    logits: torch.Tensor
    logprobs: torch.Tensor
    chances: torch.Tensor
    rewards: torch.Tensor


def policy_of(logits: Sequence[float], rewards: Sequence[float]) -> Policy:
    leaf = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    logprobs = token_logprobs(leaf.expand(1, len(ACTIONS), len(ACTIONS)), torch.arange(len(ACTIONS))[None])[0]
    return Policy(leaf, logprobs, logprobs.exp(), torch.tensor(rewards, dtype=torch.float64))


def slope(value: torch.Tensor, logits: torch.Tensor) -> list[float]:
    """The gradient of a value along the logits, by autograd."""
    (gradient,) = torch.autograd.grad(value, logits, retain_graph=True)
    numbers: list[float] = gradient.tolist()
    return numbers


def log_slopes(policy: Policy) -> list[list[float]]:
    """For each action the gradient of its log-probability along the three logits."""
    return [slope(logprob, policy.logits) for logprob in policy.logprobs]


def expected(policy: Policy) -> torch.Tensor:
    return (policy.chances * policy.rewards).sum()


def bars_of(rows: Sequence[Sequence[float]], names: Sequence[str], label: str, size: float) -> Picture:
    """Bars of each action, a series for each row."""
    items = [Bar(Word(action), [row[at] for row in rows]) for at, action in enumerate(ACTIONS)]
    return bars(items, [Word(name) for name in names], label=Word(label), low=-size, high=size)


def size_of(*rows: Sequence[float]) -> float:
    """Where an axis ends that holds all of these numbers."""
    return max(0.5, math.ceil(2.2 * max(abs(number) for row in rows for number in row)) / 2)


# --- the objective -----------------------------------------------------------------------------------------------------------


def objective(logits: str, rewards: str) -> Numbers:
    """Chances, rewards, and the reward that the policy expects."""
    policy = policy_of(numbers_of(logits), numbers_of(rewards))
    value, earned = expected(policy).item(), policy.rewards.tolist()
    mean, chances = sum(earned) / len(earned), policy.chances.tolist()
    likely, best = chances.index(max(chances)), earned.index(max(earned))
    return {
        "chances": chances,
        "earned": earned,
        "value": value,
        "mean": mean,
        "beside": Word("above" if value > mean + LEVEL else "below" if value < mean - LEVEL else "level"),
        "likely": Word(ACTIONS[likely]),
        "likely_chance": chances[likely],
        "best": Word(ACTIONS[best]),
        "most": earned[best],
    }


def draw_objective(n: Numbers) -> Picture:
    return bars_of([n["chances"], n["earned"]], ["chance", "reward"], "number", size_of(n["earned"]))


# --- its gradient ------------------------------------------------------------------------------------------------------------


def gradient(logits: str, rewards: str, action: str) -> Numbers:
    """The exact gradient: by autograd through the chances, as a mean of slopes of log-probabilities, and by a small step."""
    given, earned, at = numbers_of(logits), numbers_of(rewards), ACTIONS.index(action)
    policy = policy_of(given, earned)
    value, exact = expected(policy), slope(expected(policy), policy.logits)
    logs, chances = log_slopes(policy), policy.chances.tolist()
    trick = [sum(chances[a] * earned[a] * logs[a][j] for a in range(len(ACTIONS))) for j in range(len(ACTIONS))]
    further = [number + SMALL * (index == at) for index, number in enumerate(given)]
    behind = [number - SMALL * (index == at) for index, number in enumerate(given)]
    by_steps = (expected(policy_of(further, earned)) - expected(policy_of(behind, earned))).item() / (2 * SMALL)
    pull = exact[at]
    return {
        "exact": exact,
        "trick": trick,
        "chances": chances,
        "logs": [row[at] for row in logs],
        "value": value.item(),
        "own_chance": chances[at],
        "own_reward": earned[at],
        "pull": pull,
        "by_steps": by_steps,
        "total": sum(exact),
        "way": Word("up" if pull > LEVEL else "down" if pull < -LEVEL else "stays"),
    }


def draw_gradient(n: Numbers) -> Picture:
    weighed = [chance * reward * log for chance, reward, log in zip(n["chances"], numbers_of(n["rewards"]), n["logs"], strict=True)]
    rows: dict[str, list[float]] = {
        Word("chance"): n["chances"],
        Word("reward"): numbers_of(n["rewards"]),
        Word("log_slope"): n["logs"],
        Word("product"): weighed,
    }
    return ledger([Word(action) for action in ACTIONS], rows, result=Word("product"), digits=3)


# --- from draws --------------------------------------------------------------------------------------------------------------


def spread_of(policy: Policy, baselines: Sequence[float]) -> list[float]:
    """For each baseline, how far a single draw lies from the gradient, exactly: the root of its mean squared distance."""
    chances, earned, logs = policy.chances.tolist(), policy.rewards.tolist(), log_slopes(policy)
    spreads = []
    for baseline in baselines:
        says = [[(reward - baseline) * log for log in row] for reward, row in zip(earned, logs, strict=True)]
        mean = [sum(chance * row[j] for chance, row in zip(chances, says, strict=True)) for j in range(len(ACTIONS))]
        spreads.append(math.sqrt(sum(chance * math.dist(row, mean) ** 2 for chance, row in zip(chances, says, strict=True))))
    return spreads


def estimate(policy: Policy, count: int, seed: int, baseline: float = 0.0) -> tuple[list[float], list[int]]:
    """The gradient from ``count`` draws of the policy, and how often each action was drawn."""
    draws = torch.multinomial(policy.chances.detach(), count, replacement=True, generator=torch.Generator().manual_seed(seed))
    surrogate = (policy.logprobs[draws] * (policy.rewards[draws] - baseline)).mean()
    counts: list[int] = torch.bincount(draws, minlength=len(ACTIONS)).tolist()
    return slope(surrogate, policy.logits), counts


def sampled(logits: str, rewards: str, draws: str, seed: float) -> Numbers:
    """The gradient from some draws, beside the exact one."""
    policy, count = policy_of(numbers_of(logits), numbers_of(rewards)), int(draws)
    exact, (found, counts) = slope(expected(policy), policy.logits), estimate(policy, count, int(seed))
    (single,) = spread_of(policy, [0.0])
    agree = all(a * b > 0 or max(abs(a), abs(b)) < LEVEL for a, b in zip(exact, found, strict=True))
    return {
        "exact": exact,
        "found": found,
        "counts": counts,
        **{f"drawn_{action}": counts[at] for at, action in enumerate(ACTIONS)},
        "count": count,
        "agree": agree,
        "single": single,
        "spread": single / math.sqrt(count),
        "spread_four": single / math.sqrt(4 * count),
        "length": math.hypot(*exact),
    }


def draw_sampled(n: Numbers) -> Picture:
    return bars_of([n["exact"], n["found"]], ["exact", "from_draws"], "slope", size_of(n["exact"], n["found"]))


# --- a baseline --------------------------------------------------------------------------------------------------------------

BASELINES = [round(-2 + 0.1 * index, 1) for index in range(41)]


def baseline(logits: str, rewards: str, baseline: float) -> Numbers:
    """The same gradient with a number taken off all rewards, and how far a single draw lies off."""
    policy = policy_of(numbers_of(logits), numbers_of(rewards))
    value = expected(policy)
    less = slope((policy.chances.detach() * policy.logprobs * (policy.rewards - baseline)).sum(), policy.logits)
    now, none, at_value, *curve = spread_of(policy, [baseline, 0.0, value.item(), *BASELINES])
    return {
        "exact": slope(value, policy.logits),
        "less": less,
        "value": value.item(),
        "curve": curve,
        "now": now,
        "none": none,
        "at_value": at_value,
        "effect": Word("smaller" if now < none - LEVEL else "larger" if now > none + LEVEL else "same"),
        "less_own": less[1],
        "exact_own": slope(value, policy.logits)[1],
    }


def draw_baseline(n: Numbers) -> Picture:
    curves = [
        Series(Word("spread"), BASELINES, n["curve"], tone="policy"),
        Series(Word("here"), [n["baseline"]], [n["now"]], tone="score", dots=True),
        Series(Word("value"), [min(2.0, max(-2.0, n["value"]))], [n["at_value"]], tone="value", dots=True),
    ]
    return line(curves, x=Word("baseline"), y=Word("spread"), x_range=(-2, 2), y_range=(0, size_of(n["curve"])))


# --- the surrogate -----------------------------------------------------------------------------------------------------------


def moved_policy(logits: str, rewards: str, moved: float) -> tuple[Policy, Policy, torch.Tensor]:
    """The policy that drew, the policy after the logit of "cloudy" has moved, and the advantages under the first."""
    given, earned = numbers_of(logits), numbers_of(rewards)
    old, new = policy_of(given, earned), policy_of([number + moved * (at == 1) for at, number in enumerate(given)], earned)
    return old, new, old.rewards - expected(old).detach()


def clipped_surrogate(old: Policy, new: Policy, advantages: torch.Tensor, eps: float) -> tuple[torch.Tensor, int]:
    """The engine's clipped objective, each action weighed by how often the old policy draws it; and how many actions are silent."""
    weighed = (old.chances.detach() * advantages)[None]
    loss = policy_loss(new.logprobs[None], old.logprobs.detach()[None], weighed, torch.ones_like(weighed, dtype=torch.bool), eps)
    return -loss.loss_sum, int(loss.clipped.sum())


def gains(logits: str, rewards: str) -> list[float]:
    """What the policy expects more than before, for each move of the logit."""
    moves = [moved_policy(logits, rewards, other)[:2] for other in MOVES]
    return [(expected(new) - expected(old)).item() for old, new in moves]


def surrogate(logits: str, rewards: str, moved: float) -> Numbers:
    """Draws of the old policy, weighed by the ratio, say what the new one earns."""
    old, new, advantages = moved_policy(logits, rewards, moved)
    ratio = new.chances / old.chances.detach()
    total = (old.chances.detach() * ratio * advantages).sum()
    without = (old.chances.detach() * new.logprobs * advantages).sum()
    with_ratio, truth, forgets = (slope(value, new.logits)[1] for value in (total, expected(new), without))
    weights = ratio.detach()
    return {
        "ratios": weights.tolist(),
        "ratio": weights[1].item(),
        "advantage": advantages[1].item(),
        "total": total.item(),
        "gain": (expected(new) - expected(old)).item(),
        "with_ratio": with_ratio,
        "truth": truth,
        "without": forgets,
        "right": abs(forgets - truth) < LEVEL,
        "gains": gains(logits, rewards),
        "lines": [other * forgets for other in MOVES],
        "counts_as": (1 / (old.chances.detach() * weights**2).sum()).item(),
    }


def draw_surrogate(n: Numbers) -> Picture:
    curves = [
        Series(Word("gain"), MOVES, n["gains"], tone="policy"),
        Series(Word("straight"), MOVES, n["lines"], tone="coef"),
        Series(Word("here"), [n["moved"]], [n["total"]], tone="score", dots=True),
    ]
    size = size_of(n["gains"])
    return line(curves, x=Word("moved"), y=Word("gain"), x_range=(-2, 2), y_range=(-size, size))


# --- clipping ----------------------------------------------------------------------------------------------------------------


def clipping(logits: str, rewards: str, moved: float, eps: float) -> Numbers:
    """The surrogate with and without the clip."""
    old, new, advantages = moved_policy(logits, rewards, moved)
    ratio = new.chances / old.chances.detach()
    plain, (clipped, silent) = (old.chances.detach() * ratio * advantages).sum(), clipped_surrogate(old, new, advantages, eps)
    before, after = slope(plain, new.logits)[1], slope(clipped, new.logits)[1]
    limited = [clipped_surrogate(*moved_policy(logits, rewards, other), eps)[0].item() for other in MOVES]
    return {
        "ratios": ratio.tolist(),
        "ratio": ratio[1].item(),
        "advantages": advantages.tolist(),
        "plain": plain.item(),
        "clipped": clipped.item(),
        "before": before,
        "after": after,
        "silent": silent,
        "changes": abs(before - after) >= LEVEL,
        "gains": gains(logits, rewards),
        "limited": limited,
    }


def draw_clipping(n: Numbers) -> Picture:
    curves = [
        Series(Word("gain"), MOVES, n["gains"], tone="coef"),
        Series(Word("with_clip"), MOVES, n["limited"], tone="policy"),
        Series(Word("here"), [n["moved"]], [n["clipped"]], tone="score", dots=True),
    ]
    size = size_of(n["gains"], n["limited"])
    return line(curves, x=Word("moved"), y=Word("surrogate"), x_range=(-2, 2), y_range=(-size, size))


# --- a check -----------------------------------------------------------------------------------------------------------------


def check_yourself(first: float, second: float, third: float, place: float) -> Numbers:
    """Three rewards of an undecided policy: the slope along the first logit."""
    policy = policy_of([0.0, 0.0, 0.0], [first, second, third])
    exact, value = slope(expected(policy), policy.logits), expected(policy).item()
    shape = options(exact[0], [first / 3, -exact[0]], int(place))
    return {
        "value": value,
        "right": exact[0],
        "product": first / 3,
        "difference": first - value,
        **{(key if key == "answer" else f"{key}_option"): value for key, value in shape.items()},
        "earned": [first, second, third],
    }


def draw_check(n: Numbers) -> Picture:
    return bars_of([n["earned"]], ["reward"], "reward", 2)


WEATHER = (LOGITS, REWARDS)
MOVED = Slider("moved", -2, 2, 0.1, start=1)
SCENES = (
    Scene("objective", objective, controls=WEATHER, pictures={"objective": draw_objective}),
    Scene("gradient", gradient, controls=(*WEATHER, Choice("action", ACTIONS, start="cloudy")), pictures={"gradient": draw_gradient}),
    Scene(
        "sampled",
        sampled,
        controls=(*WEATHER, Choice("draws", ("1", "4", "16", "64", "256"), start="4", plain=True), Slider("seed", 1, 50, 1, start=1)),
        pictures={"sampled": draw_sampled},
    ),
    Scene("baseline", baseline, controls=(*WEATHER, Slider("baseline", -2, 2, 0.1, start=0.6)), pictures={"baseline": draw_baseline}),
    Scene("surrogate", surrogate, controls=(*WEATHER, MOVED), pictures={"surrogate": draw_surrogate}),
    Scene(
        "clipping", clipping, controls=(*WEATHER, MOVED, Slider("eps", 0.05, 0.5, 0.05, start=0.2)), pictures={"clipping": draw_clipping}
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(
            *(Slider(name, -2, 2, 0.5, start=start) for name, start in (("first", 1.5), ("second", 0.0), ("third", -0.5))),
            Slider("place", 1, 3, 1, start=2),
        ),
        pictures={"rewards": draw_check},
    ),
)
