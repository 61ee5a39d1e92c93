"""Settings of the stages around PPO that another part uses: each arrives there, seen by what it does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid, softplus
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.stages.dpo import build_dpo
from rlhf_studio.engine.stages.reward_model.stage import build_reward_stage
from rlhf_studio.engine.stages.sft import build_sft
from rlhf_studio.engine.stages.supervised.examples import load_demonstrations
from rlhf_studio.inputs.examples import PromptsError, read_demonstrations, read_pairs
from rlhf_studio.inputs.prompts.sources import tables
from tests.engine.small_models import save_policy
from tests.engine.stage_settings import STAGES, settings
from tests.inputs.in_process import in_process
from tests.inputs.test_tables import write_parquet

CPU = Compute(torch.device("cpu"), torch.float32)
BUILD: dict[str, Callable[..., Any]] = {"sft": build_sft, "reward_model": build_reward_stage, "dpo": build_dpo}


def quiet(text: str, fraction: float | None) -> None:
    """Progress that nobody wants."""


def build(folder: Path, stage: str, model: dict[str, Any] | None = None, **training: Any) -> Any:
    """A stage of a small random model with 20 examples, of which 4 are held out."""
    values = settings(folder, stage, **training)
    values["model"] |= model or {}
    return BUILD[stage](parse_config(values), CPU, quiet)[0]


# --- models ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["sft", "reward_model"])
def test_training_starts_from_the_named_model(stage: str, tmp_path: Path) -> None:
    built = build(tmp_path, stage).model.state_dict()
    named = {name: tensor for name, tensor in load_file(tmp_path / "policy" / "model.safetensors").items() if "lm_head" not in name}
    assert len(named) > 10 and all(torch.equal(built[name], tensor) for name, tensor in named.items())


@pytest.mark.parametrize("stage", STAGES)
def test_gradient_checkpointing_computes_each_layer_again(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [build(tmp_path, stage, {"gradient_checkpointing": again}).model for again in (False, True)]
    kind = type(next(module for module in models[0].modules() if isinstance(module, GradientCheckpointingLayer)))
    forward, calls = kind.forward, list[int]()

    def counted(layer: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return forward(layer, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", counted)
    counts = []
    for model in models:
        calls.clear()
        model.base_model(input_ids=torch.tensor([[2, 3, 4]]), use_cache=False)[0].sum().backward()
        counts.append(len(calls))
    assert counts[1] == 2 * counts[0] > 0


# --- examples ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two subsets, the first with a second split."""
    folder = tmp_path / "set"
    for file, word in (("en/train", "yes"), ("en/test", "no"), ("nl/train", "ja")):
        write_parquet(folder / f"{file}.parquet", {"prompt": ["Who?"], "completion": [word], "chosen": [word], "rejected": ["?"]})
    listed = [
        {"config_name": "en", "data_files": [{"split": name, "path": f"en/{name}*"} for name in ("train", "test")]},
        {"config_name": "nl", "data_files": "nl/*"},
    ]
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(listed)}\n---\n")
    return folder


def learned(data: DemonstrationsConfig) -> list[str]:
    return [row.completion for row in read_demonstrations(data, lambda text: None).rows]


def test_examples_of_a_dataset_are_those_of_the_subset(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ask_helper", in_process)
    columns = {"prompt_column": "prompt", "completion_column": "completion"}
    named: dict[str, Any] = {"source": str(dataset), **columns}
    assert learned(DemonstrationsConfig(**named, subset="nl")) == ["ja"]
    assert learned(DemonstrationsConfig(**named, subset="en")) == ["yes"]
    assert learned(DemonstrationsConfig(**named, subset="en", split="test")) == ["no"]
    pairs = PairsConfig(source=str(dataset), subset="nl", chosen_column="chosen", rejected_column="rejected")
    assert [pair.chosen for pair in read_pairs(pairs, lambda text: None).rows] == ["ja"]
    refused: list[tuple[dict[str, Any], str]] = [({"subset": "fr"}, "data.subset"), ({"subset": "en", "split": "dev"}, "data.split")]
    for wrong, field in refused:
        with pytest.raises(PromptsError) as caught:
            learned(DemonstrationsConfig(**named, **wrong))
        assert caught.value.field == field and "there are: " in caught.value.message


def test_examples_are_asked_of_the_hub_at_their_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, subset: str | None, *, revision: str) -> Any:
        rows = [{"prompt": "Who?", "completion": f"{name} at {revision}"}]
        return SimpleNamespace(name="json", as_streaming_dataset=lambda split: iter(rows))

    def info(self: Any, name: str, *, revision: str, **_: Any) -> Any:
        return SimpleNamespace(gated=False, sha=f"commit of {revision}")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    monkeypatch.setattr(tables, "ask_helper", in_process)
    for revision in ("main", "v6"):
        assert learned(DemonstrationsConfig(source="owner/set", revision=revision)) == [f"owner/set at commit of {revision}"]


def test_held_out_examples_come_from_where_they_are_named(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ask_helper", in_process)
    folder = save_policy(tmp_path / "policy", words=["Who?", "yes", "no", "ja"])
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def words(items: Sequence[Any]) -> list[str]:
        learned = [[label for label in item.labels if label != -100] for item in items]
        return [str(tokenizer.decode(ids, skip_special_tokens=True)).strip() for ids in learned]

    (tmp_path / "elsewhere.jsonl").write_text(json.dumps({"prompt": "Who?", "completion": " ja"}))
    data: dict[str, Any] = {"source": str(dataset), "subset": "en", "prompt_column": "prompt", "completion_column": "completion"}
    for eval, split, expected in ((str(dataset), "test", "no"), (str(tmp_path / "elsewhere.jsonl"), "none", "ja")):
        found = load_demonstrations(
            DemonstrationsConfig(**data, eval=eval, eval_split=split), "response", tokenizer, 0, quiet, end=tokenizer.eos_token_id
        )
        assert (words(found.training.items), words(found.held_out.items)) == (["yes"], [expected])
    wrong: list[dict[str, Any]] = [{"eval": str(dataset), "eval_split": "dev"}, {"eval": str(tmp_path / "gone.jsonl")}]
    for change, field in zip(wrong, ("data.eval_split", "data.eval"), strict=True):
        with pytest.raises(PromptsError) as caught:
            load_demonstrations(DemonstrationsConfig(**data, **change), "response", tokenizer, 0, quiet, end=tokenizer.eos_token_id)
        assert caught.value.field == field


# --- the reward model --------------------------------------------------------------------------------------------------------


def test_the_loss_of_a_reward_model_from_its_scores(tmp_path: Path) -> None:
    """-log σ(d) of the difference d = chosen - rejected, a share of it with the responses changed round, and c (chosen + rejected)²."""
    centering, smoothing = 0.3, 0.2
    stage = build(tmp_path, "reward_model", centering=centering, label_smoothing=smoothing)
    with torch.no_grad():
        stage.model.score.weight.mul_(30)  # scores far enough apart that all of it counts
    items = stage.trainer.items
    chosen, rejected = (
        torch.cat([stage.model(input_ids=torch.tensor([item.prompt + getattr(item, which)])).logits[0] for item in items]).detach()
        for which in ("chosen", "rejected")
    )
    gap = chosen - rejected
    expected = (1 - smoothing) * softplus(-gap) + smoothing * softplus(gap) + centering * (chosen + rejected) ** 2
    assert float(gap.abs().max()) > 0.5 and stage.trainer.mean_loss(items) == pytest.approx(float(expected.mean()), rel=1e-4)


def test_an_end_token_behind_each_response_of_a_reward_model(tmp_path: Path) -> None:
    without, behind = (build(tmp_path, "reward_model", append_eos=append).trainer.items for append in (False, True))
    end = AutoTokenizer.from_pretrained(tmp_path / "policy").eos_token_id
    assert len(without) == len(behind) == 16
    for plain, ended in zip(without, behind, strict=True):
        assert (ended.prompt, ended.chosen, ended.rejected) == (plain.prompt, (*plain.chosen, end), (*plain.rejected, end))


def test_rewritten_texts_are_read_as_the_pairs_were(tmp_path: Path) -> None:
    """The text of a pair, encoded as a rewritten one is, has the pair's ids: with a chat template, and an end token that may be there."""
    values = settings(tmp_path, "reward_model", append_eos=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    tokenizer.chat_template = "<eos>{% for one in messages %}{{ one['content'] }}<eos>{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "policy")
    values["data"]["chat_template"] = True
    stage = build_reward_stage(parse_config(values), CPU, quiet)[0]
    items = stage._pairs.held_out.items
    assert len(items) == 4
    for item, text in zip(items, stage._texts, strict=True):
        assert tuple(stage._encode(text.prompt, text.chosen)) == item.prompt + item.chosen
        assert tuple(stage._encode(text.prompt, text.rejected)) == item.prompt + item.rejected


def test_so_many_responses_are_normalised_on(tmp_path: Path) -> None:
    """Of the four held-out pairs, then of the sixteen others; 0 leaves the scores as they are."""
    for count, expected in ((3, 3), (11, 11), (512, 40), (0, None)):
        stage, folder = build(tmp_path, "reward_model", normalise=count), tmp_path / str(count)
        folder.mkdir()
        stage.fill(folder, tmp_path)
        saved = json.loads((folder / "reward_model" / "reward_model.json").read_text())["normalised"]
        assert (saved and saved["responses"]) == expected, count


# --- DPO ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "smoothing", "named"), [(0.1, 0.0, True), (0.5, 0.2, False)])
def test_the_loss_of_dpo_from_its_log_probabilities(beta: float, smoothing: float, named: bool, tmp_path: Path) -> None:
    """Rafailov et al. 2023, equation 7, with plain forward passes of the policy and of the reference."""
    save_policy(tmp_path / "other", scale=4.0, seed=3)
    reference = {"reference": str(tmp_path / "other")} if named else {}
    stage = build(tmp_path, "dpo", reference, beta=beta, label_smoothing=smoothing)
    other = AutoModelForCausalLM.from_pretrained(tmp_path / ("other" if named else "policy")).eval()
    with torch.no_grad():
        for parameter in stage.model.parameters():
            parameter.mul_(1.1)

    def logprob(model: Any, prompt: tuple[int, ...], response: tuple[int, ...]) -> torch.Tensor:
        with torch.no_grad():
            distribution = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return torch.stack([distribution[place, token] for place, token in enumerate(response)]).sum()

    losses = []
    for item in stage.trainer.items:
        ratios = [logprob(stage.model, item.prompt, one) - logprob(other, item.prompt, one) for one in (item.chosen, item.rejected)]
        gap = beta * (ratios[0] - ratios[1])
        losses.append(-(1 - smoothing) * logsigmoid(gap) - smoothing * logsigmoid(-gap))
    assert stage.trainer.mean_loss(stage.trainer.items) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)
    assert abs(float(torch.stack(losses).mean()) - 0.6931) > 1e-4


@pytest.mark.parametrize(
    ("family", "lora"),
    [
        ("llama", {"init_lora_weights": "pissa"}),
        ("gpt2", {"bias": "lora_only"}),
    ],
)
def test_dpo_refers_to_where_it_began(family: str, lora: dict[str, Any], tmp_path: Path) -> None:
    """Whatever LoRA does to the base at its start, and whatever has been learned when a pair is first met. The model's dropout is off."""
    values = settings(tmp_path, "dpo", True, family, learning_rate=0.05)
    values["lora"] |= lora
    stage = build_dpo(parse_config(values), CPU, quiet)[0]
    losses = [stage.trainer.step().loss for _ in range(3)]
    assert losses[0] == pytest.approx(0.693147, abs=2e-5) and abs(losses[2] - losses[0]) > 1e-3
    start = AutoModelForCausalLM.from_pretrained(tmp_path / "policy").eval()
    items = stage.trainer.items
    stage.trainer.read(items)
    known = stage.trainer.objective.state(items)["reference"]
    with torch.no_grad():
        for item, numbers in zip(items, known.tolist(), strict=True):
            for response, number in zip((item.chosen, item.rejected), numbers, strict=True):
                ids, first = torch.tensor([item.prompt + response]), len(item.prompt)
                found = start(input_ids=ids).logits[0, first - 1 : -1].log_softmax(-1).gather(1, ids[0, first:, None]).sum()
                assert number == pytest.approx(float(found), abs=2e-4)


def test_a_reference_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        build(tmp_path, "dpo", {"reference": "./none"})
    assert caught.value.problems[0].field == "model.reference"
