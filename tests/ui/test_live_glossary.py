"""Every number has a name, a meaning and what good looks like; charts and tiles use no other names."""

from __future__ import annotations

import pytest

from rlhf_studio.config import STAGES
from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.config.metrics.stages import SUMMARIES
from rlhf_studio.language import speaking
from rlhf_studio.runs.records import TOKEN_QUANTITIES
from rlhf_studio.ui.form import describe_form
from rlhf_studio.ui.live import charts
from rlhf_studio.ui.live.page import about_settings


def test_every_quantity_of_a_token_has_an_entry():
    assert set(TOKEN_QUANTITIES) <= set(GLOSSARY)


def test_every_entry_explains_in_sentences_and_has_a_range_or_none():
    for name, entry in GLOSSARY.items():
        assert entry.title and entry.title[0].isupper() and len(entry.title) <= 26, name
        for sentence in [entry.meaning, *filter(None, [entry.good])]:  # of a unit no value is good
            assert sentence.endswith(".") and "!" not in sentence, name
        assert (entry.healthy_low is None) is (entry.healthy_high is None), name
        assert entry.healthy_low is None or entry.healthy_low < entry.healthy_high, name


def test_the_page_shows_only_what_is_explained():
    page = charts.page_data()
    used = {line["metric"] for chart in page["charts"] for line in chart["lines"]} | {tile["metric"] for tile in page["tiles"]}
    used |= {chart["x_metric"] for chart in page["charts"] if chart["x_metric"]} | {item["name"] for item in page["quantities"]}
    assert used <= set(GLOSSARY) and {name for names in SUMMARIES.values() for name in names} <= set(GLOSSARY)


def test_one_quantity_has_one_colour_everywhere():
    page = charts.page_data()
    colours: dict[str, str] = {}
    for item in [line for chart in page["charts"] for line in chart["lines"]] + page["tiles"]:
        assert colours.setdefault(item["metric"], item["colour"]) == item["colour"]


def test_the_inspector_of_ppo_has_the_eight_quantities_in_their_order():
    assert [item.label for item in charts.QUANTITIES if "ppo" in item.stages] == [
        "Reward",
        "KL",
        "Advantage",
        "Return",
        "Value",
        "Log-ratio",
        "Entropy",
        "Clipped",
    ]


@pytest.mark.parametrize("spoken", ["en", "zh"])
def test_settings_stand_under_the_titles_that_the_form_has(spoken: str) -> None:
    with speaking(spoken):
        form = {section["name"]: section["title"] for stage in STAGES for section in describe_form(stage=stage)["sections"]}
        assert about_settings()["sections"] == form
