"""The ablations' rule against differences worked out by hand; the gallery's numbers, document and cards against the data."""

from __future__ import annotations

import pytest

from benchmarks.ablations.plan import ARMS, BASELINE, SEEDS, planned_runs
from benchmarks.ablations.results import difference, differences
from benchmarks.gallery import __main__ as command
from benchmarks.tiny_world import config_of
from rlhf_studio.config.io import parse_value, with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.language import LANGUAGES, speaking
from rlhf_studio.lessons.gallery import shelf
from rlhf_studio.lessons.gallery.ablations import ARGUMENTS
from rlhf_studio.ui.learn.gallery import learn_gallery
from tests.ui.train_helpers import VIEWER


def run_of(arm: str, seed: int, gold: float, fit: float = 0.5) -> dict[str, object]:
    return {
        "arm": arm,
        "seed": seed,
        "fresh": {"gold": gold, "kl": 6.0},
        "curves": {"value_fit": [0.0, *[fit] * 29], "clipped": [0.02] * 30},
    }


@pytest.mark.parametrize(
    ("pairs", "interval", "word"),
    [
        ((0.1, 0.12, 0.11), (0.0851586, 0.1348414), "differs"),  # standard deviation 0.01: 0.11 ± 4.302653 · 0.01 / √3
        ((-1.0, -2.0, -3.0), (-4.4841377, 0.4841377), "leans"),
        ((0.1, 0.2, -0.06), None, "no difference"),  # the signs differ
        ((0.04, 0.041, 0.042), None, "no difference"),  # certain, and too small to matter
        ((0.3, 0.4), None, "unfinished"),
    ],
)
def test_the_verdict_on_three_pairs(pairs: tuple[float, ...], interval: tuple[float, float] | None, word: str) -> None:
    said = difference("gold", pairs)
    assert said.word == word and said.mean == pytest.approx(sum(pairs) / len(pairs))
    assert interval is None or said.interval == pytest.approx(interval, abs=1e-6)


def test_a_run_is_compared_with_the_unchanged_run_of_its_seed() -> None:
    golds = {0: 0.5, 1: 0.7, 2: 0.3}
    runs = [run_of(BASELINE, seed, gold) for seed, gold in golds.items()]
    runs += [run_of("value-clipping", seed, gold + 0.1, fit=0.4) for seed, gold in golds.items()]
    found = differences([*runs, run_of("one-epoch", 2, 0.2)])
    assert [(one.outcome, one.word) for one in found["value-clipping"]] == [
        ("gold", "differs"),
        ("kl", "no difference"),
        ("value_fit", "differs"),
    ]
    assert found["value-clipping"][2].pairs == pytest.approx([-0.1] * 3)
    assert found["one-epoch"][0].pairs == pytest.approx([-0.1]) and set(found) == {"value-clipping", "one-epoch"}


def test_the_plan_changes_one_choice_at_a_time_in_ways_that_settings_allow() -> None:
    assert len(planned_runs()) == len({run.name for run in planned_runs()}) == len(ARMS) * len(SEEDS)
    usual = config_of({}).model_dump()
    for arm in ARMS:
        changed = config_of(arm.settings).model_dump()
        sections = {name for name in usual if usual[name] != changed[name]}
        assert sections == {name.split(".")[0] for name in arm.settings}, arm.name
    assert [arm for one in ARGUMENTS for arm, _ in one.arms] == [arm.name for arm in ARMS if arm.name != BASELINE]


def test_numbers_document_and_pictures_are_those_of_the_data() -> None:
    assert command.check() == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_card_is_there_in_each_language_and_says_when_it_is_not_finished(language: str) -> None:
    with speaking(language):
        cards = {card["name"]: card for card in learn_gallery({}, VIEWER)["cards"]}
        kept = shelf.numbers()
        kept = {**kept, "ablations": {**kept["ablations"], "made": 7}}
        partial = shelf.card("epochs", kept)
    begun = kept["ablations"]["arms"]
    without = {one.name for one in ARGUMENTS if not any(arm in begun for arm, _ in one.arms)}
    assert list(cards) == [name for name in shelf.NAMES if name not in without]
    assert all("{" not in card["answer"] + "".join(card["notes"]) for card in cards.values())
    assert partial is not None and "7" in partial.notes[0] and "30" in partial.notes[0]
    for started in (one for card in cards.values() for one in card["starts"]):
        values = {name: parse_value(name, text) for name, text in started["values"].items()}
        assert with_values(load_recipe(started["recipe"]).config, values)


def test_the_recorded_judge_is_fooled_and_the_healthy_run_is_not() -> None:
    fooled, healthy = shelf.numbers()["fooled"], shelf.numbers()["healthy"]
    assert fooled["score"][-1] > fooled["score"][0] and fooled["gold"][-1] < fooled["gold"][0] < max(fooled["gold"])
    assert healthy["score"][-1] > healthy["score"][0] and healthy["gold"][-1] > healthy["gold"][0]
