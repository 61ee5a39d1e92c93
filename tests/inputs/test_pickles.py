"""Pickled weights become safetensors that plain transformers reads with the same result; nothing in a pickle is ever run."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.cli.main import main
from rlhf_studio.engine.process.unpickling import NotWeights, read_pickle
from rlhf_studio.inputs.models.conversion import convert
from rlhf_studio.inputs.models.facts import check_causal_lm, check_reward_model
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.pickles import convert_command
from tests.engine.small_models import save_policy, save_reward_model

pytestmark = pytest.mark.slow


class Canary:
    """Leaves a file behind when an ordinary reader opens its pickle."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {shlex.quote(str(self.path))}",)


def pickled(folder: Path, *, shards: int = 1, legacy: bool = False) -> Path:
    """The model's safetensors rewritten as older versions of transformers saved it: tied weights stored once, under two names."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if "transformer.wte.weight" in tensors and "score.weight" not in tensors:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
    names = sorted(tensors)
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
        return folder
    parts = {f"pytorch_model-{n + 1:05}-of-{shards:05}.bin": names[n::shards] for n in range(shards)}
    for file, part in parts.items():
        torch.save({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


@pytest.mark.parametrize(("shards", "legacy"), [(1, True), (3, False)], ids=["before torch 1.6", "sharded"])
def test_a_language_model(shards: int, legacy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = save_policy(tmp_path / "source", spread=0.2), tmp_path / "deep" / "out"
    ids = torch.tensor([[4, 9, 3, 17, 5]])
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(source).eval()(ids).logits
    pickled(source, shards=shards, legacy=legacy)
    assert main(["convert", str(source), str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    weights = sorted(path.name for path in out.iterdir() if "model" in path.name)
    assert (weights[-1], len(weights)) == (("model.safetensors", 1) if shards == 1 else ("model.safetensors.index.json", shards + 1))
    assert [path.name for path in out.parent.iterdir()] == ["out"]  # nothing is left of the temporary folder
    model, info = AutoModelForCausalLM.from_pretrained(out, use_safetensors=True, output_loading_info=True)
    assert not info["missing_keys"]
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).logits, expected)
    assert AutoTokenizer.from_pretrained(out)("w3 w1").input_ids == AutoTokenizer.from_pretrained(source)("w3 w1").input_ids
    assert check_causal_lm(str(out)).parameters


def test_a_reward_model_with_labels(tmp_path: Path) -> None:
    source = save_reward_model(tmp_path / "source", "distilbert", labels=2)
    ids = torch.tensor([[4, 9, 3]])
    with torch.no_grad():
        expected = AutoModelForSequenceClassification.from_pretrained(source).eval()(ids).logits
    converted = convert(str(pickled(source)), tmp_path / "out")
    with torch.no_grad():
        assert torch.equal(AutoModelForSequenceClassification.from_pretrained(converted.folder).eval()(ids).logits, expected)
    assert check_reward_model(str(converted.folder), label="LABEL_1").labels == ["LABEL_0", "LABEL_1"]


def test_an_adapter(tmp_path: Path) -> None:
    source = tmp_path / "adapter"
    source.mkdir()
    (source / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "base"}')
    torch.save({"base_model.model.x.lora_A.weight": torch.ones(2, 3)}, source / "adapter_model.bin")
    with pytest.raises(ModelError, match="python -m rlhf_studio convert .*adapter converted/adapter"):
        check_causal_lm(str(source))
    out = convert(str(source), tmp_path / "out").folder
    assert load_file(out / "adapter_model.safetensors")["base_model.model.x.lora_A.weight"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_pickle_that_would_run_code_is_refused_and_not_run(
    real_helpers: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out, trace = save_policy(tmp_path / "source"), tmp_path / "out", tmp_path / "was-run"
    (source / "model.safetensors").unlink()
    file = source / "pytorch_model.bin"
    torch.save({"a": torch.zeros(2), "b": Canary(trace)}, file)
    assert main(["convert", str(source), str(out)]) == 2
    error = capsys.readouterr().err
    assert "pytorch_model.bin" in error and "is refused: it asks for posix.system" in error
    assert not trace.exists() and not out.exists() and [path.name for path in tmp_path.iterdir()] == ["source"]
    with contextlib.suppress(RuntimeError):
        torch.load(file, weights_only=False)  # the canary does sing for a careless reader
    assert trace.exists()


def test_folders_with_nothing_to_convert(tmp_path: Path) -> None:
    def refused(part: str, out: Path = tmp_path / "out") -> None:
        with pytest.raises(ModelError, match=part):
            convert(str(source), out)
        assert not (tmp_path / "out").exists()

    source = save_policy(tmp_path / "source")
    refused("has safetensors weights already")
    (source / "model.safetensors").unlink()
    refused("has no pytorch_model.bin, no adapter_model.bin and no GGUF file")
    index = source / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"a": "pytorch_model-00002-of-00002.bin"}}')
    refused("is incomplete: pytorch_model-00002-of-00002.bin is missing")
    index.write_text('{"weight_map": 3}')
    refused("is damaged: it does not list the weight files")
    index.unlink()
    torch.save({"a": torch.zeros(1).expand(2**40)}, source / "pytorch_model.bin")
    refused("pytorch_model.bin of .* needs far more memory")
    refused("is not an empty folder", source)


def test_files_that_are_not_weights(tmp_path: Path) -> None:
    def refused(part: str) -> None:
        with pytest.raises(NotWeights, match=part):
            read_pickle(file)

    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(b"not weights")
    refused("is damaged")
    torch.save({"a": torch.zeros(4000)}, file)
    file.write_bytes(file.read_bytes()[:-9000])
    refused("is damaged")
    torch.save({"state_dict": {"a": torch.zeros(2)}, "step": 3}, file)
    refused("holds dict 'state_dict' beside tensors; save the model's state_dict alone")
    file.write_bytes(pickle.dumps({"a": Canary(tmp_path / "was-run")}, protocol=2))
    refused("is refused: it asks for posix.system")
    assert not (tmp_path / "was-run").exists()
    torch.save({"a": torch.eye(2).to_sparse()}, file)
    refused("holds a as a sparse or quantized tensor")
    torch.save([torch.zeros(2)], file)
    refused("does not hold tensors by name")


def test_a_side_file_that_leads_out_of_the_folder_is_not_copied(tmp_path: Path) -> None:
    source, out = pickled(save_policy(tmp_path / "source")), tmp_path / "out"
    (tmp_path / "shadow").write_text("secret")
    (source / "secret.json").symlink_to("../shadow")
    with pytest.raises(ModelError, match=r"secret\.json of .* is a link that leads out of the folder; put the file itself there"):
        convert(str(source), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shadow", "source"]
    (source / "secret.json").unlink()
    (source / "same.json").symlink_to("config.json")
    convert(str(source), out)
    assert (out / "same.json").read_bytes() == (source / "config.json").read_bytes() and not (out / "same.json").is_symlink()


def test_a_snapshot_in_the_hubs_cache_is_links_to_its_own_blobs(tmp_path: Path) -> None:
    source, cache = pickled(save_policy(tmp_path / "source")), tmp_path / "models--a--b"
    snapshot = cache / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, path in enumerate(sorted(source.iterdir())):
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
        path.rename(cache / "blobs" / str(number))
    out = convert(str(snapshot), tmp_path / "out").folder
    assert (out / "config.json").read_bytes() == (snapshot / "config.json").read_bytes() and not (out / "config.json").is_symlink()
    (cache / "refs").write_text("not a blob")
    (snapshot / "notes.txt").symlink_to("../../refs")
    with pytest.raises(ModelError, match="notes.txt of .* leads out"):
        convert(str(snapshot), tmp_path / "second")


def test_the_refusal_at_the_door_names_the_command_with_the_model(tmp_path: Path) -> None:
    source = pickled(save_policy(tmp_path / "my model"))
    with pytest.raises(ModelError) as caught:
        check_causal_lm(str(source))
    command = str(caught.value).split("convert it first: ")[1]
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "rlhf_studio", "convert"]
    assert main([*words[3:-1], str(tmp_path / "out")]) == 0
    assert convert_command("lvwerra/gpt2-imdb") == "python -m rlhf_studio convert lvwerra/gpt2-imdb converted/gpt2-imdb"
    assert convert_command("a/b", "v2").endswith("convert a/b converted/b --revision v2")
