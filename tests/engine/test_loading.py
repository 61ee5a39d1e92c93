"""Loading models: what cannot be used is refused in one sentence that names the setting; what is odd but works is noted."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models import load_model as loading
from rlhf_studio.engine.models.load_model import LoadedModel, LoadedRewardModel, fetch, load_causal_lm, load_options, load_reward_model
from tests.engine.small_models import save_policy, save_reward_model, save_tokenizer


class Reports:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float | None]] = []

    def __call__(self, text: str, fraction: float | None) -> None:
        self.lines.append((text, fraction))


def load(folder: Path | str) -> LoadedModel:
    return load_causal_lm(str(folder), "main", torch.float32, Reports())


def load_reward(folder: Path | str, label: str = "") -> LoadedRewardModel:
    return load_reward_model(str(folder), "main", label, torch.float32, Reports(), "reward.components.2")


def refusal(action: Callable[[], Any]) -> tuple[str, str]:
    """The setting that is blamed, and the sentence."""
    with pytest.raises(ConfigError) as caught:
        action()
    (problem,) = caught.value.problems
    assert "\n" not in problem.message and len(problem.message) < 400
    return problem.field, problem.message


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def drop_weight(folder: Path, name: str) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# --- policies ----------------------------------------------------------------------------------------------------------------


def test_a_good_folder(tmp_path: Path) -> None:
    reports = Reports()
    loaded = load_causal_lm(str(save_policy(tmp_path / "policy")), "main", torch.bfloat16, reports)
    assert loaded.notes == [] and not loaded.model.training
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}
    assert reports.lines == [(f"Loading {tmp_path / 'policy'}", None)]


def test_odd_pad_tokens_are_noted(tmp_path: Path) -> None:
    folder = save_policy(tmp_path / "policy")
    for pad, note in (("<eos>", "pad token equals its end token"), (None, "has no pad token")):
        save_tokenizer(folder, pad=pad)  # type: ignore[arg-type]
        (text,) = load(folder).notes
        assert note in text


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1)}, folder / "pytorch_model.bin")


def damaged_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not weights")


def short_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def other_sizes(folder: Path) -> None:
    edit_config(folder, hidden_size=64)


def own_code(folder: Path) -> None:
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    (folder / "evil.py").write_text("raise SystemExit('ran the code of a model')")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


DAMAGES = [pickle_only, damaged_weights, short_weights, other_sizes, own_code, no_tokenizer]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_folders_that_cannot_be_used(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    policy, reward = save_policy(tmp_path / "policy", "llama"), save_reward_model(tmp_path / "reward", "llama")
    for folder, action, blamed in ((policy, load, "model.policy"), (reward, load_reward, "reward.components.2.model")):
        damage(folder)
        field, message = refusal(lambda folder=folder, action=action: action(folder))
        assert field == blamed
        assert message.startswith(f"cannot load {folder}: ") and len(message) > len(f"cannot load {folder}: ") + 8


def test_no_random_output_layer(tmp_path: Path) -> None:
    """transformers would make up the missing weights and go on."""
    folder = save_policy(tmp_path / "policy", "llama")
    drop_weight(folder, "lm_head.weight")
    assert refusal(lambda: load(folder)) == (
        "model.policy",
        f"{folder} has no weights for lm_head.weight; it is not a trained language model",
    )
    assert "lm_head.weight" in refusal(lambda: load(save_reward_model(tmp_path / "reward", "llama")))[1]


def test_a_model_without_a_cache_cannot_be_sampled(tmp_path: Path) -> None:
    OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=30, n_embd=32, n_layer=1, n_head=2, n_positions=16)).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert "openai-gpt model without a key-value cache" in refusal(lambda: load(tmp_path))[1]


def test_the_tokenizer_file_counts_and_not_what_its_kind_of_model_usually_has(tmp_path: Path) -> None:
    """transformers reads every Qwen 2 folder with its own Qwen 2 class, to which these words are nothing at all."""
    folder = save_policy(tmp_path, "qwen2")
    assert type(AutoTokenizer.from_pretrained(folder)).__name__ == "Qwen2Tokenizer"
    assert load(folder).tokenizer("w1 w2 w3").input_ids == [3, 4, 5]
    save_reward_model(tmp_path / "reward", "qwen2")
    assert load_reward(tmp_path / "reward").tokenizer("w1 w2 w3").input_ids == [3, 4, 5]


# --- attention and quantized weights -------------------------------------------------------------------------------------------


def options(on_gpu: bool = False, **settings: Any) -> dict[str, Any]:
    config = RunConfig.model_validate({"model": settings, "lora": {"enabled": True}})
    return load_options(config, Compute(torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16))


def test_attention_is_as_chosen_and_gives_the_same(tmp_path: Path) -> None:
    folder = save_policy(tmp_path, "llama", spread=0.2)
    assert options() == {}
    ids = torch.tensor([[2, 3, 4, 5, 6]])
    for attention in ("sdpa", "eager"):
        chosen = load_causal_lm(str(folder), "main", torch.float32, Reports(), options=options(attention=attention)).model
        assert chosen.config._attn_implementation == attention
        with torch.no_grad():
            torch.testing.assert_close(chosen(ids).logits, load(folder).model(ids).logits, atol=1e-5, rtol=0)


def test_an_attention_that_the_model_has_not(tmp_path: Path) -> None:
    folder = save_policy(tmp_path, "bloom")
    field, message = refusal(lambda: load_causal_lm(str(folder), "main", torch.float32, Reports(), options=options(attention="sdpa")))
    assert field == "model.attention" and "BloomForCausalLM does not support" in message


def test_damage_is_not_blamed_on_attention(tmp_path: Path) -> None:
    folder = save_policy(tmp_path, "llama")
    damaged_weights(folder)
    chosen = options(attention="sdpa")
    assert refusal(lambda: load_causal_lm(str(folder), "main", torch.float32, Reports(), options=chosen))[0] == "model.policy"


def test_quantized_weights_need_a_gpu() -> None:
    assert "4bit weights need a CUDA GPU" in refusal(lambda: options(quantization="4bit"))[1]


def test_what_transformers_is_told_about_quantized_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlhf_studio.inputs.checks.machine.find_spec", lambda name: object())
    four = options(on_gpu=True, quantization="4bit")
    assert four["device_map"] == {"": torch.device("cuda")}
    told = four["quantization_config"].to_dict()
    assert (told["load_in_4bit"], told["bnb_4bit_quant_type"], told["bnb_4bit_use_double_quant"]) == (True, "nf4", True)
    assert told["bnb_4bit_compute_dtype"] == "bfloat16"
    assert options(on_gpu=True, quantization="8bit")["quantization_config"].to_dict()["load_in_8bit"] is True


# --- reward models -----------------------------------------------------------------------------------------------------------


def test_a_wrong_label_lists_the_labels(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path, labels=3)
    edit_config(folder, id2label={"0": "bad", "1": "fair", "2": "good"}, label2id={"bad": 0, "fair": 1, "good": 2})
    for label in ("", "LABEL_7", "9"):
        field, message = refusal(lambda label=label: load_reward(folder, label))
        assert field == "reward.components.2.label"
        assert message.endswith("its labels are bad, fair, good")
        assert ("several outputs" in message) if not label else (repr(label) in message)


def test_labels_by_name_and_number(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path, labels=3)
    edit_config(folder, id2label={"0": "1", "1": "good", "2": "0"}, label2id={"1": 0, "good": 1, "0": 2})
    actual = [load_reward(folder, label).label for label in ("good", "1", "0", "2")]
    assert actual == [1, 0, 2, 2]  # a name counts before a number
    assert load_reward(save_reward_model(tmp_path / "single")).label == 0


def test_a_reward_model_without_its_head_is_refused(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path, "llama")
    drop_weight(folder, "score.weight")
    field, message = refusal(lambda: load_reward(folder))
    assert (field, message) == ("reward.components.2.model", f"{folder} has no weights for score.weight; it is not a trained reward model")


def test_reward_weights_are_frozen(tmp_path: Path) -> None:
    model = load_reward(save_reward_model(tmp_path)).model
    assert not model.training and not any(parameter.requires_grad for parameter in model.parameters())


def test_a_head_that_has_a_bias_keeps_it(tmp_path: Path) -> None:
    """Models whose own class has a bias are left alone: here one whose head is not called score at all."""
    folder = save_reward_model(tmp_path)
    loaded = load_reward(folder)
    loaded.model.score = torch.nn.Identity()  # type: ignore[assignment]
    loading._restore_head_bias(loaded.model, folder)
    assert isinstance(loaded.model.score, torch.nn.Identity)


def test_weights_that_are_only_a_pickle_come_with_the_command_that_converts_them(tmp_path: Path) -> None:
    """A door before this one says the same; a model on the hub is fetched without its pickles, so only their absence is seen here."""
    for folder, action in ((save_policy(tmp_path / "policy"), load), (save_reward_model(tmp_path / "reward"), load_reward)):
        pickle_only(folder)
        _, message = refusal(lambda folder=folder, action=action: action(folder))
        assert f"convert it first: python -m rlhf_studio convert {folder} converted/{folder.name}" in message


# --- the hub -----------------------------------------------------------------------------------------------------------------


def test_a_hub_model_is_downloaded_without_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_policy(tmp_path / "policy")
    requests: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        requests.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(loading, "snapshot_download", download)
    assert fetch("someone/model", "v2", Reports(), "model.policy") == folder
    assert (requests["name"], requests["revision"]) == ("someone/model", "v2")
    assert not any(pattern.endswith((".bin", ".pt", ".pkl", ".py", "*")) for pattern in requests["allow_patterns"])


def hub_error(status: int) -> RepositoryNotFoundError:
    library = importlib.import_module(loading.NETWORK_ERROR.__module__.split(".")[0])
    response = library.Response(status, request=library.Request("GET", "https://hub.invalid/api/models/a/b"))
    return RepositoryNotFoundError(f"{status} Client Error.\n\nRepository Not Found for url", response=response)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (lambda: hub_error(404), "Repository Not Found"),
        (lambda: LocalEntryNotFoundError("Cannot find an appropriate cached snapshot folder"), "cached snapshot"),
        (lambda: OSError("No space left on device"), "No space left"),
        (lambda: HFValidationError("Repo id must use alphanumeric chars"), "no such folder, and it cannot be a hub id"),
        (lambda: loading.NETWORK_ERROR("timed out"), "timed out"),
        (lambda: loading.NETWORK_ERROR(""), loading.NETWORK_ERROR.__name__),
    ],
    ids=["not found", "offline", "disk", "name", "network", "silent"],
)
def test_failures_of_the_hub(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], part: str) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise error()

    monkeypatch.setattr(loading, "snapshot_download", download)
    field, message = refusal(lambda: load("someone/model"))
    assert field == "model.policy"
    assert message.startswith("cannot load someone/model: ") and part in message
    assert refusal(lambda: load_reward("someone/model"))[0] == "reward.components.2.model"


def test_download_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every report is written to disk, so a download of thousands of pieces must not send them all."""
    now = [100.0]
    monkeypatch.setattr(loading, "monotonic", lambda: now[0])
    reports = Reports()
    bar = loading._progress_class("someone/model", reports)(total=2_000_000, unit="B", disable=True)
    for _ in range(1000):
        bar.update(1000)
        now[0] += 0.001
    first, second = reports.lines
    assert first == ("Downloading someone/model: 0 of 2 MB", 0.0005)
    assert second[1] == pytest.approx(0.25, abs=0.01)  # half a second later
    files = loading._progress_class("someone/model", reports)(total=3, unit="it")
    files.update(1)
    empty = loading._progress_class("someone/model", reports)(total=0, unit="B")
    empty.update(1)
    assert len(reports.lines) == 2  # only bytes of a known total are told
