"""The policy, its value head and its reference, for adapters and for whole models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BloomConfig, Gemma2Config, GPTNeoConfig, OPTConfig, PretrainedConfig
from transformers.pytorch_utils import Conv1D

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.types import TokenBatch
from tests.engine.conftest import PROMPTS, play, small_config
from tests.engine.small_models import WORDS, save_policy, save_prompts, save_reward_model, save_tokenizer

FAMILIES = ["gpt2", "llama", "qwen2", "gpt_neox"]
LORA = {"enabled": True, "r": 4, "dropout": 0.3}


def adapted(trainer: Trainer) -> set[str]:
    """Names of the layers that carry an adapter."""
    names = (name for name, _ in trainer.models.policy.model.named_modules() if name.endswith(".lora_A"))
    return {name.removeprefix("base_model.model.").removesuffix(".lora_A") for name in names}


def logits_of(model: ResponseModel, batch: TokenBatch) -> Tensor:
    with torch.no_grad():
        return model(batch)[0].clone()


# --- adapters ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_auto_adapts_every_linear_layer_but_the_output(make_trainer: Callable[..., Trainer], family: str, tmp_path: Path) -> None:
    trainer = make_trainer(family, lora=LORA)
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    output = base.get_output_embeddings()
    linear = {name for name, module in base.named_modules() if isinstance(module, nn.Linear | Conv1D) and module is not output}
    assert adapted(trainer) == linear and linear
    trained = {name for name, parameter in trainer.models.policy.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name.startswith("value_head.") for name in trained)


def test_adapters_of_chosen_layers(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer("llama", lora={**LORA, "target_modules": " q_proj, down_proj ,"})
    assert {name.rsplit(".", 1)[-1] for name in adapted(trainer)} == {"q_proj", "down_proj"}


def test_an_adapter_on_the_output_layer_still_shows_hidden_states(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer("llama", lora={**LORA, "target_modules": "lm_head"})
    assert adapted(trainer) == {"lm_head"}
    assert trainer.step().metrics["policy/first_log_ratio"] < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_without_its_adapters_the_policy_is_the_base_model(make_trainer: Callable[..., Trainer], family: str, tmp_path: Path) -> None:
    """After training, bit for bit, against the files that the run started from."""
    trainer = make_trainer(family, lora=LORA)
    trainer.step()
    batch = play(trainer).tokens
    loaded = load_causal_lm(str(tmp_path / "policy"), "main", torch.float32, lambda text, fraction: None).model
    start = ResponseModel(loaded)
    start.enable_packing()
    base = logits_of(start, batch)
    with trainer.models.reference.active() as reference:
        assert torch.equal(logits_of(reference, batch), base)
    assert not torch.equal(logits_of(trainer.models.policy, batch), base)  # outside the block the adapters are back


def test_looking_at_the_reference_leaves_the_adapters_trainable(make_trainer: Callable[..., Trainer]) -> None:
    policy = (trainer := make_trainer(lora=LORA)).models.policy
    before = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    play(trainer)
    assert {name for name, parameter in policy.named_parameters() if parameter.requires_grad} == before


# --- reference ---------------------------------------------------------------------------------------------------------------


def test_the_reference_copy_is_frozen_and_shares_nothing(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    with trainer.models.reference.active() as reference:
        copies = list(reference.parameters())
    assert copies and not any(parameter.requires_grad for parameter in copies)
    assert not {p.data_ptr() for p in copies} & {p.data_ptr() for p in trainer.models.policy.parameters()}
    assert not any(module.training for module in reference.modules())


# --- value head --------------------------------------------------------------------------------------------------------------


def make_policy(folder: Path, init: str, seed: int = 0, **sizes: int) -> Policy:
    model = AutoModelForCausalLM.from_pretrained(save_policy(folder, "llama", **sizes))
    return Policy(model, make_value_head(model.config.hidden_size, init, seed))


def test_a_zero_head_predicts_zero(make_trainer: Callable[..., Trainer]) -> None:
    rollout = play(make_trainer())
    assert torch.equal(rollout.values, torch.zeros_like(rollout.values))


def test_a_normal_head_has_variance_one_over_its_inputs(tmp_path: Path) -> None:
    head = make_policy(tmp_path, "normal", width=512, layers=1).value_head
    assert float(head.weight.std()) == pytest.approx((512 + 1) ** -0.5, rel=0.12)  # four deviations of a sample of 512
    assert abs(float(head.weight.mean())) < 4 / 512
    assert torch.equal(head.bias, torch.zeros(1))


def test_the_head_depends_on_the_seed_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = make_policy(tmp_path, "normal", seed=3).value_head.weight
    torch.manual_seed(2)
    assert torch.equal(make_policy(tmp_path, "normal", seed=3).value_head.weight, first)
    assert not torch.equal(make_policy(tmp_path, "normal", seed=4).value_head.weight, first)


def test_values_are_float32_whatever_the_trunk(tmp_path: Path) -> None:
    """Under autocast a linear layer would round to bfloat16; the head does not."""
    policy = make_policy(tmp_path, "normal")
    hidden = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = policy.values(hidden)
    expected = (hidden.double() @ policy.value_head.weight.double().T).squeeze(-1)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_what_the_output_layer_reads(make_trainer: Callable[..., Trainer], family: str) -> None:
    trainer = make_trainer(family)
    batch = play(trainer).tokens
    with torch.no_grad():
        logits, hidden = trainer.models.policy(batch)
        rebuilt = trainer.models.policy.model.get_output_embeddings()(hidden)
    torch.testing.assert_close(rebuilt, logits, atol=1e-5, rtol=1e-5)
    assert len(logits) == len(hidden) == batch.mask.sum()


def test_a_detached_trunk_gets_no_gradient_from_the_values(make_trainer: Callable[..., Trainer]) -> None:
    policy = (trainer := make_trainer(model={"value_head_init": "normal"})).models.policy
    batch = play(trainer).tokens
    for detach in (True, False):
        policy.zero_grad(set_to_none=True)
        policy.logits_and_values(batch, detach_trunk=detach)[1].sum().backward()
        assert (policy.model.get_input_embeddings().weight.grad is None) == detach
        assert policy.value_head.weight.grad is not None


# --- families ----------------------------------------------------------------------------------------------------------------


def other_families() -> dict[str, PretrainedConfig]:
    ids: dict[str, Any] = {"vocab_size": len(WORDS) + 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    return {
        "bloom": BloomConfig(hidden_size=32, n_layer=2, n_head=4, **ids),  # no position ids at all: ALiBi
        "opt": OPTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, max_position_embeddings=64, **ids),
        "gpt_neo": GPTNeoConfig(
            hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], max_position_embeddings=64, **ids
        ),
        "gemma2": Gemma2Config(  # caps its logits after the output layer
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            max_position_embeddings=64, final_logit_softcapping=2.0, **ids
        ),
    }  # fmt: skip


@pytest.mark.parametrize("family", other_families())
def test_other_families_keep_the_invariants(make_trainer: Callable[..., Trainer], tmp_path: Path, family: str) -> None:
    """Log-probabilities equal an unpadded pass of the plain model, greedy sampling equals its arg max, the first ratio is 1."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(other_families()[family])
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    model.save_pretrained(tmp_path / "policy")
    save_tokenizer(tmp_path / "policy")
    save_reward_model(tmp_path / "reward")
    save_prompts(tmp_path / "prompts.txt", PROMPTS)
    assert small_config(tmp_path).model.policy == str(tmp_path / "policy")
    trainer = make_trainer(generation={"response_length": 5, "temperature": 1e-3})
    rollout = play(trainer)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "policy").eval()
    for row in range(len(rollout.tokens)):
        prompt = rollout.tokens.prompt_ids[row][rollout.tokens.prompt_mask[row]]
        response = rollout.tokens.response_ids[row][rollout.tokens.mask[row]]
        with torch.no_grad():
            logits = plain(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        best = logits.topk(2, dim=-1)
        clear = (best.values[:, 0] - best.values[:, 1]) > 0.02  # nearly equal logits may fall either way
        assert torch.equal(best.indices[:, 0][clear], response[clear])
        expected = (logits / 1e-3).log_softmax(dim=-1).gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs[row][: len(response)], expected, atol=2e-2, rtol=1e-3)
    assert make_trainer().step().metrics["policy/first_log_ratio"] <= 1e-4
