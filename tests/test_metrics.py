"""The table of metrics: each has one row, and a row is all that the Live page needs to show it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.config.metrics.metric import ChartLine, Metric, Tile
from rlhf_studio.config.metrics.stages import HEADLINES, STAGE_METRICS, SUMMARIES
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.ui.html import ASSETS
from rlhf_studio.ui.live.charts import page_data, shown_names


def test_every_metric_has_one_row_and_one_entry_in_the_glossary() -> None:
    names = Counter(metric.name for metric in METRICS)
    assert names.most_common(1)[0][1] == 1
    assert all(GLOSSARY[metric.name] == metric.term for metric in METRICS)


def test_no_colour_stands_for_two_quantities_of_a_stage() -> None:
    """Nor do two names that look the same. What the stages share, such as a held-out loss, looks the same in all of them."""
    styles = (ASSETS / "tokens.css").read_text(encoding="utf-8").split("\n.dark {", 1)
    for style in styles:
        looks = dict(re.findall(r"--q-([\w-]+): (#\w+);", style))
        for stage in ("ppo", "sft", "reward_model", "dpo"):
            drawn = {
                line["metric"]: line["colour"] for chart in page_data()["charts"] if stage in chart["stages"] for line in chart["lines"]
            }
            seen = Counter(looks[colour] for colour in drawn.values())
            assert len(drawn) >= 5 and seen.most_common(1)[0][1] == 1, (stage, drawn)
    shared: dict[str, set[str]] = {}
    for metric in STAGE_METRICS:
        if metric.lines:
            shared.setdefault(metric.name.split("/")[1], set()).add(metric.colour)
    assert len(shared["eval_loss"]) == 1 and all(len(colours) == 1 for colours in shared.values()), shared


def test_one_row_puts_a_metric_on_the_page() -> None:
    row = Metric(
        "policy/tail",
        "Tail",
        "nats",
        "How likely the rarest token is.",
        "Stays where it was.",
        usual=(1.0, 2.0),
        colour="ratio",
        lines=(ChartLine("entropy", axis="right", percent=True),),
        tile=Tile(digits=1, label="Tail"),
    )
    page = page_data([*METRICS, row])
    (entropy,) = [chart for chart in page["charts"] if chart["key"] == "entropy"]
    assert entropy["lines"][-1] == {"metric": "policy/tail", "axis": "right", "style": "line", "percent": True, "colour": "ratio"}
    assert page["tiles"][-1] == {"metric": "policy/tail", "digits": 1, "percent": False, "label": "Tail", "colour": "ratio"}
    assert page["glossary"]["policy/tail"] == {
        **{"title": "Tail", "unit": "nats", "meaning": "How likely the rarest token is.", "good": "Stays where it was."},
        **{"healthy_low": 1.0, "healthy_high": 2.0},
    }
    assert "policy/tail" in shown_names([*METRICS, row])  # so its values are sent


def test_a_metric_that_nothing_shows_is_not_sent() -> None:
    hidden = Metric("policy/hidden", "Hidden", "", "A number.", "Any.")
    assert shown_names([*METRICS, hidden]) == shown_names()
    assert {"episode", "time/elapsed", "objective/kl"} <= shown_names()  # the x axes


def test_a_tile_of_held_out_examples_says_so() -> None:
    """Else it would have the name of the chart's other line, which is of the batch, and another number."""
    labels = {tile["metric"]: tile["label"] or GLOSSARY[tile["metric"]].title for tile in page_data()["tiles"]}
    held_out = {name: label for name, label in labels.items() if "/eval_" in name}
    assert len(held_out) >= 7 and all(label.startswith("Held-out ") for label in held_out.values()), held_out
    assert not any(label.startswith("Held-out") for name, label in labels.items() if name not in held_out)


@pytest.mark.parametrize("stage", ["ppo", "sft", "reward_model", "dpo"])
def test_a_stage_has_two_main_charts_and_shows_its_own_metrics_alone(stage: str) -> None:
    charts = [chart for chart in page_data()["charts"] if stage in chart["stages"]]
    assert sum(chart["first"] for chart in charts) == 2
    prefixes = {"ppo": ("objective/", "gold/", "policy/", "val/", "loss/", "tokens/", "time/", "eval/"), "dpo": ("dpo/",), "sft": ("sft/",)}
    own = prefixes.get(stage, ("reward_model/",))
    drawn = {line["metric"] for chart in charts for line in chart["lines"]}
    assert all(name.startswith((*own, "speed/")) for name in drawn)


@pytest.mark.parametrize("stage", HEADLINES)
def test_the_headline_of_a_stage_and_the_numbers_of_its_summary_are_metrics(stage: str) -> None:
    names = {metric.name for metric in METRICS}
    assert {*HEADLINES[stage].names, *SUMMARIES[stage]} <= names
