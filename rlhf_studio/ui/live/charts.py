"""Which charts, tiles and token quantities the Live page shows: data only, shared by the page's JavaScript and the tests.

A metric says by itself which charts and which tile show it, and in which colour (:mod:`rlhf_studio.config.metrics`); this file says which
charts there are. A colour is a name (``score``), which ``assets/tokens.css`` defines as ``--q-score``, for light and for dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rlhf_studio.analysis import token_card
from rlhf_studio.config import Stage
from rlhf_studio.config.glossary import IN_WORDS, explained, glossary
from rlhf_studio.config.metrics.metric import Metric
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import shown

EVERY_STAGE: tuple[Stage, ...] = ("ppo", "sft", "reward_model", "dpo", "evaluation")


@dataclass(frozen=True)
class Chart:
    """One small chart. The metrics whose lines name its ``key`` are drawn in it, in the order of the table of metrics.

    Attributes:
        left, right: units on the two y axes.
        kind: ``lines`` over the chosen x axis, ``stack`` the same with stacked areas, ``path`` against ``x_metric``.
        extras: prefix of metrics that are added when a run has at least two of them (``reward/``), or one in others' records.
        zero: which axes always show 0.
        alone: title while there is nothing for the right axis, e.g. without a gold scorer.
        shares: unit of the one axis of both sides, where the run's score and gold are numbers of one scale.
        least: the left axis is at least this high, in its own unit: smaller changes are rounding, not news.
        log: the left axis is logarithmic: the first values are many times the last ones.
        target: name of the setting that gives a dashed line on the left axis, shown when the run has that setting.
        stages: the stages of a run that have it.
        first: it is one of the two curves that matter most in its stage: they stand beside the answers.
    """

    key: str
    title: str
    left: str
    right: str = ""
    kind: Literal["lines", "stack", "path"] = "lines"
    x_metric: str = ""
    extras: str = ""
    zero: Literal["", "left", "right", "both"] = ""
    least: float = 0.0
    log: bool = False
    target: str = ""
    alone: str = ""
    shares: str = ""
    stages: tuple[Stage, ...] = ("ppo",)
    first: bool = False

    def counting(self, unit: str) -> Chart:
        """The same chart of a run whose lengths count ``unit``."""
        return replace(self, left=unit) if self.key == "length" else self


CHARTS = (
    Chart("score", "Score and gold", "score, points", "gold, points", extras="reward/", alone="Score", shares="points", first=True),
    Chart(
        "kl",
        "KL and coefficient",
        "nats per response",
        "β: points paid per nat",
        zero="both",
        least=0.1,
        target="kl_target",
        first=True,
    ),
    Chart(
        "frontier",
        "Score and gold against KL",
        "score, points",
        "gold, points",
        kind="path",
        x_metric="objective/kl",
        alone="Score against KL",
        shares="points",
    ),
    Chart("loss", "Losses", "policy loss", "value loss, points²", zero="right", alone="Policy loss"),
    Chart("entropy", "Entropy", "nats per token", least=0.05),
    Chart("clip", "Clipped tokens and ratio", "% of tokens", "ratio, new to old", zero="left", least=1.0),
    Chart("critic", "Value fit (explained variance)", "share of the variance", least=0.1),
    Chart("length", "Response length", "tokens", "% of responses cut off", zero="both"),
    Chart("sft-loss", "Loss and held-out loss", "nats per token", stages=("sft",), first=True),
    Chart("perplexity", "Perplexity", "perplexity, log scale", log=True, stages=("sft",), first=True),
    Chart("accuracy", "Accuracy on pairs", "% of pairs", stages=("reward_model",), first=True),
    Chart("pair-loss", "Log loss", "nats per pair", stages=("reward_model",), first=True),
    Chart("margin", "Margin", "points", zero="left", stages=("reward_model",)),
    Chart("chosen-rejected", "Scores of chosen and rejected", "points", stages=("reward_model",)),
    Chart("dpo-loss", "Loss and held-out loss", "nats per pair", stages=("dpo",), first=True),
    Chart("dpo-rewards", "Rewards of chosen and rejected", "points", zero="left", stages=("dpo",), first=True),
    Chart("dpo-accuracy", "Accuracy on pairs", "% of pairs", stages=("dpo",)),
    Chart("dpo-margin", "Reward margin", "points", zero="left", stages=("dpo",)),
    Chart("phases", "Time per phase", "seconds", kind="stack", zero="left"),
    Chart("speed", "Speed", "tokens/s", zero="left", stages=EVERY_STAGE),
)


@dataclass(frozen=True)
class Quantity:
    """One way to colour the tokens.

    Attributes:
        scale: ``diverging`` around 0, ``sequential`` from 0, or ``flag`` for yes and no.
        noise: values up to this size are rounding errors of the forward pass, in the quantity's unit; they get no colour.
        centred: the middle of the scale is the mean over the step's tokens, not 0.
        stages: the stages whose runs may record it.
    """

    name: str
    label: str
    scale: Literal["diverging", "sequential", "flag"] = "diverging"
    noise: float = 1e-4
    centred: bool = False
    stages: tuple[Stage, ...] = ("ppo",)


QUANTITIES = (
    Quantity("loss", "Loss", "sequential", stages=("sft", "dpo")),
    Quantity("rewards", "Reward"),
    Quantity("kl", "KL", stages=("ppo", "dpo")),
    Quantity("advantages", "Advantage"),
    Quantity("returns", "Return"),
    Quantity("values", "Value", centred=True),
    Quantity("log_ratio", "Log-ratio"),
    Quantity("entropy", "Entropy", "sequential", stages=("ppo", "sft", "dpo")),
    Quantity("clipped", "Clipped", "flag"),
)


ON_AXES = {"episode", "time/elapsed"}
"""The metrics that the x axes need, besides the step."""


def shown_names(metrics: Iterable[Metric] = METRICS) -> set[str]:
    """The metrics that the page draws, or needs for an axis."""
    return (
        {metric.name for metric in metrics if metric.lines or metric.tile}
        | {chart.x_metric for chart in CHARTS if chart.x_metric}
        | ON_AXES
    )


_SHOWN = shown_names()


def is_shown(metric: str) -> bool:
    """Whether the page draws this metric or needs it for an axis."""
    return metric in _SHOWN or metric.startswith("reward/")


def page_data(metrics: Sequence[Metric] = METRICS) -> dict[str, Any]:
    """What the page asks for once, before the first poll: charts, tiles, quantities and the glossary."""
    return {
        "charts": [{**shown(asdict(chart), ("title", "alone")), "lines": _lines(chart.key, metrics)} for chart in CHARTS],
        "tiles": [
            {"metric": metric.name, **shown(asdict(metric.tile), ("label",)), "colour": metric.colour} for metric in metrics if metric.tile
        ],
        "quantities": [shown(asdict(quantity), ("label",)) for quantity in QUANTITIES],
        "card": token_card.described(),
        "glossary": explained(glossary(metrics)),
        "in_words": explained(IN_WORDS),
    }


def _lines(chart: str, metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """The lines of one chart as the page's JavaScript takes them."""
    drawn = [(metric, line) for metric in metrics for line in metric.lines if line.chart == chart]
    return [
        {"metric": metric.name, "axis": line.axis, "style": line.style, "percent": line.percent, "colour": metric.colour}
        for metric, line in drawn
    ]
