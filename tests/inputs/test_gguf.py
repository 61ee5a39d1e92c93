"""A GGUF file becomes an ordinary model that computes the same, and whatever would come out different is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rlhf_studio.cli.main import main
from rlhf_studio.inputs.models.conversion import convert
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from tests.inputs.gguf_files import TEMPLATE, TOKENS, gemma, keys_of_gemma, llama, qwen, write_gguf

pytestmark = pytest.mark.slow
Q4_1, Q8_0 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0
IDS = torch.tensor([[4, 90, 3, 17, 250, 5]])


@pytest.mark.parametrize("tied", [True, False])
def test_the_converted_model_is_the_one_in_the_file(tied: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, file, out = llama(tied=tied), tmp_path / "m.Q4_1.gguf", tmp_path / "out"
    write_gguf(file, model, Q4_1)
    assert main(["convert", str(file), str(out)]) == 0
    said = capsys.readouterr().out
    assert "stored as Q4_1" in said and "weights of 4 bytes each (2 with --dtype bfloat16)" in said
    loaded, info = AutoModelForCausalLM.from_pretrained(out, use_safetensors=True, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not hasattr(loaded.config, "quantization_config")
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(IDS).logits, model(IDS).logits, rtol=1e-5, atol=1e-6)
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template == TEMPLATE and tokenizer.eos_token == "<|end|>"
    assert [TOKENS[number] for number in tokenizer("th12<|end|>").input_ids] == ["th", "1", "2", "<|end|>"]  # each digit for itself
    assert check_causal_lm(str(out)).parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("make", "also"), [(qwen, lambda writer: None), (gemma, keys_of_gemma)], ids=["Qwen 2", "Gemma 2"])
def test_other_kinds_of_models(make: Callable[[], PreTrainedModel], also: Callable[[gguf.GGUFWriter], None], tmp_path: Path) -> None:
    model, ids = make(), IDS.repeat(1, 4)
    write_gguf(tmp_path / "m.gguf", model, Q8_0, also, pre="qwen2")
    loaded = AutoModelForCausalLM.from_pretrained(convert(str(tmp_path / "m.gguf"), tmp_path / "out").folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-6)


def test_what_was_rounded_away_is_measured(tmp_path: Path) -> None:
    """Rounding to steps of d is off by d/2 at most and by d/4 on average."""
    for kind, bits in ((Q4_1, 5.0), (Q8_0, 8.5)):
        model = llama()
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.ndim == 2}
        write_gguf(tmp_path / f"{bits}.gguf", model, kind)
        after = {name: parameter.detach() for name, parameter in model.named_parameters()}
        error = float(torch.cat([(weight - after[name]).flatten() for name, weight in before.items()]).abs().mean())
        [stored, rounded, _] = convert(str(tmp_path / f"{bits}.gguf"), tmp_path / f"out {bits}", dtype="bfloat16").notes
        assert float(stored.split(": ")[1].split()[0]) == pytest.approx(bits, rel=0.05)
        assert float(rounded.split("by at most about ")[1].split(",")[0]) == pytest.approx(2 * error, rel=0.1)
    assert next(AutoModelForCausalLM.from_pretrained(tmp_path / "out 8.5", dtype="auto").parameters()).dtype is torch.bfloat16


def test_the_positions_of_llama_3_are_kept(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    model = llama(rope_parameters={**rope, "rope_theta": 500000.0})
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, torch.device("cpu"))
    plain = 500000.0 ** (-torch.arange(0, 8, 2) / 8)
    factors = (plain / scaled).numpy()
    write_gguf(tmp_path / "m.gguf", model, Q8_0, lambda writer: writer.add_tensor("rope_freqs.weight", factors))
    out = convert(str(tmp_path / "m.gguf"), tmp_path / "out").folder
    with torch.no_grad():
        loaded = AutoModelForCausalLM.from_pretrained(out).eval()
        torch.testing.assert_close(loaded(IDS).logits, model(IDS).logits, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loaded.model.rotary_emb.inv_freq, scaled, rtol=1e-5, atol=0)
    write_gguf(tmp_path / "other.gguf", llama(), Q8_0, lambda writer: writer.add_tensor("rope_freqs.weight", factors**2))
    with pytest.raises(ModelError, match="scales its positions in a way that cannot be told"):
        convert(str(tmp_path / "other.gguf"), tmp_path / "other")


def test_files_that_would_come_out_different_are_refused(tmp_path: Path) -> None:
    def extra(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q.bias", np.ones(32, np.float32))

    cases: dict[str, tuple[Any, str]] = {
        "yarn": (lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN), r"scales its positions \(yarn\)"),
        "heads": (lambda writer: writer.add_key_length(16), "says llama.attention.key_length is 16, but .* makes a model of it with 8"),
        "scale": (lambda writer: writer.add_logit_scale(0.5), "says llama.logit_scale is 0.5, but .* with None"),
        "shape": (lambda writer: writer.add_uint32("llama.rope.dimension_count", 16), "has weights of another shape for model.layers.0"),
        "extra": (extra, "has 32 numbers more than transformers"),
    }
    for name, (also, message) in cases.items():
        write_gguf(tmp_path / f"{name}.gguf", llama(), Q8_0, also)
        with pytest.raises(ModelError, match=message):
            convert(str(tmp_path / f"{name}.gguf"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_which_file_of_several(tmp_path: Path) -> None:
    folder, out = tmp_path / "models", tmp_path / "out"
    folder.mkdir()
    for name in ("a.Q4_K_M.gguf", "a.Q8_0.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"):
        (folder / name).write_bytes(b"not one")

    def refused(message: str, file: str = "") -> None:
        with pytest.raises(ModelError, match=message):
            convert(str(folder), out, file=file)

    refused(r"holds 4 GGUF files; say which one with --file NAME .the larger, the less was rounded.: a.Q4_K_M.gguf \(1 MB\), a.Q8_0.gguf")
    refused("has no c.gguf; its GGUF files are: a.Q4_K_M.gguf", "c.gguf")
    refused(r"is one of 2 parts; join them first with llama.cpp: llama-gguf-split --merge b-00001-of-00002.gguf", "b-00002-of-00002.gguf")
    refused("a.Q8_0.gguf is damaged, cut off, or not a GGUF file", "a.Q8_0.gguf")
    with pytest.raises(ModelError, match="holds 4 GGUF files .* python -m rlhf_studio convert .* --file a.Q4_K_M.gguf"):
        check_causal_lm(str(folder))
    write_gguf(folder / "c.gguf", llama(), Q8_0, pre="of-nobody")
    assert "cuts texts into pieces by the rule 'of-nobody'" in convert(str(folder), out, file="c.gguf").notes[-1]


def test_without_the_package_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match="needs the package that reads GGUF files: pip install gguf"):
        convert(str(tmp_path / "m.gguf"), tmp_path / "out")


@pytest.mark.long
def test_in_a_process_of_its_own(real_helpers: None, tmp_path: Path) -> None:
    model = llama()
    write_gguf(tmp_path / "m.gguf", model, Q4_1)
    out = convert(str(tmp_path / "m.gguf"), tmp_path / "out").folder
    with torch.no_grad():
        torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(out).eval()(IDS).logits, model(IDS).logits, rtol=1e-5, atol=1e-6)
