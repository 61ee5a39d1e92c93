"""A figure beside its limit, as the long measurements print it and keep it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Something that was measured. ``most`` is its limit; None for what is only told."""

    what: str
    value: float
    unit: str = ""
    most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the limit is kept; something that could not be measured keeps none."""
        return self.most is None or self.value <= self.most

    def line(self) -> str:
        """For people."""
        value = f"{self.value:,.3g}" if abs(self.value) < 1000 else f"{self.value:,.0f}"
        told = f"{self.what}: {value} {self.unit}".rstrip()
        if self.most is None:
            return told
        return f"{told}  (limit {self.most:g}: {'kept' if self.holds else 'BROKEN'})"

    def as_json(self) -> dict[str, Any]:
        """For a file; what is not finite becomes null."""
        return {**asdict(self), "value": self.value if math.isfinite(self.value) else None, "holds": self.holds}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; infinite without values, so that no limit is kept."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf
