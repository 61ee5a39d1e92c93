"""What a part and a road came to, judged from numbers; and whether the next part is worth its time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlhf_studio.jobs.road.own import Made, made_so_far
from rlhf_studio.jobs.road.plan import SMALL, RoadSettings, plan
from rlhf_studio.jobs.road.state import Comparison, OwnSettings, Part, Road, TrainingEnds
from rlhf_studio.jobs.road.verdict import held_up, part_verdict_of, verdict_of


def gold(first: float | None, last: float) -> TrainingEnds:
    return TrainingEnds("gold/score", first, last)


def wins(rate: float, low: float | None, high: float | None, same_origin: bool | None = None) -> Comparison:
    return Comparison("gold", rate, low, high, 8, same_origin=same_origin, judge="lexicon" if same_origin is not None else "")


def ended(*ppo: TrainingEnds | None, evaluation: Comparison | None = None) -> Road:
    road = Road(Path("/w/roads/r"), "a road", SMALL, plan(RoadSettings(rounds=len(ppo) or 1)))
    road = replace(road, parts=[replace(part, state="done") for part in road.parts])
    for key, course in zip(("ppo", "ppo-2"), ppo, strict=False):
        road = road.with_part(key, course=course)
    return road.with_part("evaluation", comparison=evaluation)


NOT_SURE = "The score shows no sure change yet (0.24 → 0.41), in 5 steps."
JUDGED = [
    (0.67, 0.55, 0.78, "The trained policy is better: it wins 67 % of comparisons with the fine-tuned one (55 % to 78 %)"),
    (0.67, 0.501, 0.78, "The trained policy is better: it wins 67 % of comparisons with the fine-tuned one (50 % to 78 %)"),
    (0.3, 0.17, 0.49, "The trained policy is worse: it wins 30 % of comparisons with the fine-tuned one (17 % to 49 %)"),
    (0.5, 0.17, 0.83, "No sure difference: the trained policy wins 50 % of comparisons with the fine-tuned one (17 % to 83 %)"),
    (0.7, 0.5, 0.83, "No sure difference: the trained policy wins 70 % of comparisons with the fine-tuned one (50 % to 83 %)"),
    (0.67, None, None, "Too few answers to tell: the trained policy wins 67 % of comparisons with the fine-tuned one"),
]


def test_better_only_where_the_whole_interval_says_so() -> None:
    for rate, low, high, sentence in JUDGED:
        assert verdict_of(ended(evaluation=wins(rate, low, high))) == f"{sentence}, by the gold score, on 8 prompts.", rate


def test_one_answer_to_all_prompts_is_told() -> None:
    for same, told in ((4, False), (5, True)):
        verdict = verdict_of(ended(evaluation=replace(wins(0.9, 0.7, 0.99), same_answer=same)))
        assert verdict.endswith("But it gives the same answer to 5 of 8 prompts: read the answers.") is told


def test_what_the_score_did_from_the_first_round_to_the_last() -> None:
    assert verdict_of(ended(gold(-0.93, -0.92))) == "With PPO the gold score rose from \u22120.93 to \u22120.92."
    assert verdict_of(ended(gold(0.5, 1.5), gold(1.4, 0.2))) == "With PPO the gold score fell from 0.50 to 0.20."
    assert verdict_of(ended(TrainingEnds("objective/scores", 0.5, 1.5), TrainingEnds("objective/scores", 1.5, 0.501))) == (
        "With PPO the score stayed at 0.50."
    )
    assert verdict_of(ended(gold(0.5, 1.5), TrainingEnds("objective/scores", 1.5, 2.5))) == ""  # two numbers, no course
    assert verdict_of(ended(gold(None, 0.5))) == verdict_of(ended(None)) == ""


def test_no_verdict_before_the_end() -> None:
    road = ended(gold(0.5, 1.5), evaluation=wins(0.67, 0.55, 0.78))
    assert verdict_of(road).endswith("on 8 prompts. With PPO the gold score rose from 0.50 to 1.50.")
    assert verdict_of(road.with_part("evaluation", state="running")) == ""
    unsure = TrainingEnds("objective/scores", 0.24, 0.41, 0, "cannot tell yet", 5)  # on own files the doctor has judged the score
    own = replace(road.with_part("ppo", course=unsure), settings=OwnSettings("m"))
    assert verdict_of(own).endswith("with the start (55 % to 78 %), by the gold score, on 8 prompts. " + NOT_SURE)


def test_the_judge_says_whether_it_is_of_the_rewards_own_origin() -> None:
    for same, words in ((True, "Judged by what PPO learned from (lexicon)"), (False, "(lexicon) is of another origin than the reward")):
        assert words in verdict_of(ended(evaluation=wins(0.67, 0.55, 0.78, same)))


LOSS, ACCURACY, SCORE = "sft/eval_loss", "reward_model/eval_accuracy", "objective/scores"
WORTH = [
    ("sft", TrainingEnds(LOSS, 2.0, 1.5, held_out=20), True, "The held-out loss fell by 25 %: 2.00 → 1.50, on 20 examples.", ""),
    ("sft", TrainingEnds(LOSS, 2.0, 2.1, rate=1e-3), False, "The held-out loss did not fall: 2.00 → 2.10.", "--sft.learning_rate 0.00033"),
    ("sft", TrainingEnds("sft/loss", 2.0, 1.0), False, "No demonstrations were held out", "--data.eval_share"),
    # Wilson's interval by hand: of 20, 15 right is 53 % to 89 %; 13 right is 43 % to 82 %
    ("reward_model", TrainingEnds(ACCURACY, 0.5, 0.75, 20), True, "75 % of 20 held-out pairs (53 % to 89 %).", ""),
    (
        "reward_model",
        TrainingEnds(ACCURACY, 0.5, 0.65, 20),
        False,
        "65 % of 20 held-out pairs (43 % to 82 %).",
        "About 50 held-out",
    ),
    ("reward_model", TrainingEnds(ACCURACY, 0.5, 0.4, 200), False, "40 % of 200 held-out pairs", "no better than guessing"),
    ("ppo", TrainingEnds(SCORE, 0.0, 3.0, kind="collapsed", rate=3e-4, usual=2e-5), False, "collapsed", "--ppo.learning_rate 2e-05"),
    ("ppo", TrainingEnds(SCORE, 0.0, 0.5, 0, "improved", 30), True, "PPO raised the score (0.00 → 0.50), in 30 steps.", ""),
    ("ppo", TrainingEnds(SCORE, 0.0, 0.0, kind="nothing learned"), True, "PPO did not raise the score (0.00 → 0.00), in 0 steps.", ""),
    ("ppo", None, False, "Nothing was measured", "more minutes"),
]


def test_a_part_is_worth_it_by_its_numbers() -> None:
    for key, course, worth, sentence, advice in WORTH:
        verdict = part_verdict_of(Part(key, key, "run", "done", course=course))
        assert verdict is not None and verdict.worth is worth, course
        assert sentence in verdict.sentence and advice in verdict.advice and bool(verdict.advice) is not worth, verdict


def test_a_road_on_own_files_stops_after_a_part_that_was_not_worth_it() -> None:
    parts = [
        Part("sft", "", "run", "done", course=TrainingEnds(LOSS, 2.0, 2.1)),
        Part("reward_model", "", "run", "skipped"),
        Part("ppo", "", "run"),
    ]
    road = Road(Path("/w/roads/r"), "", OwnSettings("m"), parts)
    assert held_up(road) == parts[0]
    assert held_up(replace(road, settings=OwnSettings("m", anyway=True))) is None
    assert held_up(replace(road, settings=RoadSettings())) is None
    assert held_up(road.with_part("sft", course=TrainingEnds(LOSS, 2.0, 1.9))) is None
    assert held_up(road.with_part("ppo", state="done", course=None)) is None  # nothing comes after it

    judge = Part("reward_model", "", "run", "done", run="rm", course=TrainingEnds(ACCURACY, 0.5, 0.4, 200))
    weak = replace(road, parts=[replace(parts[0], course=TrainingEnds(LOSS, 2.0, 1.9), run="sft"), judge, parts[2]])
    assert held_up(weak) == judge and made_so_far(weak, Path("/r")).reward_model == "/r/rm"
    given = replace(weak, settings=OwnSettings("m", reward={"kind": "lexicon"}))  # then it would only be the judge, and is not asked
    assert held_up(given) is None and made_so_far(given, Path("/r")) == Made("/r/sft")
