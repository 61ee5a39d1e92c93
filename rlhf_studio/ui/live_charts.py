"""Which charts, tiles and token quantities the Live page shows: data only, shared by the page's JavaScript and the tests.

A colour is a name (``score``), given as a CSS variable by ``assets/live/live.css`` in a light and a dark value. One metric has
one colour everywhere: :func:`colour_of` is the only place that knows it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from rlhf_studio.glossary import GLOSSARY

_COLOURS = {
    "objective/scores": "score",
    "gold/score": "gold",
    "objective/kl": "kl",
    "objective/kl_k3": "kl-soft",
    "objective/kl_coef": "coef",
    "loss/policy_avg": "policy",
    "loss/value_avg": "value",
    "policy/entropy_avg": "entropy",
    "policy/clipfrac_avg": "clip",
    "val/ratio": "ratio",
    "policy/approxkl_avg": "step",
    "val/explained_variance": "critic",
    "tokens/response_length": "length",
    "tokens/cut_off": "cut",
    "time/rollout": "phase-1",
    "time/score": "phase-2",
    "time/reference": "phase-3",
    "time/update": "phase-4",
    "time/record": "phase-5",
    "speed/tokens_per_second": "speed",
    "optim/grad_norm": "grad",
    "lr": "coef",
}


def colour_of(metric: str) -> str:
    """The colour name of a metric; reward components share ``part``."""
    return _COLOURS.get(metric, "part")


@dataclass(frozen=True)
class Line:
    """One series of a chart. ``axis`` is the y axis it belongs to; ``style`` how it is drawn."""

    metric: str
    axis: Literal["left", "right"] = "left"
    style: Literal["line", "soft", "stack"] = "line"
    percent: bool = False


@dataclass(frozen=True)
class Chart:
    """One small chart.

    Attributes:
        kind: ``lines`` over the chosen x axis, ``stack`` the same with stacked areas, ``path`` against ``x_metric``.
        left, right: units on the two y axes.
        extras: prefix of metrics that are added when a run has at least two of them (``reward/``).
        zero: which axes always show 0.
        alone: title while there is nothing for the right axis, e.g. without a gold scorer.
        least: the left axis is at least this high, in its own unit: smaller changes are rounding, not news.
        target: name of the setting that gives a dashed line on the left axis, shown when the run has that setting.
    """

    key: str
    title: str
    lines: tuple[Line, ...]
    left: str
    right: str = ""
    kind: Literal["lines", "stack", "path"] = "lines"
    x_metric: str = ""
    extras: str = ""
    zero: Literal["", "left", "right", "both"] = ""
    least: float = 0.0
    target: str = ""
    alone: str = ""


CHARTS = (
    Chart(
        "score", "Score and gold", (Line("objective/scores"), Line("gold/score", "right")), "score", "gold", extras="reward/", alone="Score"
    ),
    Chart(
        "kl",
        "KL and coefficient",
        (Line("objective/kl"), Line("objective/kl_k3", style="soft"), Line("objective/kl_coef", "right")),
        "nats",
        "β",
        zero="both",
        least=0.1,
        target="kl_target",
    ),
    Chart(
        "frontier",
        "Score and gold against KL",
        (Line("objective/scores"), Line("gold/score", "right")),
        "score",
        "gold",
        "path",
        "objective/kl",
        alone="Score against KL",
    ),
    Chart("loss", "Losses", (Line("loss/policy_avg"), Line("loss/value_avg", "right")), "policy", "value", zero="right"),
    Chart("entropy", "Entropy", (Line("policy/entropy_avg"),), "nats per token", least=0.05),
    Chart(
        "clip",
        "Clip fraction and ratio",
        (Line("policy/clipfrac_avg", percent=True), Line("val/ratio", "right")),
        "% of tokens",
        "ratio",
        zero="left",
        least=1.0,
    ),
    Chart("critic", "Explained variance", (Line("val/explained_variance"),), "share explained", least=0.1),
    Chart(
        "length",
        "Response length",
        (Line("tokens/response_length"), Line("tokens/cut_off", "right", percent=True)),
        "tokens",
        "% cut off",
        zero="both",
    ),
    Chart(
        "phases",
        "Time per phase",
        tuple(Line(f"time/{name}", style="stack") for name in ("rollout", "score", "reference", "update", "record")),
        "seconds",
        kind="stack",
        zero="left",
    ),
    Chart("speed", "Speed", (Line("speed/tokens_per_second"),), "tokens/s", zero="left"),
)


@dataclass(frozen=True)
class Tile:
    """One number of the tile row: the metric, how many digits, and whether it is shown as a percentage."""

    metric: str
    digits: int = 2
    percent: bool = False
    label: str = ""


TILES = (
    Tile("objective/scores"),
    Tile("gold/score"),
    Tile("objective/kl"),
    Tile("policy/entropy_avg"),
    Tile("policy/clipfrac_avg", 1, percent=True, label="Clipped"),
    Tile("val/explained_variance", label="Critic"),
    Tile("tokens/response_length", 1, label="Length"),
    Tile("speed/tokens_per_second", 0),
)


@dataclass(frozen=True)
class Quantity:
    """One way to colour the tokens.

    Attributes:
        scale: ``diverging`` around 0, ``sequential`` from 0, or ``flag`` for yes and no.
        noise: values up to this size are rounding errors of the forward pass, in the quantity's unit; they get no colour.
    """

    name: str
    label: str
    scale: Literal["diverging", "sequential", "flag"] = "diverging"
    noise: float = 1e-4


QUANTITIES = (
    Quantity("rewards", "Reward"),
    Quantity("kl", "KL"),
    Quantity("advantages", "Advantage"),
    Quantity("returns", "Return"),
    Quantity("values", "Value"),
    Quantity("log_ratio", "Log-ratio"),
    Quantity("entropy", "Entropy", "sequential"),
    Quantity("clipped", "Clipped", "flag"),
)


_SHOWN = {line.metric for chart in CHARTS for line in chart.lines} | {tile.metric for tile in TILES} | {"episode", "time/elapsed"}


def is_shown(metric: str) -> bool:
    """Whether the page draws this metric or needs it for an axis."""
    return metric in _SHOWN or metric.startswith("reward/")


def page_data() -> dict[str, Any]:
    """What the page asks for once, before the first poll: charts, tiles, quantities and the glossary."""
    charts = [{**asdict(chart), "lines": [{**asdict(line), "colour": colour_of(line.metric)} for line in chart.lines]} for chart in CHARTS]
    return {
        "charts": charts,
        "tiles": [{**asdict(tile), "colour": colour_of(tile.metric)} for tile in TILES],
        "quantities": [asdict(quantity) for quantity in QUANTITIES],
        "glossary": {name: asdict(entry) for name, entry in GLOSSARY.items()},
    }
