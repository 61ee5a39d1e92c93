"""Model folders: what counts as usable, and every sentence an unusable one gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rlhf_studio.config.bundled import ASSETS, BUNDLED
from rlhf_studio.inputs.models import facts as facts_module
from rlhf_studio.inputs.models.facts import check_causal_lm, check_reward_model, supported_architectures
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.pickles import convert_command
from rlhf_studio.inputs.trained import resolve
from tests.inputs.conftest import WORDS, write_tokenizer


def test_bundled_names_lead_into_the_assets_and_others_stay() -> None:
    assert resolve("bundled/world-policy") == str(ASSETS / "world" / "policy")
    assert resolve("gpt2") == "gpt2"
    assert resolve("bundled/other") == "bundled/other"
    world = {"bundled/world-policy", "bundled/world-reward", "bundled/world-prompts", "bundled/world-prompts-heldout"}
    sums = {"bundled/sums-policy", "bundled/sums-prompts", "bundled/sums-prompts-heldout"}
    assert set(BUNDLED) == world | sums | {"bundled/unsafe-prompts", "bundled/harmless-prompts", "bundled/swap-pairs"}


def test_facts_of_a_causal_model(make_model: Any) -> None:
    folder = make_model()
    facts = check_causal_lm(str(folder))
    assert (facts.path, facts.architecture, facts.vocab_size, facts.max_positions) == (folder, "GPT2LMHeadModel", 8, 64)
    assert facts.parameters == 8 * 4 + 4 * 12 + 12
    assert (facts.has_pad, facts.has_end, facts.pad_equals_eos, facts.download_bytes) == (True, True, False, 0)
    assert facts.tokenizer == folder / "tokenizer.json"


def test_pad_equal_to_the_end_token_and_no_pad(make_model: Any) -> None:
    assert check_causal_lm(str(make_model("a", tokenizer={"pad_token": {"content": "<end>"}}))).pad_equals_eos
    facts = check_causal_lm(str(make_model("b", tokenizer={"pad_token": None, "eos_token": None})))
    assert (facts.has_pad, facts.has_end, facts.pad_equals_eos) == (False, False, False)


def test_sharded_weights(make_model: Any) -> None:
    folder = make_model(weights=False)
    for part in ("one", "two"):
        save_file({part: np.zeros((2, 3), np.float16)}, str(folder / f"{part}.safetensors"))
    index = {"weight_map": {"one": "one.safetensors", "two": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check_causal_lm(str(folder)).parameters == 12
    (folder / "two.safetensors").unlink()
    assert_refused(folder, "is incomplete: two.safetensors is missing (1 of 2 weight files)")
    (folder / "model.safetensors.index.json").write_text("{}")
    assert_refused(folder, "has no weight_map")


def assert_refused(folder: Path | str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        check_causal_lm(str(folder))
    assert message in str(caught.value)


CONFIGS = {
    "classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "is a LlamaForSequenceClassification, not a causal"),
    "masked": ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "is an encoder (BertForMaskedLM), not a causal"),
    "encoder-decoder": ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, "is an encoder-decoder model"),
    "unknown": ({"architectures": ["Zeta9ForCausalLM"]}, "the installed transformers does not know Zeta9ForCausalLM"),
    "own code": ({"architectures": ["Zeta9ForCausalLM"], "auto_map": {"AutoModel": "x.Y"}}, "needs its own Python code"),
    "no architecture": ({"architectures": None}, "does not name its architecture"),
    "small vocabulary": ({"vocab_size": 5}, "has 8 tokens, but the model knows only 5"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_does_not_fit(case: str, make_model: Any) -> None:
    config, message = CONFIGS[case]
    assert_refused(make_model(**config), message)


def test_without_the_table_of_transformers_the_ending_of_the_name_decides(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "GPT2LMHeadModel" in supported_architectures("CAUSAL_LM")
    assert "GPT2ForSequenceClassification" in supported_architectures("SEQUENCE_CLASSIFICATION")
    assert supported_architectures("NO_SUCH_TASK") == frozenset()
    monkeypatch.setattr(facts_module, "supported_architectures", lambda _: frozenset())
    assert check_causal_lm(str(make_model(architectures=["Zeta9ForCausalLM"]))).architecture == "Zeta9ForCausalLM"


@pytest.mark.parametrize(
    ("present", "message"),
    [
        ("pytorch_model.bin", "has its weights only as a pickle (pytorch_model.bin)"),
        ("tf_model.h5", "model.safetensors is missing, and tf_model.h5 is for TensorFlow; use the original model with safetensors"),
        ("weights.npz", "weights.npz is for MLX or NumPy arrays; use the original model"),
        ("model.Q8_0.gguf", "holds a GGUF file, which cannot be trained as it is; convert it first: python -m rlhf_studio convert"),
        ("model-00001-of-00002.safetensors", "but not model.safetensors.index.json, which says what is in which file; get that file too"),
        ("policy.safetensors", "has policy.safetensors, but no model.safetensors; if that file holds the whole model"),
        ("notes.md", "has no weights: model.safetensors is missing"),
    ],
)
def test_weights_that_are_not_safetensors(present: str, message: str, make_model: Any) -> None:
    folder = make_model(weights=False)
    (folder / present).write_bytes(b"\x80\x04canary")
    assert_refused(folder, message)


def test_weights_that_were_quantized_before(make_model: Any) -> None:
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "awq": ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "has AWQ weights of 4 bits, which were made for answering"),
        "gptq": ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "has GPTQ weights of 8 bits"),
        "nf4": (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "bitsandbytes weights of 4 bits, .* first: python",
        ),
        "new": ({"quantization_config": {"quant_method": "tomorrow"}}, "has tomorrow weights, which were made for answering"),
        "mlx": (
            {"quantization": {"bits": 4, "group_size": 64}, "quantization_config": {"bits": 4, "group_size": 64}},
            "has weights of 4 bits for Apple's MLX, .* mlx_lm.convert --hf-path .*mlx --mlx-path converted/mlx --dequantize",
        ),
    }
    for name, (config, message) in cases.items():
        folder = make_model(name, **config)
        with pytest.raises(ModelError, match=message):
            check_causal_lm(str(folder))
    assert check_causal_lm(str(make_model("plain", quantization_config=None))).parameters


def test_safetensors_beside_a_pickle_are_fine(make_model: Any) -> None:
    folder = make_model()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04canary")
    assert check_causal_lm(str(folder)).parameters


def _header(entries: Any, data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(begin: int, end: int, shape: Any = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


DAMAGED = {
    "empty": (b"", "is cut off or not a safetensors file"),
    "header longer than the file": ((1 << 40).to_bytes(8, "little") + b"{}", "is cut off or not"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is a Git LFS pointer"),
    "not json": (_header(b"{oops"), "has a damaged header"),
    "deep": (_header(b"[" * 100_000), "has a damaged header"),
    "entry without shape": (_header({"w": {"dtype": "F32"}}), "has a damaged entry for w"),
    "negative shape": (_header({"w": _entry(0, 8, [-2])}), "has a damaged entry for w"),
    "size and shape": (_header({"w": _entry(0, 4)}, b"1234"), "gives w a size that does not fit its shape"),
    "overlap": (_header({"a": _entry(0, 8), "b": _entry(4, 12)}, b"x" * 12), "overlap or leave gaps"),
    "cut off": (_header({"a": _entry(0, 8)}, b"x" * 5), "is cut off: 3 bytes are missing"),
    "longer": (_header({"a": _entry(0, 8)}, b"x" * 10), "has 2 bytes after its last tensor"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_weights(case: str, make_model: Any) -> None:
    content, message = DAMAGED[case]
    folder = make_model(weights=False)
    (folder / "model.safetensors").write_bytes(content)
    assert_refused(folder, message)


def test_an_unknown_number_format_is_not_held_against_the_file(make_model: Any) -> None:
    folder = make_model(weights=False)
    (folder / "model.safetensors").write_bytes(_header({"__metadata__": {"a": "b"}, "w": _entry(0, 1, [2], "F4")}, b"x"))
    assert check_causal_lm(str(folder)).parameters == 2


def test_other_kinds_of_folders(tmp_path: Path) -> None:
    assert_refused(tmp_path, "holds no model: config.json is missing")
    (tmp_path / "w.gguf").touch()
    assert_refused(tmp_path, f"holds a GGUF file, which cannot be trained as it is; convert it first: {convert_command(str(tmp_path))}")
    (tmp_path / "adapter_config.json").touch()
    assert_refused(tmp_path, "adapter_config.json of")
    assert_refused(tmp_path / "w.gguf", f"convert it first: {convert_command(str(tmp_path / 'w.gguf')).removesuffix('.gguf')}, then name")
    assert_refused(tmp_path / "adapter_config.json", "is a file; give the folder")
    assert_refused(tmp_path / "nowhere", "there is no folder")
    assert_refused("bundled/other", "there is no bundled/other; there are: bundled/world-policy, bundled/world-reward")


@pytest.mark.parametrize(
    "name",
    [
        "~/model",
        "../x",
        "a/b/c",
        "-o",
        "x\0y",
        "\ud800",
        "http://169.254.169.254/",
        "$(id)",
    ],
)
def test_names_that_are_neither_folder_nor_hub_id_never_reach_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")  # so that ../x is nobody's folder
    assert_refused(name, "there is no folder")


def test_broken_json_and_tokenizer(make_model: Any) -> None:
    folder = make_model()
    (folder / "tokenizer.json").write_text("{}")
    assert_refused(folder, "tokenizer.json of")
    (folder / "tokenizer.json").unlink()
    assert_refused(folder, "has no tokenizer files")
    (folder / "config.json").write_text("{")
    assert_refused(folder, "config.json of")
    (folder / "config.json").write_text("[]")
    assert_refused(folder, "is not a JSON object")


def test_a_tokenizer_in_another_format_is_left_to_the_engine(make_model: Any) -> None:
    folder = make_model()
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    (folder / "tokenizer_config.json").unlink()
    facts = check_causal_lm(str(folder))
    assert (facts.tokenizer, facts.has_pad, facts.has_end) == (None, None, None)


def test_a_folder_that_cannot_be_read(make_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        assert_refused(folder, "cannot be read: Permission denied")
    monkeypatch.setattr("os.scandir", refuse)
    assert_refused(folder, "cannot be read: Permission denied")


def test_positions_come_from_a_nested_text_config(make_model: Any) -> None:
    folder = make_model(n_positions=None, text_config={"max_position_embeddings": 77})
    assert check_causal_lm(str(folder)).max_positions == 77
    assert check_causal_lm(str(make_model("b", n_positions=None))).max_positions is None


# --- adapters ----------------------------------------------------------------------------------------------------------------


def make_adapter(folder: Path, base: Path | str | None, **settings: Any) -> Path:
    folder.mkdir()
    named = {"peft_type": "LORA", "base_model_name_or_path": None if base is None else str(base), **settings}
    (folder / "adapter_config.json").write_text(json.dumps(named))
    save_file({"a.lora_A.weight": np.zeros((2, 4), np.float32)}, str(folder / "adapter_model.safetensors"))
    return folder


def test_an_adapter_is_followed_to_its_base(make_model: Any, tmp_path: Path) -> None:
    base = make_model()
    adapter = make_adapter(tmp_path / "adapter", base)
    facts, base_facts = check_causal_lm(str(adapter)), check_causal_lm(str(base))
    assert (facts.base, facts.path, facts.tokenizer) == (str(base), adapter, base_facts.tokenizer)
    assert (facts.parameters, facts.vocab_size, facts.tensors) == (base_facts.parameters, base_facts.vocab_size, base_facts.tensors)
    write_tokenizer(adapter)
    assert check_causal_lm(str(adapter)).tokenizer == adapter / "tokenizer.json"
    assert check_causal_lm(str(make_adapter(tmp_path / "second", adapter))).base == str(base)
    write_tokenizer(adapter, [*WORDS, "more"])
    assert_refused(adapter, "has 9 tokens, but the model knows only 8")


def test_the_tokenizer_may_lie_with_the_adapter_alone(make_model: Any, tmp_path: Path) -> None:
    base = make_model()
    adapter = make_adapter(tmp_path / "adapter", base)
    (base / "tokenizer.json").unlink()
    (base / "tokenizer_config.json").unlink()
    assert_refused(adapter, "its base cannot be used")
    write_tokenizer(adapter)
    facts = check_causal_lm(str(adapter))
    assert (facts.tokenizer, facts.has_end) == (adapter / "tokenizer.json", True)


def test_adapters_that_cannot_be_used(make_model: Any, make_reward: Any, tmp_path: Path) -> None:
    base = make_model()
    first = f"into its base model first: {convert_command(str(tmp_path / 'ia3'))}"
    cases: list[tuple[Any, str]] = [
        (make_adapter(tmp_path / "nameless", None), "does not name its base model"),
        (make_adapter(tmp_path / "prefix", base, peft_type="PREFIX_TUNING"), "cannot be merged into its base: it puts learned vectors"),
        (make_adapter(tmp_path / "ia3", base, peft_type="IA3"), f"is an IA3 adapter, not a LoRA adapter; merge it {first}"),
        (make_adapter(tmp_path / "lost", tmp_path / "none"), "is a LoRA adapter, and its base cannot be used: there is no folder"),
        (make_adapter(tmp_path / "classifier", make_reward()), "its base cannot be used"),
        (make_adapter(tmp_path / "itself", tmp_path / "itself"), "is an adapter of an adapter, more than 4 deep"),
    ]
    pickled = make_adapter(tmp_path / "pickled", base)
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    damaged = make_adapter(tmp_path / "damaged", base)
    (damaged / "adapter_model.safetensors").write_bytes(b"x")
    cases += [(pickled, "without adapter_model.safetensors"), (damaged, "is cut off or not a safetensors file")]
    for folder, message in cases:
        assert_refused(folder, message)


def test_a_reward_model_cannot_be_an_adapter(make_reward: Any, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", make_reward())
    with pytest.raises(ModelError, match="is a LoRA adapter, not a whole model"):
        check_reward_model(str(adapter))


# --- reward models ---------------------------------------------------------------------------------------------------------


def test_a_single_output_needs_no_label(make_reward: Any) -> None:
    folder = str(make_reward())
    assert check_reward_model(folder).labels == ["score"]
    assert check_reward_model(folder, label="score") and check_reward_model(folder, label="0")


def test_several_outputs_need_one(make_reward: Any) -> None:
    labels = tuple(f"L{index}" for index in range(12))
    folder = str(make_reward(labels=labels))
    assert check_reward_model(folder, label="L11").labels == list(labels)
    assert check_reward_model(folder, label="11")
    with pytest.raises(ModelError, match="has 12 labels; say which one is the reward: L0, L1, L2") as caught:
        check_reward_model(folder)
    assert caught.value.setting == "label"
    for label in ("positive", "12", "²"):
        with pytest.raises(ModelError, match="its labels are: L0") as caught:
            check_reward_model(folder, label=label)
        assert caught.value.setting == "label"


def test_labels_without_names(make_reward: Any) -> None:
    assert check_reward_model(str(make_reward(id2label=None)), label="LABEL_1").labels == ["LABEL_0", "LABEL_1"]
    assert check_reward_model(str(make_reward("b", id2label=None, num_labels=1))).labels == ["LABEL_0"]


def test_a_policy_is_no_reward_model(make_model: Any) -> None:
    with pytest.raises(ModelError, match="is a GPT2LMHeadModel, not a sequence-classification model") as caught:
        check_reward_model(str(make_model()))
    assert caught.value.setting == "model"
