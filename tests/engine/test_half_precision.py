"""bfloat16 on a CPU: policy and reference round alike, from whatever the reference is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.utils.integrations import dequantize_module_weight
from torch import nn
from transformers import AutoModelForCausalLM

from rlhf_studio.engine.compute.device import round_products
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models import load_model
from rlhf_studio.engine.models.policy import plain_model
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.parity.first_rollout import check_first_rollout
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import lasting_parts
from rlhf_studio.inputs.estimate.memory.parts import REFERENCE
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape
from tests.engine.conftest import play, small_config
from tests.engine.small_models import save_policy

Make = Callable[..., Trainer]
HALF = {"dtype": "bfloat16"}
STARTS: dict[str, dict[str, Any]] = {
    "a copy": {},
    "a copy that moves": {"ppo": {"reference_ema": 0.01}},
    "named": {"model": {"reference": "the policy"}},
    "the base with adapters off": {"lora": {"enabled": True, "r": 4}},
    "the base before its biases learn": {"lora": {"enabled": True, "r": 4, "bias": "all"}},
    "the bundled world's policy": {"model": {"policy": "bundled/world-policy"}},
}


CASES = [*(("llama", start) for start in STARTS if "bundled" not in start), ("gpt2", "a copy"), ("gpt2", "the bundled world's policy")]


@pytest.mark.parametrize(("family", "start"), CASES)
def test_the_kl_begins_at_exactly_0(make_trainer: Make, tmp_path: Path, family: str, start: str) -> None:
    """Sharp weights, whose rounding moves a log-probability by tenths of a nat."""
    folder = save_policy(tmp_path / "sharp", family, spread=0.2, layers=4)
    settings = STARTS[start]
    model = {"policy": str(folder), **HALF} | settings.get("model", {})
    if "reference" in model:
        model["reference"] = str(save_policy(tmp_path / "same", family, spread=0.2, layers=4))
    trainer = make_trainer(family, **{**settings, "model": model})
    rollout = play(trainer)
    assert torch.equal(rollout.logprobs, rollout.ref_logprobs)
    assert rollout.logprobs.count_nonzero() > 0


def test_a_frozen_copy_takes_half_the_bytes_of_its_matrices(tmp_path: Path) -> None:
    """What two layers use, and what is no matrix of a linear layer, stays float32: it is not rounded in the policy either."""
    llama, gpt2 = (AutoModelForCausalLM.from_pretrained(save_policy(tmp_path / family, family)) for family in ("llama", "gpt2"))
    kept = {name for name, weight in round_products(llama, torch.bfloat16).named_parameters() if weight.dtype is torch.float32}
    assert kept == {name for name, _ in llama.named_parameters() if "norm" in name or "embed_tokens" in name}
    assert {weight.dtype for weight in round_products(gpt2, torch.float32).parameters()} == {torch.float32}
    assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
    assert round_products(gpt2, torch.bfloat16).lm_head.weight.dtype is torch.float32
    assert gpt2.transformer.h[0].attn.c_attn.weight.dtype is torch.bfloat16
    for model in (llama, gpt2):  # the planner knows, but for biases and norms
        size, settings = sum(weight.nbytes for weight in model.parameters()), small_config(tmp_path, model=HALF)
        facts = ModelFacts(path=None, architecture="", parameters=model.num_parameters(), shape=read_shape(model.config.to_dict()))
        parts = lasting_parts(settings, RunModels(facts), Device("cpu", "CPU", None, None, bfloat16=True), 2)
        assert next(part.high for part in parts if part.name == REFERENCE) == pytest.approx(size, rel=0.03)


def test_a_copy_that_moves_takes_small_steps(make_trainer: Make) -> None:
    """A hundredth of a step of one learning rate is less than one unit in the last place of bfloat16: a rounded copy would stand still."""
    trainer = make_trainer(model=HALF, ppo={"reference_ema": 0.01, "learning_rate": 1e-3})
    before = {name: weight.clone() for name, weight in trainer.models.reference.weights().items()}
    trainer.step()
    policy = dict(plain_model(trainer.models.policy.model).named_parameters())
    for name, weight in trainer.models.reference.weights().items():
        torch.testing.assert_close(weight, before[name] + 0.01 * (policy[name].detach() - before[name]), atol=1e-8, rtol=1e-6)
    assert any(not torch.equal(weight, before[name]) for name, weight in trainer.models.reference.weights().items())


def test_what_splits_the_base_says_how_far_apart_it_begins(make_trainer: Make) -> None:
    """PiSSA takes the main part out of every matrix, and both parts are rounded: the KL cannot begin at 0, and the run says so."""
    trainer = make_trainer("llama", model=HALF, lora={"enabled": True, "r": 4, "init_lora_weights": "pissa"})
    rollout = play(trainer)
    apart = ((rollout.logprobs - rollout.ref_logprobs) * rollout.tokens.mask).sum(dim=1).mean()
    assert f"{float(apart):+.2g} nats" in check_first_rollout(trainer.models, rollout, 1.0, 1.0, at_start=True)
    assert not check_first_rollout(trainer.models, rollout, 1.0, 1.0, at_start=False)


def test_linear_layers_of_other_kinds_are_left_alone() -> None:
    class Router(nn.Linear):
        """Some routers compute in float32 whatever the settings say."""

    model: Any = nn.ModuleDict({"router": Router(3, 2), "plain": nn.Linear(3, 2)})
    rounded = round_products(model, torch.bfloat16)
    assert rounded["router"].weight.dtype is torch.float32 and rounded["plain"].weight.dtype is torch.bfloat16


@pytest.mark.filterwarnings("ignore:bitsandbytes")  # its CPU product of 4-bit weights has no gradient of its own
@pytest.mark.parametrize("bits", [pytest.param("8bit", marks=pytest.mark.long), "4bit"])
def test_a_quantized_base_learns(make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: str) -> None:
    """By bitsandbytes' CPU library; people without a GPU are refused, because it is slow. Neither base sets the reference apart."""
    monkeypatch.setattr(load_model, "machine_problems", lambda *_: ())
    folder = save_policy(tmp_path / "wide", "llama", width=64, spread=0.2)
    settings = {"model": {"policy": str(folder), "quantization": bits, **HALF}, "lora": {"enabled": True, "r": 4}}
    trainer = make_trainer("llama", **settings, generation={"response_length": 12})
    model = plain_model(trainer.models.policy.model)
    layer = model.model.layers[0].mlp.down_proj.base_layer
    plain = AutoModelForCausalLM.from_pretrained(folder).model.layers[0].mlp.down_proj
    assert layer.weight.dtype is {"8bit": torch.int8, "4bit": torch.uint8}[bits] and layer.weight.requires_grad is False
    with torch.no_grad():
        off = (dequantize_module_weight(layer).float() - plain.weight).norm() / plain.weight.norm()
    assert float(off) < {"8bit": 0.02, "4bit": 0.15}[bits]
    check_before_training(trainer)
    record = trainer.step()
    assert not [event.text for event in record.events if event.level == "warning"]
    assert record.metrics["objective/kl"] == 0.0 and trainer.step().metrics["objective/kl"] != 0.0


def test_dropout_that_was_left_on_is_no_rounding_noise(make_trainer: Make) -> None:
    trainer = make_trainer(model={"dtype": "bfloat16"})
    check_parity(trainer.models, trainer.prompts)
    for module in trainer.models.policy.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    trainer.models.policy.train()
    with pytest.raises(ParityError, match="two passes over one text differ by"):
        check_parity(trainer.models, trainer.prompts)
