"""``train`` of the later trainer against TRL 1.12's own, which runs beside it on the same models, prompts and responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from rlhf_studio.engine.loop import generate as generate_module
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.trl import PPOv2Config, PPOv2Trainer
from rlhf_studio.trl.program.batches import prompts_of
from tests.engine.conftest import small_config, tracing
from tests.engine.test_trl_parity import our_trainer
from tests.engine.trl_run import TrlRun, _causal_lm, _critic, run_trl

pytest.importorskip("trl.experimental.ppo.ppo_trainer", reason="trl 1.12 is not installed")

OPTIONS: dict[str, Any] = {
    **{"per_device_train_batch_size": 8, "num_ppo_epochs": 4, "response_length": 6, "learning_rate": 3e-3, "adam_epsilon": 1e-5},
    **{"lr_scheduler_type": "linear", "kl_coef": 0.1, "kl_estimator": "k3", "temperature": 0.7, "num_sample_generations": 0},
    **{"gradient_checkpointing": False, "bf16": False, "use_cpu": True, "save_strategy": "no", "vf_coef": 0.3, "gamma": 0.9},
}
EQUAL = ("objective/kl", "objective/entropy", "objective/scores", "objective/non_score_reward", "objective/rlhf_reward", "loss/policy_avg")
EQUAL += ("loss/value_avg", "policy/approxkl_avg", "policy/clipfrac_avg", "policy/entropy_avg", "val/clipfrac_avg", "val/ratio", "lr")


def give(trainer: Any, theirs: TrlRun, patch: pytest.MonkeyPatch) -> None:
    """Let our trainer take the prompts and responses of TRL's batches, in place of drawing its own."""
    batches, models, given = iter(theirs.rollouts), trainer.trainer.models, list[TokenBatch]()
    sample = generate_module.sample_responses

    def next_batch(size: int) -> Any:
        batch = next(batches)
        prompts = prompts_of({"input_ids": batch["queries"]}, trainer.processing_class, models.pad_id)
        given.append(TokenBatch(prompts.ids, prompts.mask, batch["responses"], ~batch["padding_mask"]))
        return prompts

    def sample_responses(*arguments: Any, top_rows: int, **options: Any) -> Any:
        if not given:  # the check before training samples by itself
            return sample(*arguments, top_rows=top_rows, **options)
        return given[-1], models.forward_pass.run(models.policy, given[-1], top_rows, critic=models.policy)

    patch.setattr(trainer.trainer.prompts, "next_batch", next_batch)
    patch.setattr(generate_module, "sample_responses", sample_responses)


@pytest.mark.slow
def test_two_batches_give_the_numbers_and_weights_of_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    small_config(tmp_path)
    moved = our_trainer(tmp_path, critic={"kind": "separate", "start": "policy"}).models.policy  # away from the reference
    model, critic = _causal_lm(tmp_path, moved), _critic(tmp_path, moved)
    theirs = run_trl(tmp_path, moved, updates=2, **OPTIONS)
    with tracing(False):
        trainer = PPOv2Trainer(  # the names of release 0.11
            config=PPOv2Config(**OPTIONS, total_episodes=16, output_dir=str(tmp_path / "out")),
            processing_class=PreTrainedTokenizerFast.from_pretrained(tmp_path / "policy"),
            policy=model,
            ref_policy=AutoModelForCausalLM.from_pretrained(tmp_path / "policy", dtype=torch.float32),
            reward_model=AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward", dtype=torch.float32),
            value_model=critic,
            train_dataset=Dataset.from_dict({"input_ids": [[5, 6]] * 16}),
            run_dir=tmp_path / "run",
        )
    give(trainer, theirs, monkeypatch)
    trainer.train()
    trainer.close()
    assert len(trainer.state.log_history) == 2
    for ours, logged in zip(trainer.state.log_history, theirs.metrics, strict=True):
        assert {name: ours[name] for name in EQUAL} == pytest.approx({name: logged[name] for name in EQUAL}, rel=1e-5, abs=1e-5)
    for mine, expected in ((model.state_dict(), theirs.weights), (critic.state_dict(), theirs.critic)):
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
    status = RunReader(tmp_path / "run").status()
    assert (status.step, status.state) == (2, "finished")
