"""Four old programs of TRL's users, with local models: they run to their end, and their runs can be opened."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import datasets
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import refuse_only_read
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import tracing

PROGRAMS = Path(__file__).parent / "programs"
WORLD = ASSETS / "world"
Run = Callable[..., RunReader]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The world's policy and reward model with one layer each: what they say is of no matter here."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    for name, kind in (("policy", AutoModelForCausalLM), ("reward", AutoModelForSequenceClassification)):
        kind.from_config(AutoConfig.from_pretrained(WORLD / name, n_layer=1)).save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(WORLD / name).save_pretrained(folder / name)
    with tracing(False):
        yield folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program in this process, in a workspace of its own; gives the run that it has recorded."""
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def program(name: str, *arguments: str) -> RunReader:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        names = runpy.run_path(str(PROGRAMS / name), run_name="__main__")
        (names.get("ppo_trainer") or names["trainer"]).close()  # the end of the program would
        (folder,) = (tmp_path / "workspace" / "runs").iterdir()
        return RunReader(folder)

    return program


def save_reviews(folder: Path, key: str, count: int) -> Path:
    folder.mkdir(exist_ok=True)
    lines = (WORLD / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    path = folder / "train.jsonl"
    path.write_text("\n".join(json.dumps({key: json.loads(line)["prompt"]}) for line in lines), encoding="utf-8")
    return path


def save_classifier(folder: Path) -> Path:
    """A random DistilBERT with the two labels of a sentiment classifier."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "the": 2, "a": 3, "film": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64).save_pretrained(folder)
    labels = {0: "NEGATIVE", 1: "POSITIVE"}
    config = DistilBertConfig(vocab_size=5, dim=8, hidden_dim=8, n_layers=1, n_heads=1, max_position_embeddings=64, id2label=labels)
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    return folder


def check_run(reader: RunReader, steps: int, parts: set[str]) -> None:
    """What Live, the inspector and the doctor read is there."""
    status = reader.status()
    assert (status.step, status.state, status.total_steps) == (steps, "finished", steps), status.cause
    rollout = reader.rollout(steps, 0)
    assert set(rollout.parts) == parts and rollout.tokens is not None and len(rollout.tokens.arrays["advantages"]) == rollout.length
    found = {finding.check for finding in diagnose(reader).findings}
    assert "settings-held-out" not in found  # the program holds its prompts, and may hold some out
    with pytest.raises(StoreError, match=r"was made by \w+\.py, which has its prompts and rewards: run that again"):
        refuse_only_read(reader)


@pytest.mark.parametrize("program", ["sentiment_notebook.py", "classic_page.py"])
def test_a_classic_program_runs(run: Run, home: Path, tmp_path: Path, program: str) -> None:
    reviews, out = save_reviews(tmp_path / "data", "text", 8), tmp_path / "out"
    reader = run(program, str(home / "policy"), str(save_classifier(tmp_path / "classifier")), str(reviews), str(out))
    check_run(reader, 2, {"score"})
    trained, before = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (out, home / "policy"))
    assert any(not torch.equal(trained[name], before[name]) for name in before)
    assert AutoTokenizer.from_pretrained(out).eos_token_id == 1


@pytest.mark.parametrize("like", ["ppo", "ppo_tldr", pytest.param("ppo with adapters", marks=pytest.mark.long)])
def test_a_later_program_runs(run: Run, home: Path, tmp_path: Path, like: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = save_reviews(tmp_path / "data", "prompt", 12).parent
    (data / "validation.jsonl").write_text((data / "train.jsonl").read_text(encoding="utf-8")[:400].rpartition("\n")[0], encoding="utf-8")
    options: dict[str, Any] = {
        **{
            "dataset_name": data,
            "model_name_or_path": home / "policy",
            "sft_model_path": home / "policy",
            "output_dir": tmp_path / "out",
        },
        **{"reward_model_path": home / "reward", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        **{"total_episodes": 8, "response_length": 6, "missing_eos_penalty": 1.0, "learning_rate": 1e-4, "num_ppo_epochs": 1},
    }
    if like == "ppo_tldr":
        options |= {"dataset_test_split": "validation", "stop_token": "eos", "eval_strategy": "steps", "eval_steps": 100}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    adapters = ["--use_peft", "--lora_target_modules", "c_attn"] if like == "ppo with adapters" else []
    check_run(reader := run("later_ppo.py", *arguments, *adapters), 2, {"reward model"})
    measured = {step: metrics["eval/scores"] for step, metrics in reader.metrics_since(0)}  # of the dataset that is not trained on
    scores = [answer.score for step, answer in reader.watched() if step == 1]
    assert scores and measured == {1: pytest.approx(np.mean(scores)), 2: ANY}
    saved = "adapter_model.safetensors" if adapters else "model.safetensors"
    assert (tmp_path / "out" / saved).exists() and (tmp_path / "out" / "tokenizer.json").exists()
    assert "model response: " in capsys.readouterr().out
