"""LoRA's settings, each by an effect that can be worked out apart from peft's own code; existing adapters; references."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.lora.layer import ParamWrapper
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from rlhf_studio.config import LoraConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.state import training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora, save_model
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.saving.checkpoint import load_state, restore_policy, save_checkpoint
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from tests.engine.conftest import small_config
from tests.engine.small_models import WORDS, save_policy, save_tokenizer
from tests.families.tiny import tiny_model

pytestmark = pytest.mark.slow

IDS = torch.tensor([[2, 3, 4, 5, 6, 7, 8, 9]])
Build = Callable[..., Trainer]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "llama", "llama", spread=0.2)


def load(folder: Path | str) -> nn.Module:
    return load_causal_lm(str(folder), "main", torch.float32, lambda text, fraction: None).model


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    return model(IDS).logits


def adapt(folder: Path, **settings: Any) -> tuple[Tensor, PeftModel]:
    """The starting model's logits, and the model with adapters whose second factors are not zero."""
    model = load(folder)
    before = logits(model)
    adapted = add_lora(model, LoraConfig(enabled=True, r=4, alpha=6.0, **settings)).eval()
    return before, adapted


def make_adapter(base: Path, folder: Path, seed: int = 3, **settings: Any) -> Path:
    """An adapter as somebody else would save it, with an effect."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base)
    settings = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings}
    adapted = get_peft_model(model, PeftLoraConfig(**settings))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    adapted.save_pretrained(folder)
    return folder


@torch.no_grad()
def with_adapter(base: Path, folder: Path) -> Tensor:
    """Independent answer: peft on the plain model, nothing merged."""
    return logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval())


# --- settings ----------------------------------------------------------------------------------------------------------------


def test_the_settings_reach_peft(llama: Path) -> None:
    settings = {"use_rslora": True, "use_dora": True, "bias": "lora_only", "target_modules": "q_proj,v_proj"}
    given = adapt(llama, **settings)[1].peft_config["default"]
    assert (given.r, given.lora_alpha, given.use_rslora, given.use_dora, given.bias) == (4, 6.0, True, True, "lora_only")
    assert set(given.target_modules) == {"q_proj", "v_proj"}


def test_starts_differ_as_they_are_defined(llama: Path) -> None:
    """default: A uniform up to 1/sqrt(inputs); gaussian: A normal with deviation 1/r. No other start leaves B at 0."""
    first, second = {}, {}
    for start in ("default", "gaussian", "orthogonal", "pissa", "olora"):
        layer = adapt(llama, init_lora_weights=start)[1].get_base_model().model.layers[0].mlp.up_proj
        first[start], second[start] = layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach()
    assert first["default"].abs().max() <= 32**-0.5
    assert float(first["gaussian"].std()) == pytest.approx(1 / 4, rel=0.25)
    assert [start for start, matrix in second.items() if matrix.abs().max() > 0] == ["orthogonal", "pissa", "olora"]


def test_every_start_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    settings = [{"init_lora_weights": start} for start in ("default", "gaussian", "orthogonal", "pissa")]
    settings += [{"use_dora": True}, {"use_dora": True, "init_lora_weights": "pissa"}, {"bias": "all"}]
    for family in ("gpt2", "llama"):
        folder = save_policy(tmp_path / family, family, spread=0.2)
        for given in settings:
            before, model = adapt(folder, **given)
            torch.testing.assert_close(logits(model), before, atol=1e-5, rtol=0, msg=lambda text, case=(family, given): f"{case}: {text}")
            with model.disable_adapter():
                unchanged = torch.allclose(logits(model), before, atol=1e-5)
            assert unchanged == (not LoraConfig(**given).changes_base), (family, given)


def test_the_adapters_of_experts_are_safe_for_lanes() -> None:
    """peft puts such an adapter in the place of the experts' parameter while they compute: two threads at once would spoil the base."""
    model = add_lora(tiny_model("mixtral", 3), LoraConfig(enabled=True, r=2)).eval()
    assert any(isinstance(module, ParamWrapper) for module in model.modules())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    rows = [torch.tensor([[3 + row, 5, 7 + row, 9]]) for row in range(6)] * 5
    expected = [model(ids).logits.detach() for ids in rows[:6]]

    def work(place: int) -> bool:
        logits = model(rows[place]).logits
        logits.sum().backward()
        return torch.allclose(logits.detach(), expected[place % 6], atol=1e-5)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(len(rows))))
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def test_what_a_model_cannot_have(tmp_path: Path, llama: Path) -> None:
    gpt2 = save_policy(tmp_path / "gpt2", "gpt2")
    for folder, settings, field, part in (
        (gpt2, {"init_lora_weights": "olora"}, "lora.init_lora_weights", "olora does not work with this model's layers"),
        (llama, {"target_modules": "no_such_layer"}, "lora.target_modules", "no_such_layer"),
    ):
        with pytest.raises(ConfigError, match=part) as caught:
            adapt(folder, **settings)
        assert caught.value.problems[0].field == field


# --- training, references, checkpoints ---------------------------------------------------------------------------------------


def build(tmp_path: Path, policy: Path, **changes: dict[str, Any]) -> tuple[Trainer, list[str]]:
    config = small_config(tmp_path, **{**changes, "model": {"policy": str(policy), **changes.get("model", {})}})
    return build_trainer(config, choose_compute(config), lambda text, fraction: None)


def batch_of_ids() -> TokenBatch:
    return TokenBatch(IDS[:, :3], torch.ones(1, 3, dtype=torch.bool), IDS[:, 3:], torch.ones(1, 5, dtype=torch.bool))


@torch.no_grad()
def reference_logits(trainer: Trainer) -> Tensor:
    with trainer.models.reference.active() as reference:
        return reference(batch_of_ids())[0]


def predicting(whole: Tensor) -> Tensor:
    return whole[0, 2:-1]


OPTIONS = [{"bias": "all"}, {"init_lora_weights": "orthogonal"}, {"init_lora_weights": "pissa", "use_dora": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_run_with_each_option(tmp_path: Path, options: dict[str, Any]) -> None:
    """First ratio 1 and KL 0; the reference stays the starting model; the checkpoint loads elsewhere and here."""
    policy = save_policy(tmp_path / "gpt2", "gpt2", spread=0.2)
    start = logits(AutoModelForCausalLM.from_pretrained(policy))
    lora = {"enabled": True, "r": 4, **options}
    trainer, notes = build(tmp_path, policy, lora=lora)
    copied = "bias" in options or options.get("init_lora_weights") == "pissa"
    assert copied == any("frozen copy" in note for note in notes)
    first = trainer.step().metrics
    assert first["policy/first_log_ratio"] <= 1e-4 and abs(first["objective/kl"]) <= 1e-4
    torch.testing.assert_close(reference_logits(trainer), predicting(start), atol=5e-5, rtol=0)
    ours = logits(trainer.models.policy.model)
    assert (ours - start).abs().max() > 1e-3

    (tmp_path / "run").mkdir()
    saved = save_checkpoint(tmp_path / "run", 1, trainer.models.policy, trainer.models.tokenizer, training_state(trainer), keep=1)
    settings = json.loads((saved / "policy" / "adapter_config.json").read_text())
    base = settings["base_model_name_or_path"]
    assert base == str(tmp_path / "run" / "base" if options.get("init_lora_weights") == "pissa" else policy)
    elsewhere = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), saved / "policy").eval()
    torch.testing.assert_close(logits(elsewhere), ours, atol=1e-5, rtol=0)

    again, _ = build(tmp_path, policy, lora=lora)
    restore_policy(saved, again.models.policy)
    load_state(saved, again.updater.optimizer)
    torch.testing.assert_close(logits(again.models.policy.model), ours, atol=1e-6, rtol=0)


def test_an_adapter_as_the_policy_is_merged_and_is_in_the_reference(tmp_path: Path, llama: Path) -> None:
    adapter = make_adapter(llama, tmp_path / "sft")
    expected = with_adapter(llama, adapter)
    assert (expected - logits(load(llama))).abs().max() > 0.1
    trainer, notes = build(tmp_path, adapter, lora={"enabled": True, "r": 2})
    assert f"{adapter} is a LoRA adapter: it was merged into its base, {llama}, before anything else." in notes
    torch.testing.assert_close(reference_logits(trainer), predicting(expected), atol=5e-5, rtol=0)
    metrics = trainer.step().metrics
    assert abs(metrics["objective/kl"]) <= 1e-4 < abs(trainer.step().metrics["objective/kl"])
    torch.testing.assert_close(reference_logits(trainer), predicting(expected), atol=5e-5, rtol=0)


def test_an_adapter_on_a_tied_output_layer_as_the_policy(tmp_path: Path) -> None:
    base = save_policy(tmp_path / "tied", "gpt2", spread=0.2)
    adapter = make_adapter(base, tmp_path / "sft", target_modules=["lm_head"])
    expected = with_adapter(base, adapter)
    trainer, _ = build(tmp_path, adapter)
    torch.testing.assert_close(reference_logits(trainer), predicting(expected), atol=5e-5, rtol=0)
    trainer.step()
    save_model(trainer.models.policy.model, tmp_path / "saved", tmp_path / "base")
    torch.testing.assert_close(logits(load(tmp_path / "saved")), logits(trainer.models.policy.model), atol=1e-6, rtol=0)


def test_a_checkpoint_on_a_merged_base_brings_its_base(tmp_path: Path, llama: Path) -> None:
    """Its adapter alone on the plain base would be another model: the merged base lies beside the checkpoints, written once."""
    trainer, _ = build(tmp_path, make_adapter(llama, tmp_path / "sft"), lora={"enabled": True, "r": 2})
    trainer.step()
    models = trainer.models
    (tmp_path / "run").mkdir()
    for step in (1, 2):
        saved = save_checkpoint(tmp_path / "run", step, models.policy, models.tokenizer, training_state(trainer), keep=1)
    base = Path(json.loads((saved / "policy" / "adapter_config.json").read_text())["base_model_name_or_path"])
    assert base == tmp_path / "run" / "base"
    assert not list(base.parent.glob(".base*"))
    torch.testing.assert_close(with_adapter(base, saved / "policy"), logits(models.policy.model), atol=1e-5, rtol=0)
    torch.testing.assert_close(logits(load(saved / "policy")), logits(models.policy.model), atol=1e-5, rtol=0)

    (tmp_path / "run").rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "checkpoints" / saved.name / "policy"
    assert check_causal_lm(str(moved)).base == str(tmp_path / "elsewhere" / "base")
    torch.testing.assert_close(logits(load(moved)), logits(models.policy.model), atol=1e-5, rtol=0)
    (tmp_path / "elsewhere" / "base").rename(tmp_path / "lost")
    with pytest.raises(ModelError, match="its base cannot be used: there is no folder"):
        check_causal_lm(str(moved))


def test_an_adapter_of_an_adapter(tmp_path: Path, llama: Path) -> None:
    first = make_adapter(llama, tmp_path / "first")
    (tmp_path / "merged").mkdir()
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama), first).merge_and_unload().save_pretrained(tmp_path / "merged")
    second = make_adapter(tmp_path / "merged", tmp_path / "second", seed=4)
    expected = with_adapter(tmp_path / "merged", second)
    edit(second / "adapter_config.json", base_model_name_or_path=str(first))
    torch.testing.assert_close(logits(load(second)), expected, atol=5e-5, rtol=0)


def test_a_second_adapter_as_the_reference(tmp_path: Path, llama: Path) -> None:
    adapter = make_adapter(llama, tmp_path / "other")
    expected = predicting(with_adapter(llama, adapter))
    model = {"reference": str(adapter)}
    for lora, beside in (({"enabled": True, "r": 2}, True), ({}, False)):
        trainer, notes = build(tmp_path, llama, model=model, lora=lora)
        assert ("on the policy's own base" in " ".join(notes)) == beside
        torch.testing.assert_close(reference_logits(trainer), expected, atol=5e-5, rtol=0)
        metrics = trainer.step().metrics
        assert metrics["policy/first_log_ratio"] <= 1e-4 and abs(metrics["objective/kl"]) > 1e-3
        if not beside:
            continue
        torch.testing.assert_close(reference_logits(trainer), expected, atol=5e-5, rtol=0)
        with pytest.raises(RuntimeError, match="cancelled"), trainer.models.reference.active():
            raise RuntimeError("cancelled")  # as when a person ends an answer
        policy = trainer.models.policy.model  # trap L3: switching adapters must leave the right one trainable
        assert {name for name, parameter in policy.named_parameters() if parameter.requires_grad} == {
            name for name, _ in policy.named_parameters() if "lora_" in name and ".default." in name
        }
        save_model(policy, tmp_path / "saved", tmp_path / "base")
        assert not (tmp_path / "saved" / "reference").exists()


def test_an_adapter_with_biases_or_whole_layers_is_not_put_beside_the_policy(tmp_path: Path) -> None:
    gpt2 = save_policy(tmp_path / "gpt2", "gpt2", spread=0.2)
    for name, settings in (("bias", {"bias": "all"}), ("layers", {"modules_to_save": ["ln_f"]})):
        adapter = make_adapter(gpt2, tmp_path / name, fan_in_fan_out=True, **settings)
        trainer, notes = build(tmp_path, gpt2, model={"reference": str(adapter)}, lora={"enabled": True, "r": 2})
        assert "kept beside the policy" in " ".join(notes)
        torch.testing.assert_close(reference_logits(trainer), predicting(with_adapter(gpt2, adapter)), atol=5e-5, rtol=0)


def test_another_model_as_the_reference(tmp_path: Path, llama: Path) -> None:
    other = save_policy(tmp_path / "gpt2", "gpt2", spread=0.2)
    trainer, _ = build(tmp_path, llama, model={"reference": str(other)})
    torch.testing.assert_close(reference_logits(trainer), predicting(logits(load(other))), atol=5e-5, rtol=0)
    same_size = save_policy(tmp_path / "same-size", "llama")
    save_tokenizer(same_size, list(reversed(WORDS)))
    more_rows = save_policy(tmp_path / "more-rows", "llama", [*WORDS, "more"])
    save_tokenizer(more_rows)  # the same tokens, and an output that none of them is
    for folder, part in (
        (same_size, "has another vocabulary than the policy"),
        (
            more_rows,
            "has another vocabulary than the policy (weights for 31 tokens, not 30), so their log-probabilities cannot",
        ),
        (tmp_path / "none", f"cannot load {tmp_path / 'none'}"),
    ):
        assert part in refusal(lambda folder=folder: build(tmp_path, llama, model={"reference": str(folder)}), "reference")


# --- adapters that cannot be used ----------------------------------------------------------------------------------------------


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(action: Callable[[], Any], setting: str = "policy") -> str:
    with pytest.raises(ConfigError) as caught:
        action()
    (problem,) = caught.value.problems
    assert problem.field == f"model.{setting}"
    return problem.message


def test_adapters_that_cannot_be_merged(tmp_path: Path, llama: Path) -> None:
    """What tests/inputs/test_models.py refuses at the door is refused here in the same way."""
    adapter = make_adapter(llama, tmp_path / "adapter")
    settings = adapter / "adapter_config.json"
    whole = settings.read_text()
    edit(settings, base_model_name_or_path=str(adapter))
    assert "is an adapter of an adapter, more than 4 deep" in refusal(lambda: load(adapter))
    settings.write_text("[]")
    assert f"cannot load {adapter}" in refusal(lambda: load(adapter))
    settings.write_text(whole)
    edit(settings, base_model_name_or_path=str(save_policy(tmp_path / "wide", "llama", width=64)))
    assert "does not fit its base model" in refusal(lambda: load(adapter))
    settings.write_text(whole)
    weights = load_file(adapter / "adapter_model.safetensors")
    torch.save(weights, adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors" in refusal(lambda: load(adapter))
    save_file(weights, adapter / "adapter_model.safetensors")
    assert load(adapter)


def test_an_adapter_brings_its_own_tokenizer(tmp_path: Path, llama: Path) -> None:
    adapter = make_adapter(llama, tmp_path / "adapter")
    words = list(reversed(WORDS))
    save_tokenizer(adapter, words)
    loaded = load_causal_lm(str(adapter), "main", torch.float32, lambda text, fraction: None)
    assert loaded.tokenizer.encode(words[0]) == [2]
    assert loaded.merged == [str(adapter)]


def test_an_adapter_cannot_be_merged_into_quantized_weights(tmp_path: Path, llama: Path) -> None:
    adapter = make_adapter(llama, tmp_path / "adapter")
    options = {"quantization_config": object()}
    action = lambda: load_causal_lm(str(adapter), "main", torch.float32, lambda text, fraction: None, options=options)  # noqa: E731
    assert "cannot be merged into a quantized base" in refusal(action, "quantization")
