"""The state of a run of another stage: from hand-made numbers, each with the verdict that follows from them by the rules."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.stages import stage_diagnosis
from tests.runs.stage_helpers import write_stage_run

NAN = math.nan


def rows(stage: str, losses: list[float], held: dict[int, float], **shares: dict[int, float]) -> list[dict[str, float]]:
    """One row of metrics per step; ``held`` and ``shares`` are measured at some steps only."""
    found = []
    for step, loss in enumerate(losses, 1):
        row = {f"{stage}/loss": loss}
        if step in held:
            row[f"{stage}/eval_loss"] = held[step]
        row |= {f"{stage}/{name}": values[step] for name, values in shares.items() if step in values}
        found.append(row)
    return found


FALLING = [3.0 - 0.1 * step for step in range(20)]


@pytest.mark.parametrize(
    ("state", "held", "kind", "since"),
    [
        ("finished", {1: 3.0, 10: 2.0, 20: 1.5}, "learned", 10),
        ("running", {1: 3.0, 10: 2.0, 20: 1.5}, "learning", 10),
        ("finished", {1: 3.0, 10: 2.99, 20: 2.9}, "learned", 20),  # 3.3 % lower; the first fall, 0.3 %, is not enough
        ("finished", {1: 3.0, 10: 2.0, 20: 2.2}, "overfits", 20),  # gave back a fifth of what it had gained
        ("finished", {1: 3.0, 8: 2.0, 14: 2.3, 20: 2.4}, "overfits", 14),
        ("finished", {1: 3.0, 10: 2.0, 20: 2.05}, "learned", 10),  # a twentieth: less than a tenth
        ("finished", {1: 3.0, 10: 2.98, 20: 2.96}, "nothing learned", 20),  # 1.3 % lower
        ("failed", {1: 3.0, 20: 2.0}, "learned", 20),
    ],
)
def test_held_out_examples_decide(tmp_path: Path, state: str, held: dict[int, float], kind: str, since: int) -> None:
    reader = write_stage_run(tmp_path, "sft", rows("sft", FALLING, held), state=state, sft={"max_steps": 20})
    found = stage_diagnosis(reader)
    assert (found.verdict.kind, found.verdict.since, found.step, found.findings) == (kind, since, 20, [])
    assert ("The run failed: it broke" in found.verdict.notes) == (state == "failed")


def test_a_run_whose_training_loss_rises_too_does_not_overfit(tmp_path: Path) -> None:
    losses = [*FALLING[:10], *(2.0 + 0.1 * step for step in range(10))]
    found = stage_diagnosis(write_stage_run(tmp_path, "sft", rows("sft", losses, {1: 3.0, 10: 2.0, 20: 2.4})))
    assert found.verdict.kind == "learned"  # 0.6 below its start still


def test_what_it_says_of_a_language_model(tmp_path: Path) -> None:
    held = {1: math.log(20.0), 10: math.log(8.0), 20: math.log(5.0)}
    verdict = stage_diagnosis(write_stage_run(tmp_path, "sft", rows("sft", FALLING, held))).verdict
    assert verdict.sentence == "Learned: held-out loss 3.00 → 1.61, perplexity 20.00 → 5.00."
    assert "3 held-out measurements, from step 1 to step 20: the loss fell by 1.39, and more than 0.060 counts." in verdict.reason


def test_what_it_says_when_it_overfits(tmp_path: Path) -> None:
    verdict = stage_diagnosis(write_stage_run(tmp_path, "sft", rows("sft", FALLING, {1: 3.0, 8: 2.0, 14: 2.3, 20: 2.4}))).verdict
    assert "lowest at step 8 (2.00) and has risen to 2.40 since" in verdict.sentence
    assert "The model of step 8 is the better one" in verdict.notes[0]


def test_a_reward_model_is_told_by_its_accuracy_too(tmp_path: Path) -> None:
    losses = [0.69 - 0.02 * step for step in range(20)]
    shares = {"accuracy": {step: 0.5 + 0.024 * step for step in range(1, 21)}, "eval_accuracy": {1: 0.5, 20: 0.76}}
    reader = write_stage_run(tmp_path, "reward_model", rows("reward_model", losses, {1: 0.693, 20: 0.52}, **shares))
    verdict = stage_diagnosis(reader).verdict
    assert verdict.sentence == "Learned: held-out log loss 0.69 → 0.52, accuracy 50.0 % → 76.0 % of the held-out pairs."
    # the last tenth of the training accuracies: (0.956 + 0.98) / 2
    assert verdict.notes == ["The accuracy on the training pairs is 96.8 %, on held-out pairs 76.0 %: pairs are being learned by heart."]


def test_dpo_that_makes_the_chosen_unlikely_is_told_so(tmp_path: Path) -> None:
    shares = {"chosen_reward": {step: -0.1 * step for step in range(1, 21)}}
    reader = write_stage_run(tmp_path, "dpo", rows("dpo", [0.7 - 0.02 * step for step in range(20)], {1: 0.69, 20: 0.5}, **shares))
    verdict = stage_diagnosis(reader).verdict
    assert verdict.kind == "learned" and "chosen reward −1.95" in verdict.notes[0]


def test_without_held_out_examples_the_training_loss_decides(tmp_path: Path) -> None:
    learned = stage_diagnosis(write_stage_run(tmp_path, "sft", rows("sft", FALLING, {}))).verdict
    assert learned.kind == "learned" and learned.notes == ["No examples are held out, so overfitting cannot be seen."]
    noise = [3.0 + (0.2 if step % 2 else -0.2) for step in range(20)]
    assert stage_diagnosis(write_stage_run(tmp_path, "sft", rows("sft", noise, {}))).verdict.kind == "nothing learned"


def test_too_early(tmp_path: Path) -> None:
    few = write_stage_run(tmp_path, "dpo", rows("dpo", [0.69, 0.6], {1: 0.69}), state="running")
    assert stage_diagnosis(few).verdict.kind == "too early"
    flat = write_stage_run(tmp_path, "sft", rows("sft", [3.0] * 10, {1: 3.0, 10: 3.0}), state="running", sft={"max_steps": 100})
    assert stage_diagnosis(flat).verdict.kind == "too early"  # less than half of it is over
    assert stage_diagnosis(write_stage_run(tmp_path, "sft", [], state="running")).verdict.kind == "too early"


def test_an_evaluation_learns_nothing_and_nobody_says_so(tmp_path: Path) -> None:
    assert stage_diagnosis(write_stage_run(tmp_path, "evaluation", [{"time/total": 1.0}])).verdict.kind == "evaluated"


def test_the_doctor_gives_no_verdict_of_ppo_on_another_stage(tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "sft", rows("sft", FALLING, {1: 3.0, 10: 2.0, 20: 1.5}))
    assert diagnose(reader) == stage_diagnosis(reader)
    assert diagnose(reader, until=10).verdict.sentence.startswith("Learning: held-out loss 3.00 → 2.00")
