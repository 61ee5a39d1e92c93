"""Runs whose advantages need no critic: what they compute, that no critic is built or paid for, and that they go on as other runs do."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.records import CRITIC_QUANTITIES, TOKEN_QUANTITIES
from tests.engine.test_checkpoint import everything, metrics, resume, save

pytestmark = pytest.mark.slow

GROUP = 4
RLOO = {"advantage": "rloo", "responses_per_prompt": GROUP}
GRPO = {"advantage": "grpo", "responses_per_prompt": GROUP, "kl_placement": "loss", "kl_estimator": "k3"}
DR_GRPO = {**GRPO, "advantage": "dr_grpo", "loss_average": "constant"}
REINFORCE = {"advantage": "reinforce", "responses_per_prompt": GROUP}
ALL = pytest.mark.parametrize("ppo", [RLOO, GRPO, DR_GRPO, REINFORCE], ids=["rloo", "grpo", "dr_grpo", "reinforce"])
LORA = {"enabled": True, "r": 4}
OF_A_CRITIC = {"val/explained_variance", "val/returns_mean", "val/values_mean", "val/clipfrac_avg", "loss/value_avg"}


@ALL
def test_advantages_by_hand(make_trainer: Callable[..., Trainer], ppo: dict[str, Any]) -> None:
    """From what is recorded of a second step, when the KL is no longer 0: scores, log-probabilities and β alone."""
    trainer = make_trainer(ppo={**ppo, "kl_coef": 0.3}, engine={"record_samples": 8})
    trainer.step()
    records = trainer.step().rollouts
    assert [record.prompt for record in records] == [records[0].prompt] * GROUP + [records[GROUP].prompt] * GROUP
    all_earned = [one.score - 0.3 * float((one.tokens.arrays["logprobs"] - one.tokens.arrays["ref_logprobs"]).sum()) for one in records]
    for first in (0, GROUP):
        group = records[first : first + GROUP]
        kl = [sum(float(x) for x in one.tokens.arrays["logprobs"] - one.tokens.arrays["ref_logprobs"]) for one in group]
        assert any(abs(x) > 1e-3 for x in kl)
        for index, record in enumerate(group):
            earned, scores = [one.score - 0.3 * x for one, x in zip(group, kl, strict=True)], [one.score for one in group]
            expected = {
                "rloo": earned[index] - fmean(earned[:index] + earned[index + 1 :]),
                "grpo": (scores[index] - fmean(scores)) / (stdev(scores) + 1e-4),
                "dr_grpo": scores[index] - fmean(scores),
                "reinforce": earned[index] - fmean(all_earned),
            }[ppo["advantage"]]
            for name in ("advantages", "whitened_advantages"):
                assert record.tokens.arrays[name].tolist() == pytest.approx([expected] * record.length, abs=1e-5)


@pytest.mark.parametrize(("ppo", "lora"), [(RLOO, {}), (GRPO, LORA)], ids=["rloo", "grpo"])
def test_no_critic_is_built_computed_or_saved(
    make_trainer: Callable[..., Trainer], tmp_path: Path, ppo: dict[str, Any], lora: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_critic = make_trainer().step()
    assert with_a_critic.metrics.keys() >= OF_A_CRITIC and set(with_a_critic.rollouts[0].tokens.arrays) == set(TOKEN_QUANTITIES)
    trainer = make_trainer(ppo=ppo, lora=lora, engine={"watch_prompts": 2})
    assert check_parity(trainer.models, trainer.prompts).largest < 1e-4
    policy = trainer.models.policy
    assert (policy.value_head, policy.critic, policy.critic_parameters()) == (None, None, [])
    assert len(trainer.updater.optimizer.param_groups) == 1
    monkeypatch.setattr(Policy, "values", lambda *_: pytest.fail("a value was computed"))
    record = trainer.step()
    assert not OF_A_CRITIC & record.metrics.keys() and all(math.isfinite(value) for value in record.metrics.values())
    for rollout in record.rollouts:
        assert set(rollout.tokens.arrays) == set(TOKEN_QUANTITIES) - set(CRITIC_QUANTITIES)
        assert math.isnan(rollout.tokens.gamma) and math.isnan(rollout.tokens.lam)
    assert record.episodes is not None and "values" not in record.episodes.tokens
    assert record.watched and all("values" not in answer.arrays for answer in record.watched)
    folder = save(trainer, tmp_path / "run")
    assert not (folder / "value_head.safetensors").exists() and not (folder / "critic").exists()


def test_a_step_that_waits_shows_what_it_has(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo=RLOO)
    actual: dict[str, set[str]] = {}

    def look(phase: str, so_far: StepSoFar) -> None:
        actual[phase] = set(trainer.recorded_so_far(phase, so_far)[0].tokens.arrays)

    trainer.after_phase = look
    trainer.step()
    assert actual["rollout"] == actual["score"] == {"logprobs", "entropy"}
    assert actual["reference"] == actual["rollout"] | {"ref_logprobs", "kl"}
    assert actual["advantages"] == actual["reference"] | {"rewards", "advantages", "whitened_advantages"}
    assert actual["update"] == set(TOKEN_QUANTITIES) - set(CRITIC_QUANTITIES)


@pytest.mark.parametrize(
    ("ppo", "lora"), [pytest.param(RLOO, {}, marks=pytest.mark.long), (GRPO, {**LORA, "dropout": 0.3})], ids=["rloo", "grpo"]
)
def test_resume_is_exact(make_trainer: Callable[..., Trainer], tmp_path: Path, ppo: dict[str, Any], lora: dict[str, Any]) -> None:
    settings = {"lora": lora, "ppo": {**ppo, "steps": 4, "mini_batch_size": 2, "kl_controller": "adaptive", "kl_horizon": 20}}
    whole = make_trainer(**settings)
    metrics(whole)
    folder = save(whole, tmp_path / "run")
    rows = [metrics(whole) for _ in range(3)]
    resumed = make_trainer(**settings)
    assert resume(resumed, folder) == []
    assert [metrics(resumed) for _ in range(3)] == rows
    expected, actual = everything(whole), everything(resumed)
    assert expected.keys() == actual.keys() and all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
    assert not any("value_head" in name for name in expected)


def test_a_checkpoint_without_a_critic_is_none_for_a_run_with_one(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    folder = save(make_trainer(ppo=RLOO), tmp_path / "run")
    with pytest.raises(CheckpointError, match="value_head"):
        resume(make_trainer(), folder)


def test_settings_change_while_the_run_goes_on(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={**RLOO, "lr_schedule": "constant"})
    trainer.step()
    trainer.use({"ppo.learning_rate": 5e-4, "ppo.kl_coef": 0.7, "generation.temperature": 0.8})
    row = trainer.step().metrics
    assert (row["objective/kl_coef"], row["lr"]) == (0.7, 5e-4)


def test_half_precision_reads_the_responses_again(make_trainer: Callable[..., Trainer]) -> None:
    """There the log-probabilities of the update come from a pass of their own, which gives the values too where there are some."""
    record = make_trainer("llama", ppo=GRPO, lora=LORA, model={"dtype": "bfloat16"}).step()
    assert not OF_A_CRITIC & record.metrics.keys() and abs(record.metrics["policy/first_log_ratio"]) < 1e-2
    assert record.episodes is not None and "values" not in record.episodes.tokens
