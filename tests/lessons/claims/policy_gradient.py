"""What holds in the scenes of ``pages/policy_gradient.py``, whatever the controls say; by scene. Everything is computed again by hand."""

from __future__ import annotations

import math
from typing import Any

from tests.lessons.by_hand import all_close, close, log_softmax
from tests.lessons.claims import Claims

STEP = 1e-5


def given(n: dict[str, Any]) -> tuple[list[float], list[float]]:
    return [float(part) for part in n["logits"].split()], [float(part) for part in n["rewards"].split()]


def chances(logits: list[float]) -> list[float]:
    return [math.exp(logprob) for logprob in log_softmax(logits)]


def expected(logits: list[float], rewards: list[float]) -> float:
    return sum(chance * reward for chance, reward in zip(chances(logits), rewards, strict=True))


def by_differences(function: Any, logits: list[float]) -> list[float]:
    """A gradient by small steps to both sides."""
    slopes = []
    for at in range(len(logits)):
        ahead, behind = ([number + sign * STEP * (index == at) for index, number in enumerate(logits)] for sign in (1, -1))
        slopes.append((function(ahead) - function(behind)) / (2 * STEP))
    return slopes


def exact(n: dict[str, Any]) -> list[float]:
    logits, rewards = given(n)
    return by_differences(lambda other: expected(other, rewards), logits)


def moved(n: dict[str, Any]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Chances before and after "cloudy" has moved, advantages, and the logits afterwards."""
    logits, rewards = given(n)
    after = [logits[0], logits[1] + n["moved"], logits[2]]
    return chances(logits), chances(after), [reward - expected(logits, rewards) for reward in rewards], after


def surrogate(n: dict[str, Any], logits: list[float], eps: float = math.inf) -> float:
    old, _, advantages, _ = moved(n)
    ratios = [new / before for new, before in zip(chances(logits), old, strict=True)]
    terms = [min(r * a, min(max(r, 1 - eps), 1 + eps) * a) for r, a in zip(ratios, advantages, strict=True)]
    return sum(chance * term for chance, term in zip(old, terms, strict=True))


def spread(n: dict[str, Any], baseline: float) -> float:
    """Of a single draw: the mean square of what it says, less the square of the gradient's length."""
    logits, rewards = given(n)
    policy = chances(logits)
    lengths = [sum(((action == j) - policy[j]) ** 2 for j in range(3)) for action in range(3)]
    square = sum(policy[action] * (rewards[action] - baseline) ** 2 * lengths[action] for action in range(3))
    return math.sqrt(max(square - sum(slope**2 for slope in exact(n)), 0.0))


CLAIMS: Claims = {
    "objective": {"the chances are a softmax, and J is their mean reward": lambda n: close(n["value"], expected(*given(n)))},
    "gradient": {
        "autograd, the log trick and small steps agree": lambda n: (
            all_close(n["exact"], n["trick"]) and all_close(n["exact"], exact(n), 1e-7) and close(n["pull"], n["by_steps"], 1e-6)
        ),
        "the short form is chance times reward less J": lambda n: close(n["pull"], n["own_chance"] * (n["own_reward"] - n["value"])),
        "the slopes cancel": lambda n: abs(n["total"]) < 1e-9,
    },
    "sampled": {
        "the estimate is that of its draws": lambda n: all_close(
            n["found"],
            [
                sum(count * given(n)[1][a] * ((a == j) - chances(given(n)[0])[j]) for a, count in enumerate(n["counts"])) / n["count"]
                for j in range(3)
            ],
        ),
        "a single draw lies off by the root of its variance": lambda n: abs(spread(n, 0.0) - n["single"]) < 1e-6,
    },
    "baseline": {
        "the gradient stays": lambda n: all_close(n["less"], n["exact"]) and all_close(n["exact"], exact(n), 1e-7),
        "the distance is the root of the variance": lambda n: abs(spread(n, n["baseline"]) - n["now"]) < 1e-6,
    },
    "surrogate": {
        "the surrogate is what the policy gains": lambda n: close(n["total"], n["gain"]) and close(n["total"], surrogate(n, moved(n)[3])),
        "with the ratio its slope is that of J": lambda n: (
            close(n["with_ratio"], n["truth"]) and close(n["truth"], by_differences(lambda at: surrogate(n, at), moved(n)[3])[1], 1e-6)
        ),
        "without it, it is the slope where the ratio is one": lambda n: close(n["without"], exact(n)[1], 1e-7),
        "unequal weights count for fewer draws": lambda n: n["counts_as"] <= 1 + 1e-9,
    },
    "clipping": {
        "the clipped surrogate": lambda n: close(n["clipped"], surrogate(n, moved(n)[3], n["eps"])),
        "it never promises more": lambda n: n["clipped"] <= n["plain"] + 1e-12,
        "without anything silent nothing changes": lambda n: bool(n["silent"]) or close(n["before"], n["after"]),
    },
    "check_yourself": {"a third of the difference": lambda n: close(n["right"], n["difference"] / 3)},
}
