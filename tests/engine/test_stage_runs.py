"""Runs of the stages around PPO: what they leave behind, and that a run which was interrupted goes on to the same weights, bit for bit."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.cli.main import main
from rlhf_studio.config.io import parse_config
from rlhf_studio.config.metrics.stages import STAGE_METRICS
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.inputs.examples import read_demonstrations, split_held_out
from rlhf_studio.inputs.trained import model_of_run
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.manifest import is_used
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.ui.live.responses import samples
from tests.cases.chat_models import save_chat_model
from tests.engine.stage_settings import STAGES, settings


def make(run_dir: Path, values: dict[str, Any]) -> Path:
    create_run(run_dir, parse_config(values), name="run", state="loading")
    return run_dir


def stop_before(patch: pytest.MonkeyPatch, step: int) -> None:
    original: Callable[[SupervisedTrainer], StepNumbers] = SupervisedTrainer.step

    def stepped(trainer: SupervisedTrainer) -> StepNumbers:
        if trainer.step_number == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(trainer)

    patch.setattr(SupervisedTrainer, "step", stepped)


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    """All tensors of the newest checkpoint, by file and name."""
    folder = Path(RunReader(run_dir).checkpoints()[-1].path)
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.relative_to(folder)}:{name}": tensor for file in files for name, tensor in load_file(file).items()}


@pytest.fixture(scope="session")
def finished(small_runs: Path) -> dict[str, Path]:
    """One finished run of each stage."""
    return {stage: small_runs / stage for stage in STAGES}


def numbers(run_dir: Path) -> list[dict[str, float]]:
    """What each step measured, but for what the clock and the machine decide."""
    rows = [metrics for _, metrics in RunReader(run_dir).metrics_since(0)]
    return [{name: value for name, value in row.items() if not name.startswith(("time/", "speed/", "memory/"))} for row in rows]


@pytest.mark.parametrize(("stage", "lora"), [("sft", False), pytest.param("dpo", True, marks=pytest.mark.long), ("reward_model", True)])
def test_an_interrupted_run_ends_with_the_same_weights(
    finished: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, lora: bool
) -> None:
    values = settings(tmp_path, stage, lora)
    straight, broken = finished[stage], make(tmp_path / "broken", values)
    if lora:
        straight = make(tmp_path / "straight", values)
        assert run_engine(straight, "train") == DONE
    with monkeypatch.context() as patch:
        stop_before(patch, 5)  # in the middle of the second pass's first batches, after the checkpoint of step 3
        assert run_engine(broken, "train") == STOPPED
    shutil.rmtree(Path(RunReader(broken).checkpoints()[-1].path))  # as after a kill: the stop's own checkpoint is not there
    assert run_engine(broken, "resume") == DONE
    ours, theirs = weights(straight), weights(broken)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert numbers(straight) == numbers(broken)


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_run_leaves_behind(finished: dict[str, Path], stage: str) -> None:
    reader = RunReader(finished[stage])
    status, rows = reader.status(), dict(reader.metrics_since(0))
    assert (status.state, status.stage, status.step, status.total_steps) == ("finished", stage, 8, 8)
    assert all(f"{stage}/loss" in row and "lr" in row and "time/total" in row for row in rows.values())
    assert [step for step, row in rows.items() if f"{stage}/eval_loss" in row] == [3, 6, 8]
    assert list(reader.rollout_steps()) == [4, 8]
    made = next(event for event in reader.events_since(0) if event.kind == "ingredients")
    assert {one["setting"] for one in made.data["ingredients"]} == {"model.policy", "data.source"}
    assert all(len(one["sha256"]) == 64 for one in made.data["ingredients"])
    kind = "reward_model" if stage == "reward_model" else "policy"
    assert model_of_run(str(finished[stage])) == finished[stage] / "checkpoints" / "step-000008" / kind
    if stage != "reward_model":
        assert {step for step, _ in reader.watched()} == {0, 4, 8} and {answer.sample for _, answer in reader.watched()} <= {0, 1}
    # Charts, tiles and the doctor's checks read these names; agreement with gold is there in the review world alone.
    promised = {metric.name for metric in STAGE_METRICS if metric.name.startswith((f"{stage}/", "train/"))} - {"reward_model/gold_accuracy"}
    assert promised <= {name for row in rows.values() for name in row}
    own = {"accuracy", "margin", "chosen_mean", "rejected_mean"} if stage == "reward_model" else {"accuracy", "margin", "chosen_reward"}
    assert stage == "sft" or all({f"{stage}/{name}" for name in own} <= row.keys() for row in rows.values())


@pytest.mark.parametrize("stage", ["reward_model", "dpo"])
def test_running_out_of_memory_names_settings_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def step(trainer: SupervisedTrainer) -> StepNumbers:
        raise torch.OutOfMemoryError("CUDA out of memory")

    run_dir = make(tmp_path / "run", settings(tmp_path, stage))
    monkeypatch.setattr(SupervisedTrainer, "step", step)
    assert run_engine(run_dir, "train") == FAILED
    cause = RunReader(run_dir).status().cause
    assert f"{stage}.micro_batch_size" in cause and "data.max_tokens" in cause and "ppo." not in cause
    assert ("generation." in cause) == (stage != "reward_model")


def chat_run(tmp_path: Path, stage: str, row: dict[str, Any]) -> tuple[Path, list[str]]:
    """One step on one example that is a chat. Gives the run and the texts of its samples: one, or both responses of a pair."""
    source = tmp_path / "chats.jsonl"
    source.write_text(json.dumps(row) + "\n")
    run_dir = make(
        tmp_path / "run",
        {
            "stage": stage,
            "model": {"policy": str(save_chat_model("chatml", tmp_path / "model"))},
            "data": {"source": str(source), "chat_template": True, "eval_share": 0},
            stage: {"epochs": 1, "batch_size": 1, "learning_rate": 0.05},
            "engine": {"device": "cpu", "watch_every": 1},
        },
    )
    assert run_engine(run_dir, "train") == DONE
    return run_dir, [record.prompt + record.response for record in RunReader(run_dir).rollouts(1)]


TURNS = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nworld<|im_end|>\n<|im_start|>user\nand now?<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n"


def test_the_loss_of_a_sample_is_that_of_its_learned_tokens(tmp_path: Path) -> None:
    """Of a chat with two answers: the loss that transformers computes for both, without the user's turn between them."""
    run_dir, texts = chat_run(tmp_path, "sft", {"instruction": "and now?", "output": "yes", "history": [["hello", "world"]]})
    assert [text.strip() for text in texts] == [f"{TURNS}{ANSWER}yes<|im_end|>"]
    folder = run_dir / "checkpoints" / "step-000001" / "policy"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    parts = [(TURNS[: TURNS.index("world")], False), ("world<|im_end|>\n", True)]
    parts += [("<|im_start|>user\nand now?<|im_end|>\n" + ANSWER, False), ("yes<|im_end|>\n", True)]
    encoded = [(tokenizer(text, add_special_tokens=False).input_ids, learned) for text, learned in parts]
    labels = torch.tensor([[token if learned else -100 for ids, learned in encoded for token in ids]])
    with torch.no_grad():
        logits = model(torch.tensor([[token for ids, _ in encoded for token in ids]])).logits
    losses = torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], reduction="none")[labels[0, 1:] != -100]
    told = json.loads(samples(RunReader(run_dir), 1, 0))
    assert told["rows"][0]["loss"] == pytest.approx(float(losses.mean()), abs=1e-4)
    assert told["scales"]["loss"]["limit"] == pytest.approx(float(losses.max()), abs=1e-4)
    shown = [value for value in told["chosen"]["tokens"]["arrays"]["loss"] if value is not None]
    assert shown == pytest.approx(losses.tolist(), abs=1e-4)


def test_samples_show_who_says_what(tmp_path: Path) -> None:
    row = {"instruction": "and now?", "history": [["hello", "world"]], "chosen": "yes", "rejected": "no"}
    run_dir, texts = chat_run(tmp_path, "dpo", row)
    assert [text.strip() for text in texts] == [f"{TURNS}{ANSWER}{answer}<|im_end|>" for answer in ("yes", "no")]
    assert {record.prompt for _, record in RunReader(run_dir).watched()} <= {TURNS + ANSWER, TURNS[: TURNS.index("world")]}


def test_perplexity_is_that_of_the_saved_model_on_the_held_out_examples(finished: dict[str, Path]) -> None:
    """Counted with transformers' own loss over the same texts: the held-out ones are those that training never drew."""
    run_dir, metrics = finished["sft"], dict(RunReader(finished["sft"]).metrics_since(0))[8]
    assert metrics["sft/eval_perplexity"] == pytest.approx(math.exp(metrics["sft/eval_loss"]))
    folder = run_dir / "checkpoints" / "step-000008" / "policy"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    config = RunReader(run_dir).config()
    _, held_out = split_held_out(read_demonstrations(config.data, lambda text: None).rows, config.data, 0)  # type: ignore[attr-defined]
    total, count = 0.0, 0
    for row in held_out:
        prompt = tokenizer(row.prompt).input_ids
        ids = torch.tensor([[*prompt, *tokenizer(row.completion, add_special_tokens=False).input_ids, tokenizer.eos_token_id]])
        labels = ids.clone()
        labels[0, : len(prompt)] = -100
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=labels).loss) * (ids.shape[1] - len(prompt))
        count += ids.shape[1] - len(prompt)
    assert held_out and metrics["sft/eval_loss"] == pytest.approx(total / count, rel=1e-5)


def test_a_fresh_model_has_new_weights_of_the_same_shape(tmp_path: Path) -> None:
    values = settings(tmp_path, "sft", max_steps=1)
    values["model"]["fresh"] = True
    values["sft"]["learning_rate"] = 1e-9
    run_dir = make(tmp_path / "run", values)
    (tmp_path / "policy" / "model.safetensors").rename(tmp_path / "gone.safetensors")  # its weights are not needed
    assert run_engine(run_dir, "train") == DONE
    made, old = load_file(model_of_run(str(run_dir)) / "model.safetensors"), load_file(tmp_path / "gone.safetensors")  # type: ignore[operator]
    assert {name: tensor.shape for name, tensor in made.items()} == {name: tensor.shape for name, tensor in old.items()}
    name = "transformer.wte.weight"
    assert not torch.allclose(made[name], old[name]) and 0.01 < float(made[name].std()) < 0.03  # GPT-2 draws with 0.02


def test_a_run_keeps_to_the_step_that_another_run_had_reached(finished: dict[str, Path], tmp_path: Path) -> None:
    """Named without a step, the other run may go on: what began from it must not take another start or reference then."""
    run_dir = shutil.copytree(finished["sft"], tmp_path / "sft")
    values = settings(tmp_path, "dpo", True, max_steps=1)
    values["model"] |= {"policy": str(run_dir), "reference": str(run_dir)}
    follower = make(tmp_path / "dpo", values)
    assert run_engine(follower, "train") == DONE
    model = RunReader(follower).config().model
    assert (model.policy, model.reference) == (f"{run_dir}@8", f"{run_dir}@8")  # type: ignore[attr-defined]
    assert is_used(run_dir / "checkpoints" / "step-000008"), "the other run keeps it from the start of this one on"
    later = shutil.copytree(run_dir / "checkpoints" / "step-000008", run_dir / "checkpoints" / "step-000016")
    assert model_of_run(str(run_dir)) == later / "policy" and model_of_run(model.policy) == run_dir / "checkpoints/step-000008/policy"


def test_what_cannot_be_loaded_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    values = settings(tmp_path, "sft")
    run_dir = make(tmp_path / "run", {**values, "data": {**values["data"], "source": "nowhere.jsonl"}})
    assert run_engine(run_dir, "train") == BAD_INPUT
    assert RunReader(run_dir).status().state == "failed" and "nowhere.jsonl" in RunReader(run_dir).status().cause


def test_the_best_checkpoint_is_that_with_the_lowest_held_out_loss(tmp_path: Path) -> None:
    values = settings(tmp_path, "sft", learning_rate=0.5, lr_schedule="constant", eval_every=1)
    values["engine"] = {**values["engine"], "checkpoint_every": 1, "keep_checkpoints": 1, "keep_best": "eval_loss"}
    run_dir = make(tmp_path / "run", values)
    assert run_engine(run_dir, "train") == DONE
    losses = {step: row["sft/eval_loss"] for step, row in RunReader(run_dir).metrics_since(0)}
    best = min(losses, key=lambda step: losses[step])
    kept = {info.step: info.best for info in RunReader(run_dir).checkpoints()}
    assert best != 8, "the last step is not the best one, or this shows nothing"
    assert kept == {best: True, 8: False}


def test_a_run_is_taken_home_as_what_it_is(finished: dict[str, Path], tmp_path: Path) -> None:
    for stage, words in (("sft", "by supervised fine-tuning"), ("reward_model", "on preferences (Bradley-Terry)"), ("dpo", "with DPO")):
        home = tmp_path / stage
        assert main(["export", str(finished[stage]), "--merged", str(home)]) == DONE
        card = (home / "README.md").read_text(encoding="utf-8")
        assert words in card and "PPO (proximal" not in card, stage
        assert ("AutoModelForSequenceClassification" in card) == (stage == "reward_model")
        assert (home / "generation_config.json").exists() == (stage != "reward_model")
        kept, own = (load_file(folder / "model.safetensors") for folder in (home, model_of_run(str(finished[stage]))))  # type: ignore[operator]
        assert kept.keys() == own.keys() and all(torch.equal(kept[name], own[name]) for name in own), stage
