"""How the learning rate changes over a run."""

from __future__ import annotations

import math


def learning_rate_factor(step: int, steps: int, warmup_steps: int, schedule: str) -> float:
    """Share of the full learning rate at ``step``, counted from 0: linear warm-up, then the schedule over the rest of ``steps``.

    Args:
        schedule: "constant"; "linear", which falls to 0; or "cosine", which falls to 0 along half a cosine wave.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if schedule == "constant":
        return 1.0
    progress = min(max((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0), 1.0)
    return 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
