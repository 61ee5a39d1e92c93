"""Weight files that do not fit their list or their config.json: the right numbers, or a sentence; never other numbers without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.inputs.models.conversion import convert
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from tests.engine.small_models import save_tokenizer
from tests.inputs.gguf_files import llama

pytestmark = pytest.mark.slow
IDS = torch.tensor([[4, 9, 3, 17, 5]])
EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
Tensors = dict[str, Tensor]


def loaded(folder: Path) -> PreTrainedModel:
    check_causal_lm(str(folder))
    return load_causal_lm(str(folder), "main", torch.float32, lambda text, share: None).model


@torch.no_grad()
def logits(model: PreTrainedModel) -> Tensor:
    answer: Tensor = model(IDS).logits
    return answer


def saved(folder: Path, **sizes: str) -> Tensor:
    """The logits of a tied model that is now in ``folder``."""
    model = llama()
    model.save_pretrained(folder, **sizes)
    save_tokenizer(folder)
    return logits(model)


def test_a_tied_output_layer_may_be_stored_in_any_way_but_with_other_numbers(tmp_path: Path) -> None:
    cases: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
        "left out": (lambda t: t, ""),
        "twice": (lambda t: {**t, OUTPUT: t[EMBEDDING].clone()}, ""),
        "alone": (lambda t: {OUTPUT if name == EMBEDDING else name: tensor for name, tensor in t.items()}, ""),
        "for another program": (lambda t: {name.removeprefix("model."): tensor for name, tensor in t.items()}, ""),
        "other numbers": (
            lambda t: {**t, OUTPUT: 2 * t[EMBEDDING]},
            "stores lm_head.weight with other numbers .*tie_word_embeddings",
        ),
        "neither": (lambda t: {name: tensor for name, tensor in t.items() if name != EMBEDDING}, "has no weights for"),
        "a bias": (
            lambda t: {**t, "model.layers.0.self_attn.q_proj.bias": torch.ones(32)},
            "stores .*q_proj.bias, but by its config.json",
        ),
    }
    for name, (change, message) in cases.items():
        expected = saved(folder := tmp_path / name)
        save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
        if not message:
            torch.testing.assert_close(logits(loaded(folder)), expected)
            continue
        with pytest.raises(ConfigError, match=message):
            loaded(folder)


def test_a_list_of_shards_that_does_not_fit(tmp_path: Path) -> None:
    expected = saved(folder := tmp_path / "model", max_shard_size="20KB")
    list_file = folder / "model.safetensors.index.json"
    index = json.loads(list_file.read_text())
    shards = sorted(set(index["weight_map"].values()))
    torch.testing.assert_close(logits(loaded(folder)), expected)

    def refused(message: str) -> None:
        with pytest.raises(ModelError, match=message):
            check_causal_lm(str(folder))

    shorter = {name: shard for name, shard in index["weight_map"].items() if shard != shards[1]}
    list_file.write_text(json.dumps({**index, "weight_map": shorter}))
    refused(f"lists {len(shards) - 1} weight files, but their names count {len(shards)}; it belongs to other weights")
    list_file.unlink()
    refused("but not model.safetensors.index.json, which says what is in which file")
    list_file.write_text(json.dumps(index))
    first = load_file(folder / shards[0])
    save_file({**load_file(folder / shards[1]), **first}, folder / shards[1])
    refused(f"{shards[1]} of .* holds {next(iter(first))}, and so does another weight file")
    whole = saved(folder)  # one file beside a list of an earlier save is what is loaded
    list_file.write_text(json.dumps(index))
    torch.testing.assert_close(logits(loaded(folder)), whole)


def test_weights_that_were_quantized_before_become_plain_numbers(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    source = tmp_path / "source"
    llama(hidden_size=64, intermediate_size=128).save_pretrained(source)
    save_tokenizer(source)
    tensors, config = load_file(source / "model.safetensors"), json.loads((source / "config.json").read_text())
    fp8, plain = dict(tensors), dict(tensors)
    for name in (name for name, tensor in tensors.items() if tensor.ndim == 2 and name != EMBEDDING):
        scale = float(tensors[name].abs().max()) / 448
        fp8[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
        fp8[f"{name}_scale_inv"] = torch.full((1, 1), scale)
        plain[name] = fp8[name].float() * scale
    (tmp_path / "fp8").mkdir()
    save_tokenizer(tmp_path / "fp8")
    save_file(fp8, tmp_path / "fp8" / "model.safetensors", metadata={"format": "pt"})
    packed = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    (tmp_path / "fp8" / "config.json").write_text(json.dumps({**config, "quantization_config": packed}))
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    small = AutoModelForCausalLM.from_pretrained(source, quantization_config=nf4, device_map="cpu")
    small.save_pretrained(tmp_path / "nf4")
    save_tokenizer(tmp_path / "nf4")
    for name in ("fp8", "nf4"):
        with pytest.raises(ModelError, match="which cannot be trained; make plain numbers of them first: python -m rlhf_studio convert"):
            check_causal_lm(str(tmp_path / name))
        done = convert(str(tmp_path / name), tmp_path / f"plain {name}")
        assert "They are plain numbers now; what was rounded when they were packed does not come back" in done.notes[0]
        after = load_file(done.folder / "model.safetensors")
        assert after.keys() == tensors.keys() and check_causal_lm(str(done.folder)).parameters
        for each, tensor in after.items():
            if name == "fp8":
                torch.testing.assert_close(tensor, plain[each], rtol=1e-6, atol=0)
            else:  # 16 values between the least and the most of 64 weights, none farther than a third of the largest from the next
                assert float((tensor - tensors[each]).abs().max()) <= 0.17 * float(tensors[each].abs().max())
                assert tensor.dtype is torch.float32
