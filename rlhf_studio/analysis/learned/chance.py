"""Whether a share or a mean changed over the steps of a run by more than chance explains.

The test is a permutation test of the steps. If nothing was learned, the steps of a run are exchangeable: any order of them is as likely as
the one that was recorded. Responses of one step are not taken to be independent, since they share a policy and a batch of prompts; so the
step, not the response, is the unit.

For each row (a phrase's share by step, say) the statistic is the largest absolute correlation with three rising curves over the run: one
that rises early, one that rises steadily and one that rises late. The largest statistic of all rows under each of the permutations gives
the p-values, from the strongest row down (Westfall and Young 1993, *Resampling-Based Multiple Testing*, algorithm 4.1, "step-down
maxT"). Under exchangeable steps the chance of one or more wrong claims, over all rows together, is at most the level. The permutations
come from a fixed seed: the same records always give the same answer.

What it cannot tell: whether the policy or its prompts changed. Prompts in an order that means something (``data.shuffle`` off) can
make steps differ though nothing was learned.
"""

from __future__ import annotations

import numpy as np

LEVEL = 0.005
"""Chance of one or more wrong claims among all rows. Low, because a run that goes on is tested again and again."""
DRAWS = 999
CURVES = (1 / 3, 1.0, 3.0)
"""Powers of the share of the run that is over: early, steady, late."""
FEWEST_STEPS = 6
"""Fewer steps have so few orders (5 steps have 120) that no change can reach the level."""
STEPS_TO_TELL = 12
"""From here on a change that comes all at once, in the middle third of the steps, reaches the level. In fewer steps only one that goes on
from step to step can, so that nothing found says little."""


def p_values(values: np.ndarray, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Adjusted p-value of each row, shape (P,).

    Args:
        values: shape (P, S): a number for each of the S steps, in order; NaN where a step has none, which counts as the row's mean.
        draws: permutations beside the order that was recorded.
    """
    rows, steps = values.shape
    if rows == 0 or steps < FEWEST_STEPS:
        return np.ones(rows)
    standard = standardised(values)
    curves = standardised(np.stack([np.linspace(1 / steps, 1.0, steps) ** power for power in CURVES]))
    generator = np.random.default_rng(seed)
    orders = generator.permuted(np.tile(np.arange(steps), (draws, 1)), axis=1)
    observed = np.abs(standard @ curves.T).max(axis=1)
    drawn = np.zeros((rows, draws), np.float32)
    for curve in curves:
        np.maximum(drawn, np.abs(standard.astype(np.float32) @ curve[orders].T.astype(np.float32)), out=drawn)
    # From the weakest row up: the largest of a row and of all weaker ones.
    falling = np.argsort(-observed, kind="stable")
    largest = np.maximum.accumulate(drawn[falling[::-1]], axis=0)[::-1]
    reached = (largest >= observed[falling, None] - 1e-6).sum(axis=1)
    result = np.empty(rows)
    result[falling] = np.maximum.accumulate((1 + reached) / (1 + draws))
    return result


def standardised(values: np.ndarray) -> np.ndarray:
    """Rows with mean 0 and length 1; zeros for a row that never changes. NaN becomes the row's mean."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    means = filled.sum(axis=1, keepdims=True) / np.maximum(1, known.sum(axis=1, keepdims=True))
    centred = np.where(known, filled - means, 0.0)
    sizes = np.linalg.norm(centred, axis=1, keepdims=True)
    steady = sizes <= 1e-9 * np.maximum(1.0, np.abs(means))
    return np.where(steady, 0.0, centred / np.where(steady, 1.0, sizes))
