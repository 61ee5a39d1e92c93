"""What is often said, and is not so: nothing is missing, each saying leads to the scene that refutes it, and its two numbers differ."""

from __future__ import annotations

import pytest

from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.pages.often_said import SAYINGS, Saying
from tests.lessons.test_walk import links, scene_text

WANTED = {
    "three_squares",
    "powers",
    "shifted_logits",
    "two_old_ones",
    "one_backbone",
    "one_value",
    "smaller_loss",
    "turned_kl",
    "always_up",
    "outside",
    "without_min",
    "temperature_and_kl",
    "better_text",
    "whitening",
    "more_epochs",
}


def test_none_is_missing() -> None:
    assert {saying.name for saying in SAYINGS} >= WANTED
    assert len({saying.name for saying in SAYINGS}) == len(SAYINGS)


@pytest.mark.parametrize("saying", SAYINGS, ids=[saying.name for saying in SAYINGS])
def test_each_leads_to_its_scene_and_shows_two_numbers_that_differ(saying: Saying) -> None:
    for language in shelf.languages("often_said"):
        text = scene_text("often_said", language, saying.name)
        assert list(links(text.blocks)) == [f"lesson:{saying.lesson}#{saying.scene}"]
        assert text.slots
    scene = answers.find("often_said", saying.name)
    said, so = saying.compared(scene.compute({}, answers.needed_by(scene)))
    assert abs(said - so) > 0.2 * max(abs(said), abs(so)), f"{said} and {so} look the same"


def test_a_saying_that_were_so_would_break_its_claim() -> None:
    outside = next(saying for saying in SAYINGS if saying.name == "outside")
    assert outside.refuted({"outside": True, "gradient": 1.3, "advantage": -1.0, "ratio": 1.3})
    assert not outside.refuted({"outside": True, "gradient": 0.0, "advantage": -1.0, "ratio": 1.3})
    whitening = next(saying for saying in SAYINGS if saying.name == "whitening")
    assert not whitening.refuted({"below_before": 0, "turned": 0})
