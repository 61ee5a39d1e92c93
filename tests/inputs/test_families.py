"""Kinds of models that cannot be trained right are refused by their config.json and transformers' source, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs import families
from rlhf_studio.inputs.families import (
    BYPASSED,
    BYPASSING,
    REFUSED_TYPES,
    REFUSED_WITH_LORA,
    family_problem,
    forward_arguments,
    mapped_types,
)
from rlhf_studio.inputs.models.facts import ENCODER_TYPES, check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.preflight import inspect_run

REFUSED = {
    "bart": ("BartForCausalLM", "counts positions from a row's start"),
    "mvp": ("MvpForCausalLM", "counts positions from a row's start"),
    "minimax": ("MiniMaxForCausalLM", "keeps a cache of its own kind (MiniMaxCache)"),
    "mamba": ("MambaForCausalLM", "without a key-value cache, which sampling needs"),
    "zamba2": ("Zamba2ForCausalLM", "does not keep the smallest time step"),
    "musicgen_decoder": ("MusicgenForCausalLM", "loads only as a part of a larger model"),
    "blt": ("BltForCausalLM", "reads bytes in patches"),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_kind_that_cannot_be_trained(model_type: str, make_model: Any) -> None:
    architecture, reason = REFUSED[model_type]
    folder = make_model(model_type=model_type, architectures=[architecture])
    with pytest.raises(ModelError) as caught:
        check_causal_lm(str(folder))
    article = "an" if model_type == "openai-gpt" else "a"
    assert str(caught.value).startswith(f"{folder} is {article} {model_type} model") and reason in str(caught.value)
    assert str(caught.value).endswith("use another model")


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [("gpt2", "GPT2LMHeadModel"), ("bloom", "BloomForCausalLM"), ("llama", "LlamaForCausalLM"), ("internlm3", "LlamaForCausalLM")],
)
def test_kinds_that_can(model_type: str, architecture: str) -> None:
    assert family_problem(model_type, architecture) is None


def test_lora_where_it_cannot_be(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    make_config()
    laguna = make_model("laguna", model_type="laguna", architectures=["LagunaForCausalLM"])
    falcon = make_model("falcon", model_type="falcon_h1", architectures=["FalconH1ForCausalLM"])
    assert _problems(make_config(model__policy=str(laguna)), tmp_path) == {}
    wrong = _problems(make_config(model__policy=str(laguna), lora__enabled=True), tmp_path)
    assert wrong["lora.enabled"] == f"LoRA cannot be used with a laguna model: {REFUSED_WITH_LORA['laguna']}; train it in full"
    assert _problems(make_config(model__policy=str(falcon), lora__enabled=True), tmp_path) == {}
    wrong = _problems(make_config(model__policy=str(falcon), lora__enabled=True, lora__target_modules="out_proj"), tmp_path)
    assert wrong["lora.target_modules"].startswith(("an adapter on out_proj of a falcon_h1 model would do nothing", "no layer is called"))


def test_beyond_what_sparse_attention_reads_whole_there_is_nothing_exact(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    make_config()
    policy = make_model("sparse", model_type="deepseek_v32", architectures=["DeepseekV32ForCausalLM"], index_topk=24)
    short = make_config(model__policy=str(policy), generation__response_length=8)
    assert _problems(short, tmp_path) == {}  # 3 tokens and 8
    wrong = _problems(make_config(model__policy=str(policy), generation__response_length=22), tmp_path)
    assert wrong["generation.response_length"].startswith("in texts of more than 24 tokens this model attends only to those that it picks")
    assert wrong["generation.response_length"].endswith("3 tokens of prompt leave 21 for the response")


def _problems(config: Any, workspace: Path) -> dict[str, str]:
    return {problem.field: problem.message for problem in inspect_run(config, workspace, gpus=lambda: ()).problems}


def test_the_tables_name_types_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*REFUSED_TYPES, *REFUSED_WITH_LORA, *BYPASSING, *families.POSITIONS_FROM_MASK} <= mapped_types()
    assert "out_proj" in BYPASSED
    monkeypatch.setattr(families, "find_spec", lambda _: None)
    assert families.model_source.__wrapped__("llama") == ""


def test_arguments_are_read_from_the_class_alone() -> None:
    source = """
class AModel(Base):
    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Output:
        x = 1

class AForCausalLM(Base):
    def forward(
        self,
        input_ids: Tensor | None = None,
        past_key_values=None,
        **kwargs,
    ) -> Output:
        other = 2
"""
    assert forward_arguments(source, "AForCausalLM") == {"input_ids", "past_key_values"}
    assert forward_arguments(source, "BForCausalLM") == set()


def test_every_encoder_that_can_be_told_to_read_one_way_is_known() -> None:
    """Without ``is_decoder`` such a model reads both ways: what it says about a token depends on those after it."""
    encoders = {name for name in mapped_types() if "add `is_decoder=True" in families.model_source(name)}
    assert encoders and encoders <= ENCODER_TYPES
