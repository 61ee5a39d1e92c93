"""How numbers of a stage began and ended, from hand-made runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.analysis.ends import first_and_last, summary_ends
from rlhf_studio.runs.records import EventRecord
from tests.runs.stage_helpers import write_stage_run


def rows(held: dict[int, float]) -> list[dict[str, float]]:
    """Twenty steps whose loss falls by 0.1; ``held`` is measured at some of them."""
    return [{"sft/loss": 3.0 - 0.1 * step, **({"sft/eval_loss": held[step]} if step in held else {})} for step in range(1, 21)]


def test_a_number_of_each_step_ends_with_the_mean_of_its_last_tenth_and_a_measurement_with_the_newest(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "sft", rows({5: 2.0, 10: 1.5, 15: 1.2}))
    found = first_and_last(reader, "sft", ["sft/loss", "sft/eval_loss", "sft/eval_perplexity"])
    assert found["sft/loss"] == pytest.approx((2.9, (1.1 + 1.0) / 2))
    assert found["sft/eval_loss"] == (2.0, 1.2) and found["sft/eval_perplexity"] == (None, None)


def test_what_was_measured_before_training_comes_first(tmp_path: Path) -> None:
    start = EventRecord("info", "start", "Before training: loss 7.", {"sft/eval_loss": 7.0})
    reader = write_stage_run(tmp_path, "sft", rows({10: 1.5}), events=[start])
    assert first_and_last(reader, "sft", ["sft/eval_loss"]) == {"sft/eval_loss": (7.0, 1.5)}


def test_it_can_be_asked_inside_a_snapshot(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "sft", rows({10: 1.5}))
    with reader.snapshot():
        found = summary_ends(reader, "sft")
        assert reader.status().step == 20
    assert found["sft/eval_loss"] == (1.5, 1.5)


def test_ppo_is_compared_as_before(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "ppo", [{"objective/scores": float(step)} for step in range(1, 21)])
    assert first_and_last(reader, "ppo", ["objective/scores"]) == reader.first_and_last(["objective/scores"]) != {}
