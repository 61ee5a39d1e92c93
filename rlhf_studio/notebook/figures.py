"""The charts of the Live page as Plotly figures. Which charts there are, and what each draws, stands in ``ui/live/charts.py``.

Colours are those of ``ui/assets/tokens.css`` for light pages. Lines are drawn as they are, without the page's smoothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rlhf_studio.config.glossary import glossary
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.ui.live.charts import CHARTS, Chart

DataFrame = Any
"""A ``pandas.DataFrame``; pandas brings no types, and is imported where it is used."""
Axis = Literal["step", "episode", "time"]
AXES: dict[str, tuple[str, str, float]] = {
    "step": ("", "step", 1),
    "episode": ("episode", "episodes", 1),
    "time": ("time/elapsed", "minutes", 60),
}
"""What each x axis shows: the metric, its words, and what the metric is divided by."""
COLOURS = Path(__file__).parents[1] / "ui" / "assets" / "tokens.css"
FEW = 30
EXTRA_COLOURS = 4


class DrawnLine(NamedTuple):
    """One line of a chart, as in :class:`rlhf_studio.config.metrics.metric.ChartLine`."""

    metric: str
    axis: str
    style: str
    percent: bool
    colour: str


def charts_of(stage: str, metrics: DataFrame, unit: str = "tokens") -> list[Chart]:
    """The charts of a stage that have at least one line with numbers, in the page's order; ``unit`` is what lengths count."""
    return [chart.counting(unit) for chart in CHARTS if stage in chart.stages and lines_of(chart, metrics)]


def lines_of(chart: Chart, metrics: DataFrame) -> list[DrawnLine]:
    """The lines that have numbers; parts of the reward are added when there are at least two."""
    has = {name for name in metrics.columns if metrics[name].notna().any()}
    lines = [
        DrawnLine(metric.name, line.axis, line.style, line.percent, metric.colour)
        for metric in METRICS
        for line in metric.lines
        if line.chart == chart.key and metric.name in has
    ]
    extras = [name for name in metrics.columns if chart.extras and name.startswith(chart.extras) and name in has]
    if len(extras) < 2:
        return lines
    return lines + [DrawnLine(name, "left", "soft", False, f"part-{1 + row % EXTRA_COLOURS}") for row, name in enumerate(extras)]


def draw(chart: Chart, metrics: DataFrame, targets: Mapping[str, list[list[float]]], x: Axis, objects: Any, one_scale: bool = False) -> Any:
    """The figure. ``targets``: (first step, value) of each dashed line by the name of its setting; ``objects``: plotly.graph_objects;
    ``one_scale``: whether score and gold of the run share an axis (:class:`~rlhf_studio.analysis.replay.scale.OneScale`).

    Raises ValueError for an axis that there is not, and KeyError where the run has not recorded what it needs.
    """
    if x not in AXES:
        raise ValueError(f"x is {x!r}; it should be step, episode or time")
    figure = objects.Figure()
    lines = lines_of(chart, metrics)
    pair = any(line.axis == "right" for line in lines)
    if shared := bool(chart.shares and one_scale):
        lines = [line._replace(axis="left") for line in lines]
    across = _across(chart, metrics, x)
    for line in lines:
        figure.add_trace(_trace(chart, line, metrics, across, objects))
    for first, value in targets.get(chart.target, []) if chart.target else []:
        later = metrics.index >= first
        shown = objects.Scatter(x=across[later], y=[value] * int(later.sum()), name=f"target {value:g}", mode="lines")
        figure.add_trace(shown.update(line={"color": colours()["target"], "dash": "dash", "width": 1.2}))
    title = chart.title if pair or not chart.alone else chart.alone
    figure.update_layout(title=title, template="plotly_white", legend={"orientation": "h"}, margin={"t": 48, "b": 40, "l": 56, "r": 56})
    figure.update_xaxes(title="KL (nats)" if chart.kind == "path" else AXES[x][1])
    figure.update_yaxes(**_axis(chart, "left", lines, metrics))
    if shared and pair:
        figure.update_yaxes(title=chart.shares)
    elif pair:
        over = {"overlaying": "y", "side": "right", "showgrid": False}
        figure.update_layout(yaxis2=_axis(chart, "right", lines, metrics) | over)
    return figure


def _across(chart: Chart, metrics: DataFrame, x: Axis) -> Any:
    if chart.kind == "path":
        return metrics[chart.x_metric]
    name, words, divisor = AXES[x]
    if not name:
        return metrics.index
    if name not in metrics:
        raise KeyError(f"this run has not recorded {words}; use x='step'")
    return metrics[name] / divisor


def _trace(chart: Chart, line: DrawnLine, metrics: DataFrame, across: Any, objects: Any) -> Any:
    values = metrics[line.metric] * (100 if line.percent else 1)
    known = values.notna()
    if line.style == "sparse":
        across, values = across[known], values[known]
    sparse = line.style == "sparse" and 2 * known.sum() <= len(known)
    marked = sparse or chart.kind == "path" or len(values) <= FEW
    colour = colours()[line.colour]
    look = {"color": colour, "width": 1.6, "dash": "dot" if line.style in ("soft", "asked") else "solid"}
    look |= {"shape": "hv"} if line.style == "steps" else {}
    stack = {"stackgroup": "one", "fillcolor": colour} if line.style == "stack" else {}
    named = glossary().get(line.metric)
    name = named.title if named else line.metric
    return objects.Scatter(
        x=across, y=values, name=name, mode="lines+markers" if marked and not stack else "lines", line=look,
        yaxis="y2" if line.axis == "right" else "y", visible="legendonly" if line.style == "asked" else None, **stack,
    )  # fmt: skip


def _axis(chart: Chart, side: str, lines: list[DrawnLine], metrics: DataFrame) -> dict[str, Any]:
    """Title and range of a y axis: from 0 where the table says so, and never lower than ``least``."""
    from_zero = chart.zero in (side, "both")
    axis: dict[str, Any] = {"title": chart.left if side == "left" else chart.right, "rangemode": "tozero" if from_zero else "normal"}
    if side == "left" and chart.log:
        return axis | {"type": "log"}
    drawn = [metrics[line.metric].to_numpy() * (100 if line.percent else 1) for line in lines if line.axis == side]
    values = np.concatenate(drawn) if drawn else np.empty(0)
    values = values[np.isfinite(values)]
    if side == "left" and chart.least and len(values) and (spread := values.max() - values.min()) < chart.least:
        missing = (chart.least - spread) / (1 if from_zero else 2)
        axis["range"] = [min(0.0, values.min()) if from_zero else values.min() - missing, values.max() + missing]
    return axis


@cache
def colours() -> dict[str, str]:
    """The page's colours by name, for light pages: the first that the style sheet gives to each."""
    named: dict[str, str] = {}
    for name, value in re.findall(r"--q-([a-z0-9-]+):\s*([^;]+);", COLOURS.read_text(encoding="utf-8")):
        named.setdefault(name, value.strip())
    return named
