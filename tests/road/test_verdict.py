"""What a road came to: judged from the numbers on its cards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlhf_studio.jobs.road.plan import SMALL, RoadSettings, is_small, plan
from rlhf_studio.jobs.road.state import Road
from rlhf_studio.jobs.road.verdict import verdict_of

WINS = "The last policy wins {} of comparisons with the first{}, by the gold score, on 8 prompts."
SAYS = " {} of comparisons with the fine-tuned one{}, by the gold score, on 8 prompts."


def ended(*ppo: str, evaluation: str = "") -> Road:
    road = Road(Path("/w/roads/r"), "a road", SMALL, plan(RoadSettings(rounds=len(ppo) or 1)))
    road = replace(road, parts=[replace(part, state="done") for part in road.parts])
    for key, headline in zip(("ppo", "ppo-2"), ppo, strict=False):
        road = road.with_part(key, headline=headline)
    return road.with_part("evaluation", headline=evaluation)


JUDGED = [
    ("67%", " (55% to 78%)", "The trained policy is better: it wins"),
    ("67 %", " (51 % to 78 %)", "The trained policy is better: it wins"),
    ("30%", " (17% to 49%)", "The trained policy is worse: it wins"),
    ("50%", " (17% to 83%)", "No sure difference: the trained policy wins"),
    ("70%", " (50% to 83%)", "No sure difference: the trained policy wins"),
    ("67%", "", "Too few answers to tell: the trained policy wins"),
]


def test_better_only_where_the_whole_interval_says_so() -> None:
    for rate, between, judged in JUDGED:
        assert verdict_of(ended(evaluation=WINS.format(rate, between))) == judged + SAYS.format(rate, between)


def test_what_the_score_did_from_the_first_round_to_the_last() -> None:
    assert verdict_of(ended("Gold score \u22120.93 → \u22120.92.")) == "With PPO the gold score rose from \u22120.93 to \u22120.92."
    assert verdict_of(ended("Gold score 0.50 → 1.50.", "Gold score 1.40 → 0.20.")) == "With PPO the gold score fell from 0.50 to 0.20."
    assert verdict_of(ended("Score 0.50 → 1.50.", "Score 1.50 → 0.50.")) == "With PPO the score stayed at 0.50."
    assert verdict_of(ended("Gold score 0.50 → 1.50.", "Score 1.50 → 2.50.")) == ""  # two numbers, no course
    assert verdict_of(ended("Gold score 0.50.")) == verdict_of(ended("")) == verdict_of(ended(evaluation="Something else.")) == ""


def test_no_verdict_before_the_end() -> None:
    road = ended("Gold score 0.50 → 1.50.", evaluation=WINS.format("67%", " (55% to 78%)"))
    assert verdict_of(road).endswith("on 8 prompts. With PPO the gold score rose from 0.50 to 1.50.")
    assert verdict_of(road.with_part("evaluation", state="running")) == ""


def test_a_small_road_is_one_by_its_lengths() -> None:
    assert is_small(replace(SMALL, rounds=3, seed=7)) and not is_small(replace(SMALL, pairs=201)) and not is_small(RoadSettings())
