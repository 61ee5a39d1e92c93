"""How far annotators agree, beyond what chance would give, and which way each of them leans.

The formulas are short and stand here, compared in the tests with published examples and with statsmodels and krippendorff: the one
library is large for three numbers, and the licence of the other does not allow us to depend on it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Level = Literal["nominal", "ordinal", "interval"]
Units = Sequence[Mapping[str, Hashable]]
"""What was judged: for each item, the answers by annotator. An item need not have an answer of everybody."""


def cohens_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Agreement of two annotators on the items that both answered: (p_o − p_e) / (1 − p_e).

    p_o is the share of equal answers, p_e the share that chance would give with each annotator's own frequencies. None without items, or
    where both gave one and the same answer throughout, so that chance explains everything.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales".
    """
    if not pairs:
        return None
    count = len(pairs)
    first, second = Counter(left for left, _ in pairs), Counter(right for _, right in pairs)
    observed = sum(left == right for left, right in pairs) / count
    expected = sum(first[answer] * second[answer] for answer in first) / count**2
    return None if math.isclose(expected, 1.0) else (observed - expected) / (1 - expected)


def fleiss_kappa(units: Units) -> tuple[float | None, int]:
    """(agreement of several annotators, items it was computed from): items with the number of answers that most items have, at least 2.

    κ = (P̄ − P̄_e) / (1 − P̄_e), with P̄ the mean over items of the share of agreeing pairs, and P̄_e = Σ_j p_j² with the share p_j of
    each answer. Who gave an answer does not matter. None where chance explains everything.

    Source: Fleiss 1971, "Measuring nominal scale agreement among many raters".
    """
    sizes = Counter(len(unit) for unit in units if len(unit) >= 2)
    if not sizes:
        return None, 0
    raters = max(sizes, key=lambda size: (sizes[size], size))
    rows = [Counter(unit.values()) for unit in units if len(unit) == raters]
    agreement = sum(sum(count * (count - 1) for count in row.values()) for row in rows) / (len(rows) * raters * (raters - 1))
    totals: Counter[Hashable] = Counter()
    for row in rows:
        totals += row
    expected = sum((count / (len(rows) * raters)) ** 2 for count in totals.values())
    return (None if math.isclose(expected, 1.0) else (agreement - expected) / (1 - expected)), len(rows)


def krippendorff_alpha(units: Units, level: Level = "nominal") -> float | None:
    """Agreement of any number of annotators with answers missing: α = 1 − D_o / D_e.

    D_o is the observed disagreement within items, D_e that of all answers whatever their item. The difference of two answers is 1 for
    ``nominal``; the squared difference for ``interval``; for ``ordinal`` the square of how many answers lie between them, half of their
    own ranks counted. Answers of the last two levels are numbers. None without an item of two answers, or where all answers are equal.

    Source: Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability".
    """
    paired = [list(unit.values()) for unit in units if len(unit) >= 2]
    answers = {answer for unit in paired for answer in unit}
    if len(answers) < 2:
        return None
    order = sorted(answers, key=repr) if level == "nominal" else sorted(answers, key=float)  # type: ignore[arg-type]
    column = {answer: index for index, answer in enumerate(order)}
    coincidences = np.zeros((len(order), len(order)))
    for unit in paired:
        counts = np.bincount([column[answer] for answer in unit], minlength=len(order)).astype(float)
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = coincidences.sum(axis=0)
    distance = _distance(order, totals, level)
    expected = (np.outer(totals, totals) - np.diag(totals)) / (totals.sum() - 1)
    return float(1 - (coincidences * distance).sum() / (expected * distance).sum())


def _distance(order: Sequence[Hashable], totals: np.ndarray, level: Level) -> np.ndarray:
    if level == "nominal":
        return 1.0 - np.eye(len(order))
    if level == "interval":
        values = np.array([float(answer) for answer in order])  # type: ignore[arg-type]
        return np.asarray((values[:, None] - values[None, :]) ** 2)
    middle = np.cumsum(totals) - totals / 2  # where each answer's ranks have their middle
    return np.asarray((middle[:, None] - middle[None, :]) ** 2)


@dataclass(frozen=True)
class Share:
    """A share, ``hits`` of ``count``, with its 95 % interval (Wilson); both are None where ``count`` is 0."""

    hits: int
    count: int

    @property
    def share(self) -> float | None:
        """The share itself."""
        return self.hits / self.count if self.count else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's interval: it stays within 0 and 1, and is not empty for shares of 0 and 1.

        Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
        """
        if not self.count:
            return None
        z, n, p = 1.959964, self.count, self.hits / self.count
        centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (centre - half) / (1 + z * z / n)), min(1.0, (centre + half) / (1 + z * z / n))

    @property
    def leans(self) -> bool:
        """Whether 0.5 lies outside of the interval, so that chance alone does not explain the share."""
        interval = self.interval
        return interval is not None and not interval[0] <= 0.5 <= interval[1]
