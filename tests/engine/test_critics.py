"""A critic with a trunk of its own: where it starts, that it learns alone, and that it comes back from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, DistilBertConfig

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.loop.state import restore, training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.saving.checkpoint import load_state, restore_policy, save_checkpoint
from rlhf_studio.engine.types import position_ids
from tests.engine.conftest import play
from tests.engine.small_models import WORDS, save_policy, save_reward_model, save_tokenizer

pytestmark = pytest.mark.slow

SEPARATE = {"kind": "separate"}
LORA = {"enabled": True, "r": 4}


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_it_starts_as_the_reward_model(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """The value before each response token is the reward model's own score of the text so far; weight 2 doubles both."""
    reward = {"components": [{"kind": "reward_model", "model": str(tmp_path / "reward"), "weight": 2.0}]}
    rollout = play(make_trainer("llama", critic=SEPARATE, reward=reward))
    judge = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward").eval()
    for row in range(len(rollout.tokens)):
        prompt = rollout.tokens.prompt_ids[row][rollout.tokens.prompt_mask[row]]
        response = rollout.tokens.response_ids[row][rollout.tokens.mask[row]]
        for index in range(len(response)):
            with torch.no_grad():
                score = judge(torch.cat([prompt, response[:index]])[None]).logits[0, 0]
            assert float(rollout.values[row, index]) == pytest.approx(2 * float(score), abs=1e-4)


@pytest.mark.parametrize("start", ["policy", "model"])
def test_other_starts(make_trainer: Callable[..., Trainer], tmp_path: Path, start: str) -> None:
    save_policy(tmp_path / "other", seed=9)
    critic = {"kind": "separate", "start": start, "model": str(tmp_path / "other") if start == "model" else ""}
    trainer = make_trainer(critic=critic, lora=LORA, model={"value_head_init": "normal"})
    policy = trainer.models.policy
    assert policy.critic is not None
    expected = AutoModelForCausalLM.from_pretrained(tmp_path / ("other" if start == "model" else "policy")).base_model
    assert all(torch.equal(tensor, policy.critic.model.state_dict()[name]) for name, tensor in expected.state_dict().items())
    tokens = play(trainer).tokens
    ids, real = (torch.cat(parts, dim=1) for parts in ((tokens.prompt_ids, tokens.response_ids), (tokens.prompt_mask, tokens.mask)))
    with torch.no_grad():
        hidden = expected.eval()(input_ids=ids, attention_mask=real.long(), position_ids=position_ids(real)).last_hidden_state
        values = policy.logits_and_values(tokens)[1]
    first = tokens.prompt_ids.shape[1] - 1
    torch.testing.assert_close(values, policy.value_head(hidden[:, first:-1][tokens.mask])[:, 0], atol=1e-5, rtol=1e-5)


def test_policy_and_critic_share_no_gradient(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(critic={"kind": "separate", "start": "policy"})
    policy, rollout = trainer.models.policy, play(trainer)
    logits, values = policy.logits_and_values(rollout.tokens)
    values.sum().backward(retain_graph=True)
    assert not any(parameter.grad is not None for parameter in policy.model.parameters())
    policy.zero_grad(set_to_none=True)
    logits.sum().backward()
    assert not any(parameter.grad is not None for parameter in policy.critic_parameters())


def test_warm_up_moves_the_critic_alone(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(critic=SEPARATE, ppo={"critic_warmup_steps": 1, "critic_learning_rate": 1e-2})
    policy = trainer.models.policy
    assert policy.critic is not None
    before, critic = weights(policy.model), weights(policy.critic)
    trainer.step()
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.state_dict().items())
    moved = [name for name, tensor in policy.critic.state_dict().items() if not torch.equal(critic[name], tensor)]
    assert len(moved) > 10
    trainer.step()
    assert any(not torch.equal(before[name], tensor) for name, tensor in policy.model.state_dict().items())


def test_it_comes_back_from_a_checkpoint(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"critic": SEPARATE, "lora": LORA, "ppo": {"steps": 4, "learning_rate": 1e-2, "reference_ema": 0.3}}
    straight, resumed = (make_trainer(**settings) for _ in range(2))
    for _ in range(2):
        straight.step()
    (tmp_path / "run").mkdir()
    folder = save_checkpoint(tmp_path / "run", 2, straight.models.policy, straight.models.tokenizer, training_state(straight), 1)
    restore_policy(folder, resumed.models.policy)
    restore(resumed, load_state(folder, resumed.updater.optimizer))
    for _ in range(2):
        assert straight.step().metrics["objective/kl"] == resumed.step().metrics["objective/kl"]
    ours, theirs = resumed.models.policy.state_dict(), straight.models.policy.state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_starts_that_cannot_be(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="critic.start: there is no reward model among the rewards"):
        make_trainer(critic=SEPARATE, reward={"components": [{"kind": "length"}]})
    save_reward_model(tmp_path / "words", words=WORDS[::-1])
    with pytest.raises(ConfigError, match=r"critic.start: .*another vocabulary than the policy \(another id for 'w"):
        make_trainer(critic=SEPARATE, reward={"components": [{"kind": "reward_model", "model": str(tmp_path / "words")}]})
    encoder = DistilBertConfig(vocab_size=len(WORDS) + 2, dim=16, n_layers=1, n_heads=2, hidden_dim=16, num_labels=1, pad_token_id=0)
    AutoModelForSequenceClassification.from_config(encoder).save_pretrained(tmp_path / "encoder")
    save_tokenizer(tmp_path / "encoder")
    with pytest.raises(ConfigError, match="critic.start: .*reads texts in both directions"):
        make_trainer(critic=SEPARATE, reward={"components": [{"kind": "reward_model", "model": str(tmp_path / "encoder")}]})
