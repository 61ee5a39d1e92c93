"""``convert`` merges an adapter of any kind into its base: the whole model computes what peft computes with the two apart."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import (
    AdaLoraConfig,
    IA3Config,
    LNTuningConfig,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    PeftConfig,
    PeftModel,
    PromptTuningConfig,
    get_peft_model,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.cli.main import main
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.inputs.models.conversion import convert
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from tests.engine.small_models import save_tokenizer
from tests.inputs.gguf_files import llama

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning:peft"), pytest.mark.filterwarnings("ignore::FutureWarning")]
IDS = torch.tensor([[4, 9, 3, 17, 5]])
LAYERS = ["q_proj", "down_proj"]
LORA: dict[str, PeftConfig] = {
    "plain": LoraConfig(r=4, target_modules=LAYERS),
    "DoRA": LoraConfig(r=4, target_modules=LAYERS, use_dora=True),
    "rsLoRA": LoraConfig(r=4, target_modules=LAYERS, use_rslora=True, rank_pattern={"q_proj": 2}),
    "head and norm": LoraConfig(r=4, target_modules=LAYERS, modules_to_save=["lm_head", "norm"]),
    "tokens": LoraConfig(r=4, target_modules=LAYERS, trainable_token_indices=[3, 4]),
}
OTHERS: dict[str, PeftConfig] = {
    "IA3": IA3Config(target_modules=LAYERS, feedforward_modules=["down_proj"]),
    "LOHA": LoHaConfig(r=4, target_modules=LAYERS),
    "LOKR": LoKrConfig(r=4, target_modules=LAYERS),
    "ADALORA": AdaLoraConfig(total_step=10, target_modules=LAYERS),
    "LN_TUNING": LNTuningConfig(target_modules=["input_layernorm"]),
}


@torch.no_grad()
def logits(model: Any) -> Tensor:
    answer: Tensor = model(IDS).logits
    return answer


def saved_base(folder: Path) -> Path:
    llama().save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def saved_adapter(base: Path, folder: Path, config: PeftConfig, rows: int = 0) -> Tensor:
    """The logits of ``base`` with a random adapter, which is now in ``folder``."""
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    if rows:
        model.resize_token_embeddings(rows, mean_resizing=False)
    config.task_type = "CAUSAL_LM"
    adapted: PeftModel = get_peft_model(model, config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    adapted.save_pretrained(folder)
    return logits(adapted)


def test_adapters_of_many_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = saved_base(tmp_path / "base")
    for name, config in {**LORA, **OTHERS}.items():
        expected = saved_adapter(base, folder := tmp_path / name, config)
        if name in LORA:
            check_causal_lm(str(folder))
            merged: Any = load_causal_lm(str(folder), "main", torch.float32, lambda text, share: None).model
            torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-5)
            continue
        with pytest.raises(ModelError, match=f"is an? {name} adapter, not a LoRA adapter; merge it into its base model first:") as caught:
            check_causal_lm(str(folder))
        with pytest.raises(ConfigError, match="merge it into its base model first: python -m rlhf_studio convert"):
            load_causal_lm(str(folder), "main", torch.float32, lambda text, share: None)
        words = shlex.split(str(caught.value).split("first: ")[1])[3:]
        assert main([*words[:-1], str(tmp_path / f"whole {name}")]) == 0
        assert f"{name} adapter; it was merged into its base, {base}" in capsys.readouterr().out
        whole = AutoModelForCausalLM.from_pretrained(tmp_path / f"whole {name}").eval()
        torch.testing.assert_close(logits(whole), expected, rtol=1e-4, atol=1e-5)
        assert check_causal_lm(str(tmp_path / f"whole {name}")).base == ""


def test_an_adapter_that_was_trained_with_more_tokens(tmp_path: Path) -> None:
    base, folder = saved_base(tmp_path / "base"), tmp_path / "adapter"
    expected = saved_adapter(base, folder, LoraConfig(r=4, target_modules=LAYERS), rows=264)
    with pytest.raises(ModelError, match="has 264 tokens, and its base knows 259; merge them into one model first: python -m"):
        check_causal_lm(str(folder))
    out = convert(str(folder), tmp_path / "out", dtype="bfloat16").folder
    whole = AutoModelForCausalLM.from_pretrained(out, dtype="auto").eval()
    assert whole.dtype is torch.bfloat16 and whole.config.vocab_size == 264
    torch.testing.assert_close(logits(whole).float(), expected, rtol=0.05, atol=0.02)
    assert AutoTokenizer.from_pretrained(out)("w3 w1").input_ids == AutoTokenizer.from_pretrained(base)("w3 w1").input_ids


def test_adapters_that_no_weights_can_stand_for(tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base")
    cases: dict[str, tuple[PeftConfig, str]] = {
        "prompt": (
            PromptTuningConfig(num_virtual_tokens=3),
            "is a PROMPT_TUNING adapter, which .* puts learned vectors before",
        ),
        "bias": (
            LoraConfig(r=4, target_modules=LAYERS, lora_bias=True),
            "Impossible to merge LoRA with `lora_bias=True`",
        ),
        "twice": (LoraConfig(r=4, target_modules=LAYERS, layer_replication=[(0, 2), (1, 2)]), "uses layers of its base several times"),
    }
    for name, (config, message) in cases.items():
        saved_adapter(base, tmp_path / name, config)
        with pytest.raises(ModelError, match=message):
            convert(str(tmp_path / name), tmp_path / "out")
    (tmp_path / "base" / "config.json").unlink()
    with pytest.raises(ModelError, match="is a LoRA adapter, and its base cannot be used: .*config.json is missing"):
        convert(str(tmp_path / "bias"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
