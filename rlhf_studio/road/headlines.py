"""A run's most telling number, in words, for its card on the road."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.evaluation.answers import by_policy
from rlhf_studio.analysis.evaluation.compare import win_rate
from rlhf_studio.runs.reader import RunReader

LAST_TENTH = 10


def headline_of(reader: RunReader) -> str:
    """One short sentence from the run's metrics; empty when it has none. Raises StoreError."""
    stage = reader.status().stage
    if stage == "sft":
        return _last(reader, "sft/eval_perplexity", "Held-out perplexity {:.2f}.")
    if stage in ("reward_model", "dpo"):
        return _last(reader, f"{stage}/eval_accuracy", "Agrees with {:.1%} of held-out preferences.")
    if stage == "ppo":
        return _rise(reader, "gold/score", "Gold score") or _rise(reader, "objective/scores", "Score")
    return _wins(reader)


def _wins(reader: RunReader) -> str:
    """How often the last policy's answers are better than those of the first, by gold where there is one."""
    policies = list(by_policy(reader.answers()).values())
    if len(policies) < 2:
        return ""
    first, last = policies[0], policies[-1]
    measure = "gold" if "gold" in last.measures and np.isfinite(last.measures["gold"]).any() else "score"
    rate = win_rate(last, first, measure).rate
    if rate.value is None:
        return ""
    sure = "" if rate.low is None or rate.high is None else f" ({rate.low:.0%} to {rate.high:.0%})"
    return f"Better than the start in {rate.value:.0%} of comparisons{sure}, by {measure}."


def _last(reader: RunReader, name: str, words: str) -> str:
    values = _values(reader, name)
    return words.format(values[-1]) if len(values) else ""


def _rise(reader: RunReader, name: str, word: str) -> str:
    """From the first step to the mean of the last tenth."""
    values = _values(reader, name)
    return f"{word} {values[0]:.2f} → {values[-max(len(values) // LAST_TENTH, 1) :].mean():.2f}." if len(values) else ""


def _values(reader: RunReader, name: str) -> np.ndarray:
    values = reader.columns([name])[1][name]
    return values[np.isfinite(values)]
