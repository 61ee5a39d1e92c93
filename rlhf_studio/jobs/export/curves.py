"""Which curves of a run are drawn in its report and its model card, and where their points lie: the same for both kinds of pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.ends import PART, SCORE, parts_without_score
from rlhf_studio.config.glossary import glossary_of
from rlhf_studio.config.metrics.metric import Term
from rlhf_studio.language import _
from rlhf_studio.runs.values import LARGEST_FLOAT32

DRAWN = {
    "objective/scores": "#0f7b6c",
    "gold/score": "#a86400",
    "objective/kl": "#5b5bd6",
    "tokens/response_length": "#3a7ca5",
    "policy/entropy_avg": "#8e4ec6",
    "policy/clipfrac_avg": "#c2410c",
    "val/explained_variance": "#47734a",
    "loss/policy_avg": "#6b7f2a",
    "loss/value_avg": "#9a5b6f",
    "sft/loss": "#0f7b6c",
    "sft/eval_loss": "#a86400",
    "reward_model/loss": "#0f7b6c",
    "reward_model/eval_loss": "#a86400",
    "reward_model/eval_accuracy": "#5b5bd6",
    "dpo/loss": "#0f7b6c",
    "dpo/eval_loss": "#a86400",
    "dpo/eval_accuracy": "#5b5bd6",
    "dpo/margin": "#8e4ec6",
    "lr": "#6b7280",
}
"""Metric -> colour; all have at least 3 : 1 on white and on the report's dark ground."""

MOST_POINTS = 800


@dataclass(frozen=True)
class Curve:
    """One metric over the steps.

    Attributes:
        steps, values: shapes (N,), values may be NaN; at most :data:`MOST_POINTS` points.
        low, high: what the vertical axis shows.
        ticks: numbers on the vertical axis.
    """

    name: str
    title: str
    unit: str
    colour: str
    steps: np.ndarray
    values: np.ndarray
    low: float
    high: float
    ticks: list[float]

    def at(self, width: float, height: float) -> list[list[tuple[float, float]]]:
        """The points in a box, y from the top, as lines that are broken where a value is missing."""
        first, last = float(self.steps[0]), float(self.steps[-1])
        x = (self.steps - first) / max(last - first, 1.0) * width
        y = (self.high - self.values) / (self.high - self.low) * height
        lines: list[list[tuple[float, float]]] = [[]]
        for left, top in zip(x.tolist(), y.tolist(), strict=True):
            if math.isfinite(top):
                lines[-1].append((left, top))
            elif lines[-1]:
                lines.append([])
        return [line for line in lines if line]


def curves_of(series: dict[str, tuple[np.ndarray, np.ndarray]], unit: str = "tokens") -> list[Curve]:
    """The curves of metrics given as name -> (steps, values); what was not recorded, or never finite, is left out.

    ``unit`` is what lengths count.

    A value beyond float32 is a gap, as it is in the app's charts.
    """
    known = glossary_of(unit)
    curves = []
    parts = dict.fromkeys(parts_without_score(series), DRAWN[SCORE])
    for name, colour in (parts | DRAWN).items():
        steps, values = series.get(name, (np.zeros(0), np.zeros(0)))
        values = np.where(np.abs(values) <= LARGEST_FLOAT32, values, np.nan)
        if np.isfinite(values).any():
            steps, values = _thin(steps, values)
            low, high, ticks = axis(values[np.isfinite(values)])
            term = known.get(name, Term(name.removeprefix(PART), "points" if name in parts else "", "", ""))
            curves.append(Curve(name, _(term.title), _(term.unit), colour, steps, values, low, high, ticks))
    return curves


def _thin(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most :data:`MOST_POINTS` points that look the same: the lowest and the highest of each stretch, and the last."""
    if len(values) <= MOST_POINTS:
        return steps, values
    rows_to_draw = {len(values) - 1}
    for stretch in np.array_split(np.arange(len(values)), MOST_POINTS // 2 - 1):
        finite = stretch[np.isfinite(values[stretch])]
        if len(finite):
            rows_to_draw |= {int(finite[np.argmin(values[finite])]), int(finite[np.argmax(values[finite])])}
    rows = np.array(sorted(rows_to_draw))
    return steps[rows], values[rows]


def axis(values: np.ndarray) -> tuple[float, float, list[float]]:
    """(low, high, ticks) of an axis that holds all the values, with round numbers as ticks."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9 * max(1.0, abs(high)):
        room = 0.5 * max(abs(high), 1e-3)
        low, high = low - room, high + room
    rough = (high - low) / 4
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [round(index * step, 12) for index in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def tick_text(value: float, ticks: list[float]) -> str:
    """A tick's number with as many decimals as tell the ticks apart."""
    step = ticks[1] - ticks[0]
    if max(map(abs, ticks)) >= 1e6 or step < 1e-4:
        return f"{value:.1e}".replace("-", "\u2212", 1) if value < 0 else f"{value:.1e}"
    decimals = max(0, min(6, -math.floor(math.log10(step) + 1e-9) + (0 if float(f"{step:.0e}") == step else 1)))
    return f"{value:.{decimals}f}".replace("-", "\u2212")
