"""Runs of other stages side by side, and beside PPO: only what the stages have in common is compared."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.analysis.compare import compare
from rlhf_studio.runs.records import WatchRecord
from tests.runs.stage_helpers import write_stage_run

FALLING = [{"sft/loss": 3.0 - 0.1 * step, "optim/grad_norm": 1.0} for step in range(10)]


def with_held_out(last: float) -> list[dict[str, float]]:
    """Ten steps, with a held-out loss that ends at ``last``: measured at every second step, so that its noise is known."""
    return [row | ({"sft/eval_loss": 3.0 - (3.0 - last) * step / 9} if step % 2 else {}) for step, row in enumerate(FALLING)]


def answers(text: str) -> dict[int, list[WatchRecord]]:
    return {0: [WatchRecord(0, "The film was", " bad.", 0.0, None)], 10: [WatchRecord(0, "The film was", text, 0.0, None)]}


def test_the_lower_held_out_loss_wins(tmp_path: Path) -> None:
    readers = [
        write_stage_run(tmp_path, "sft", with_held_out(last), name=name, sft={"learning_rate": rate})
        for name, last, rate in (("slow", 2.5, 1e-4), ("fast", 1.5, 1e-3))
    ]
    comparison = compare(readers)
    assert comparison.verdict.startswith("“fast” reaches a held-out loss of 1.50 against 2.50 for “slow”. They differ in learning rate")
    assert [row.setting for row in comparison.settings] == ["sft.learning_rate"]
    assert comparison.runs[1].last["sft/eval_loss"] == 1.5 and comparison.runs[1].stage == "sft"


def test_losses_on_different_examples_are_not_compared(tmp_path: Path) -> None:
    readers = [write_stage_run(tmp_path, "sft", with_held_out(2.0), name=name, data={"source": name}) for name in ("a.jsonl", "b.jsonl")]
    verdict = compare(readers).verdict
    assert verdict.startswith("These runs were measured on different examples, so their held-out losses cannot be compared.")


def test_ppo_beside_dpo(tmp_path: Path) -> None:
    ppo = write_stage_run(
        tmp_path,
        "ppo",
        [{"objective/scores": 0.1 * step, "objective/kl": 1.0, "optim/grad_norm": 1.0} for step in range(10)],
        name="with a judge",
        watched=answers(" good."),
        engine={"seed": 1},
    )
    dpo = write_stage_run(
        tmp_path, "dpo", [{"dpo/loss": 0.6, "optim/grad_norm": 0.5}] * 10, name="without", watched=answers(" fine."), lora={"enabled": True}
    )
    comparison = compare([ppo, dpo])
    assert comparison.verdict.startswith("These runs are of different stages (PPO and DPO)")
    assert comparison.metrics == ["optim/grad_norm"]  # what both have recorded
    assert {row.setting for row in comparison.settings} >= {"lora.enabled", "engine.seed"}
    assert all(row.setting.split(".")[0] not in ("ppo", "dpo", "critic", "reward") for row in comparison.settings)
    (prompt,) = comparison.watched
    assert [answer and answer.response for answer in prompt.newest] == [" good.", " fine."]
    assert [run.stage for run in comparison.runs] == ["ppo", "dpo"] and [run.group for run in comparison.runs] == [0, 1]


def test_a_score_that_both_stages_have_decides(tmp_path: Path) -> None:
    ppo = write_stage_run(tmp_path, "ppo", [{"objective/scores": 1.0 + 0.001 * step} for step in range(20)], name="first")
    dpo = write_stage_run(tmp_path, "dpo", [{"objective/scores": 2.0 + 0.001 * step} for step in range(20)], name="second")
    assert compare([ppo, dpo]).verdict.startswith("“second” reaches a score of 2.02 against 1.02 for “first”")


def test_seeds_of_a_stage_are_one_group(tmp_path: Path) -> None:
    readers = [write_stage_run(tmp_path, "sft", with_held_out(2.0), name=f"seed {seed}", engine={"seed": seed}) for seed in (0, 1)]
    comparison = compare(readers)
    assert len(comparison.groups) == 1 and "2 seeds of the same settings end with a held-out loss of 2.00" in comparison.verdict
