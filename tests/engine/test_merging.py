"""Which adapters are added into the weights while sampling, and that the parity check fails where one is lost or not switched off.

The independent answer is plain peft: the saved adapter on the model that transformers loads, nothing merged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.lora.layer import Embedding, Linear
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from rlhf_studio.config import LoraConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora, save_model
from rlhf_studio.engine.models.merging import can_merge, merged_adapters, merged_for_good
from rlhf_studio.engine.parity import check as parity_check
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.parity.tolerance import ParityError
from tests.engine.conftest import play
from tests.engine.small_models import save_policy

Make = Callable[..., Trainer]
IDS = torch.tensor([[2, 3, 4, 5, 6, 7, 8, 9]])
EMBEDDINGS = {"llama": "q_proj,embed_tokens", "gpt_neox": "query_key_value,embed_in"}


@pytest.fixture
def make(make_trainer: Make, tmp_path: Path) -> Make:
    """A trainer of adapters on matrices and on embeddings, and of weights so wide that the order of the words matters."""

    def built(family: str = "llama", lora: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Trainer:
        folder = save_policy(tmp_path / f"wide {family}", family, spread=0.2)
        settings = {"enabled": True, "r": 4, "target_modules": EMBEDDINGS.get(family, "auto"), **(lora or {})}
        return make_trainer("gpt2", **{**changes, "model": {"policy": str(folder), **changes.get("model", {})}, "lora": settings})

    return built


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.models.policy.named_parameters()}


def assert_untouched(trainer: Trainer, before: dict[str, Tensor], random: Tensor) -> None:
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.models.policy.named_parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_adapters_on_embeddings_train_on_their_own_log_probabilities(make: Make, tmp_path: Path) -> None:
    trainer = make("llama", ppo={"steps": 3, "learning_rate": 0.03})
    assert can_merge(trainer.models.policy.model)
    check_before_training(trainer)
    assert max(trainer.step().metrics["policy/first_log_ratio"] for _ in range(3)) <= 1e-4
    rollout = play(trainer)
    save_model(trainer.models.policy.model, tmp_path / "saved", tmp_path / "base")
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "wide llama"), tmp_path / "saved").eval()
    tokens, moved = rollout.tokens, 0.0
    for row, kept in enumerate(tokens.mask):
        prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][kept]
        ids = torch.cat([prompt, response])[None]
        with torch.no_grad():
            own = plain(ids).logits[0, len(prompt) - 1 : -1].log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1)
        torch.testing.assert_close(rollout.logprobs[row][kept], own, atol=1e-4, rtol=0)
        moved = max(moved, float((own - rollout.ref_logprobs[row][kept]).abs().max()))
    assert moved > 0.1


@pytest.mark.parametrize("kind", [Embedding, Linear])
def test_the_parity_check_finds_a_change_that_is_lost_while_sampling(make: Make, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    original = kind.get_delta_weight
    monkeypatch.setattr(kind, "get_delta_weight", lambda layer, name: torch.zeros_like(original(layer, name)))
    trainer = make()
    before, random = weights(trainer), torch.get_rng_state()
    with pytest.raises(ParityError, match="log-probabilities while sampling"):
        check_before_training(trainer)
    assert_untouched(trainer, before, random)


def test_the_parity_check_finds_a_reference_that_is_not_switched_off(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    before, random = weights(trainer), torch.get_rng_state()
    monkeypatch.setattr(PeftModel, "disable_adapter", lambda model: contextlib.nullcontext())
    with pytest.raises(ParityError, match="log-probabilities of the reference"):
        check_before_training(trainer)
    assert_untouched(trainer, before, random)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gpt_neox", {}),
        ("gpt2", {"init_lora_weights": "pissa"}),
        ("llama", {"use_dora": True}),
        ("llama", {"use_rslora": True, "alpha": 64.0}),
    ],
    ids=str,
)
def test_what_is_right_passes_with_random_adapters_and_nothing_stays_changed(make: Make, family: str, settings: dict[str, Any]) -> None:
    trainer = make(family, settings)
    before, random = weights(trainer), torch.get_rng_state()
    assert 0 < check_parity(trainer.models, trainer.prompts).largest < 5e-5
    assert_untouched(trainer, before, random)


def test_in_half_precision(make: Make) -> None:
    trainer = make(model={"dtype": "bfloat16"}, generation={"response_length": 20})
    before = weights(trainer)
    assert 1e-3 < check_parity(trainer.models, trainer.prompts).largest < 0.2
    assert_untouched(trainer, before, torch.get_rng_state())


def test_the_random_adapters_change_each_matrix_by_a_quarter_of_its_size(make: Make) -> None:
    models = make().models
    layers = [layer for layer in models.policy.modules() if isinstance(layer, Linear | Embedding)]
    with parity_check._random_adapters(models):
        shares = [float(layer.get_delta_weight("default").detach().norm() / layer.base_layer.weight.norm()) for layer in layers]
    assert len(shares) == 3 and all(0.15 < share < 0.4 for share in shares)


def adapted(folder: Path, **settings: Any) -> PeftModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(save_policy(folder / "plain", "llama", spread=0.2))
    targets = {"target_modules": ["q_proj", "embed_tokens"], "init_lora_weights": False, **settings}
    return get_peft_model(model, PeftLoraConfig(r=4, task_type="CAUSAL_LM", **targets)).eval()


def with_more(model: PeftModel) -> PeftModel:
    """As a later peft might: the embedding's adapter has a part that is not known here."""
    layer = next(layer for layer in model.modules() if isinstance(layer, Embedding))
    layer.register_parameter("lora_later", nn.Parameter(torch.ones(1)))
    return model


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"use_dora": True}, None),
        ({"target_modules": ["o_proj"], "lora_bias": True}, None),
        ({"modules_to_save": ["lm_head"]}, None),
        ({"trainable_token_indices": [3, 4], "target_modules": ["q_proj"]}, None),
        ({"target_parameters": ["mlp.up_proj.weight"], "target_modules": ["q_proj"]}, None),
        pytest.param({}, with_more, id="with more"),
    ],
    ids=str,
)
@torch.no_grad()
def test_what_is_not_known_in_full_is_left_as_it_is(tmp_path: Path, settings: dict[str, Any], change: Callable[..., Any] | None) -> None:
    model = adapted(tmp_path, **settings)
    if change is not None:
        change(model)
    for name, parameter in model.named_parameters():
        if "lora_" in name or "trainable_tokens_delta" in name:
            parameter.add_(0.1 * torch.randn_like(parameter))
    own = model(IDS).logits
    assert not can_merge(model)
    with merged_adapters(model):
        torch.testing.assert_close(model(IDS).logits, own, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("family", "names"),  # their output layers use the embedding's matrix
    [("gpt2", ["lm_head"]), ("gemma2", ["embed_tokens"]), ("opt", ["lm_head", "q_proj"]), ("gpt2", ["lm_head", "c_attn"])],
    ids=str,
)
@torch.no_grad()
def test_merged_for_good_a_tied_layer_gets_its_change_alone(tmp_path: Path, family: str, names: list[str]) -> None:
    base = AutoModelForCausalLM.from_pretrained(save_policy(tmp_path / family, family, spread=0.2))
    targets = [name for name in names if any(part.endswith(name) for part, _ in base.named_modules())]
    model = get_peft_model(base, PeftLoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out="c_attn" in targets))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.normal_(std=0.3)
    expected = model.eval()(IDS).logits
    merged_for_good(model).save_pretrained(tmp_path / "merged")
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(written(IDS).logits, expected, atol=1e-4, rtol=0)
    assert not torch.equal(written.get_input_embeddings().weight, written.get_output_embeddings().weight)


def test_a_merged_model_that_is_another_function_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted(tmp_path)
    torch.nn.init.normal_(next(weight for name, weight in model.named_parameters() if "lora_B" in name), std=0.3)
    monkeypatch.setattr(Linear, "merge", lambda layer, **_: None)
    with pytest.raises(ValueError, match="rounding explains"):
        merged_for_good(model)


def test_a_start_that_changes_a_tied_weight_is_refused(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(save_policy(tmp_path / "gpt2", "gpt2"))
    with pytest.raises(ConfigError, match="pissa changes the weight of lm_head, which another layer uses too"):
        add_lora(model, LoraConfig(enabled=True, target_modules="lm_head", init_lora_weights="pissa"))
