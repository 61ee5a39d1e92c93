"""Plain Python for claims: what the engine's tensors are held against."""

from __future__ import annotations

import math
from collections.abc import Sequence


def close(found: float, expected: float, edge: float = 1e-9) -> bool:
    """Whether two numbers are equal but for rounding. False for what is not a number."""
    return abs(found - expected) <= edge * max(1.0, abs(expected))


def all_close(found: Sequence[float], expected: Sequence[float], edge: float = 1e-9) -> bool:
    """Whether two lists are equally long, and their numbers close."""
    return len(found) == len(expected) and all(close(a, b, edge) for a, b in zip(found, expected, strict=True))


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Log-probabilities of logits."""
    total = math.log(sum(math.exp(x) for x in logits))
    return [x - total for x in logits]


def total(row: Sequence[float | None]) -> float:
    """The sum of the numbers that exist."""
    return sum(number for number in row if number is not None)


def half_square(row: Sequence[float | None]) -> float:
    """Half the mean of the squares of the numbers that exist."""
    squares = [number**2 for number in row if number is not None]
    return sum(squares) / len(squares) / 2


def kl_estimate(d: float, estimator: str) -> float:
    """The estimate of the KL at one token, from d, the difference of its two log-probabilities."""
    return {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d, "abs": math.sqrt(d * d)}[estimator]


def advantages(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """Each advantage as a sum of its own: A_t = Σ (γλ)^(k−t) δ_k."""
    count = len(rewards)
    deltas = [rewards[k] + (gamma * values[k + 1] if k + 1 < count else 0.0) - values[k] for k in range(count)]
    return [math.fsum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, count)) for t in range(count)]


def weighed(scores: Sequence[float], beta: float) -> list[float]:
    """Weights that go with exp(score / β) and add up to 1."""
    top = max(scores)
    weights = [math.exp((score - top) / beta) for score in scores]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities of logits."""
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def mean_and_error(row: Sequence[float]) -> tuple[float, float]:
    """The mean of a sample, and its standard error."""
    mean = math.fsum(row) / len(row)
    variance = math.fsum((x - mean) ** 2 for x in row) / (len(row) - 1)
    return mean, math.sqrt(variance / len(row))
