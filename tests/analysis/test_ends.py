"""How numbers of a stage began and ended, from hand-made runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.analysis.compare import sweep_table
from rlhf_studio.analysis.ends import HeadlineEnds, first_and_last, headline_ends
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.jobs.road.headlines import of_training
from rlhf_studio.jobs.road.outcomes import ends_of
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord
from tests.runs.stage_helpers import write_stage_run


def rows(held: dict[int, float]) -> list[dict[str, float]]:
    """Twenty steps whose loss falls by 0.1; ``held`` is measured at some of them."""
    return [{"sft/loss": 3.0 - 0.1 * step, **({"sft/eval_loss": held[step]} if step in held else {})} for step in range(1, 21)]


def test_a_number_of_each_step_ends_with_the_mean_of_its_last_tenth_and_a_measurement_with_the_newest(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "sft", rows({5: 2.0, 10: 1.5, 15: 1.2}))
    ends = first_and_last(reader, "sft", ["sft/loss", "sft/eval_loss", "sft/eval_perplexity"])
    assert ends["sft/loss"] == pytest.approx((2.9, (1.1 + 1.0) / 2))
    assert ends["sft/eval_loss"] == (2.0, 1.2) and ends["sft/eval_perplexity"] == (None, None)


def test_what_was_measured_before_training_comes_first(tmp_path: Path) -> None:
    start = EventRecord("info", "start", "Before training: loss 7.", {"sft/eval_loss": 7.0})
    reader = write_stage_run(tmp_path, "sft", rows({10: 1.5}), events=[start])
    assert first_and_last(reader, "sft", ["sft/eval_loss"]) == {"sft/eval_loss": (7.0, 1.5)}


def test_it_can_be_asked_inside_a_snapshot(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "sft", rows({10: 1.5}))
    with reader.snapshot():
        ends = first_and_last(reader, "sft", ["sft/eval_loss"])
        assert reader.status().step == 20
    assert ends["sft/eval_loss"] == (1.5, 1.5)


def test_ppo_is_compared_as_before(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "ppo", [{"objective/scores": float(step)} for step in range(1, 21)])
    assert first_and_last(reader, "ppo", ["objective/scores"]) == reader.first_and_last(["objective/scores"]) != {}


def headline_of(reader: RunReader) -> str:
    """As a part's card on the road says it."""
    return of_training(ends_of(reader))


def test_headline_report_sweep_and_road_tell_the_same_ends(tmp_path: Path) -> None:
    """Held-out accuracy at every fifth of 200 steps, 0.51 to 0.9: the newest measurement, not a mean of the last ones."""
    rows = [
        {"reward_model/accuracy": 0.4, **({"reward_model/eval_accuracy": 0.5 + step / 500} if step % 5 == 0 else {})}
        for step in range(1, 201)
    ]
    reader = write_stage_run(tmp_path, "reward_model", rows, reward_model={"learning_rate": 1e-4})
    other = write_stage_run(tmp_path, "reward_model", rows[:100], reward_model={"learning_rate": 1e-3})
    name = "reward_model/eval_accuracy"
    assert headline_ends(reader, "reward_model") == HeadlineEnds(name, 0.51, 0.9, falls=False, percent=True)
    assert [row[-2:] for row in story_of(reader).summary if row[0] == "Held-out accuracy"] == [(0.51, 0.9)]
    assert [[cell and cell.mean for cell in row] for row in sweep_table([reader, other], name).cells] == [[0.9], [0.7]]
    assert headline_of(reader) == "Held-out accuracy 51.0 % → 90.0 %."


def test_the_headline_of_ppo_is_gold_where_it_is_known(tmp_path: Path) -> None:
    scores = [{"objective/scores": float(step)} for step in range(1, 21)]
    assert headline_ends(write_stage_run(tmp_path, "ppo", scores), "ppo") == HeadlineEnds("objective/scores", 1.0, 19.5, False, False)
    with_gold = [{**row, "gold/score": row["objective/scores"] / 2} for row in scores]
    reader = write_stage_run(tmp_path, "ppo", with_gold)
    assert headline_ends(reader, "ppo") == HeadlineEnds("gold/score", 0.5, 9.75, False, False)
    assert headline_of(reader) == "Gold score 0.50 → 9.75." and headline_ends(reader, "evaluation") is None
    assert headline_of(write_stage_run(tmp_path, "ppo", [{"gold/score": -1.0}])) == "Gold score −1.00."
    assert headline_of(write_stage_run(tmp_path, "sft", [])) == headline_of(write_stage_run(tmp_path, "evaluation", [])) == ""
