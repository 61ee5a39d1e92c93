"""Which differences among several policies are more than chance explains, when all of them are looked at together.

Whoever picks the best of ten policies and compares nine others with it makes many comparisons, and the best one is partly the luckiest one.
So every pair of policies is tested, in every measure, and the largest statistic of all decides (max-t): the chance of one or more wrong
claims, over all pairs and measures together, is about :data:`LEVEL`, whichever pair is looked at afterwards.

The unit is the prompt. It is assumed that the differences of two equally good policies are symmetric: that a difference of +d on a prompt
is as likely as one of −d. Where one policy's scores are skewed and the others' are not, the share of wrong claims can be somewhat higher:
docs/evaluation.md has figures. Drawing one sign for each prompt, the same for all pairs and measures, therefore gives what chance can do,
and keeps how pairs and measures hang together. The statistic is |Σ d| / √(Σ d²) over the prompts' differences d, which orders draws as
Student's t does. Fewer than six prompts have so few signs that nothing reaches the level.

Sources: Romano and Wolf 2005, "Exact and Approximate Stepdown Methods for Multiple Hypothesis Testing"; Westfall and Young 1993,
*Resampling-Based Multiple Testing*.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

LEVEL = 0.05
"""Chance of one or more wrong claims among all pairs and measures, where differences are symmetric."""
DRAWS = 1999
COLUMNS = 512
"""Comparisons whose draws are held in memory at once."""


def p_values(tables: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    """For each measure the adjusted p-value of every pair of policies, shape (K, K), the same above and below the diagonal.

    Args:
        tables: by measure, each policy's mean on each prompt, shape (G, K); NaN where it has none. A pair is compared on the prompts that
            both have; one with fewer than two such prompts has the p-value 1.
    """
    first, second = np.triu_indices(next(iter(tables.values())).shape[1], 1)
    gaps = np.concatenate([table[:, first] - table[:, second] for table in tables.values()], axis=1)  # (G, pairs of all measures)
    compared = np.isfinite(gaps).sum(axis=0) >= 2
    gaps = np.where(np.isfinite(gaps) & compared, gaps, 0.0)
    gaps /= np.maximum(np.sqrt((gaps**2).sum(axis=0)), 1e-300)
    observed = np.abs(gaps.sum(axis=0))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (DRAWS, len(gaps)))
    largest = np.zeros(DRAWS)
    for start in range(0, gaps.shape[1], COLUMNS):
        largest = np.maximum(largest, np.abs(signs @ gaps[:, start : start + COLUMNS]).max(axis=1))
    reached = DRAWS - np.searchsorted(np.sort(largest), observed * (1 - 1e-9))
    adjusted = np.split(np.where(observed > 0, (1 + reached) / (1 + DRAWS), 1.0), len(tables))
    matrices = {name: np.ones((table.shape[1], table.shape[1])) for name, table in tables.items()}
    for matrix, values in zip(matrices.values(), adjusted, strict=True):
        matrix[first, second] = matrix[second, first] = values
    return matrices
