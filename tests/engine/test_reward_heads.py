"""Reward models from building to use: the same score in the stage, in PPO and after saving, by plain sums over hidden states."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from rlhf_studio.config import NOTHING_ALLOWED, EnsembleReward, RewardConfig, RewardModelReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.stages import RewardModelRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.models.heads import HiddenHead, draw_head
from rlhf_studio.engine.models.load_model import load_reward_model
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.kinds.reward_model import load_scorer
from rlhf_studio.engine.rewards.registry import BuildContext
from rlhf_studio.engine.rewards.scorer import build_scorer
from rlhf_studio.engine.stages.reward_model.build import BuiltRewardModel, build_reward_model, criteria_of, start_folder
from rlhf_studio.engine.stages.reward_model.finish import (
    finish_reward_model,
    gather_ensemble,
    merged_reward_model,
    normalise,
    save_reward_model,
    score_rows,
)
from rlhf_studio.inputs.checks.rewards import check_component
from rlhf_studio.inputs.models.reward_models import Normalisation, RewardFile, describe_reward_model, read_measured
from tests.engine.small_models import config_of, save_policy
from tests.engine.small_models import save_reward_model as save_plain
from tests.engine.test_trained_reward import save_byte_tokenizer

CPU = Compute(torch.device("cpu"), torch.float32)
PROMPTS = ["A good film", "We saw", "The story is", "x"]
RESPONSES = [" It was good, I liked it.", " a film.", " dull<|endoftext|>", " long and dull; dull, dull, dull<|endoftext|><|endoftext|>"]


def silent(text: str, fraction: float | None) -> None:
    """Progress that nobody wants."""


def settings(policy: Path, *, seed: int = 5, **changes: Any) -> RewardModelRunConfig:
    sections: dict[str, Any] = {"model": {"policy": str(policy)}, **changes}
    sections["model"] = {"policy": str(policy), **changes.get("model", {})}
    return RewardModelRunConfig.model_validate({**sections, "engine": {"device": "cpu", "seed": seed}})


def byte_policy(folder: Path, family: str, *, pad_is_end: bool = False) -> tuple[Path, PreTrainedTokenizerFast]:
    """A random policy whose order of words matters, with a byte-level tokenizer without pad token, or with the end token as one."""
    tokenizer = save_byte_tokenizer(folder)
    if pad_is_end:
        tokenizer.pad_token = tokenizer.eos_token
        tokenizer.save_pretrained(folder)
    config = config_of(family, len(tokenizer))
    config.pad_token_id = 0 if pad_is_end else None
    config.bos_token_id = config.eos_token_id = 0
    config.initializer_range = 0.2
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder, tokenizer


def by_hand(model: Any, row: list[int]) -> float:
    """The head's formula on the trunk's state of the last token of one row without padding, in plain sums."""
    with torch.no_grad():
        state = model.base_model(input_ids=torch.tensor([row])).last_hidden_state[0, -1].double()
        head = model.score
        if isinstance(head, HiddenHead):
            inner = head.weight.double() @ state + head.bias.double()
            state = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))  # GELU
            head = head.output
        bias = 0.0 if head.bias is None else float(head.bias)
        return float(head.weight[0].double() @ state) + bias


def in_ppo(folder: Path, prompts: list[str], responses: list[str]) -> list[float]:
    reward = RewardModelReward(model=str(folder))
    scorer = load_scorer(reward, str(folder), BuildContext("reward.components.0", CPU, silent, NOTHING_ALLOWED))
    return scorer(Episodes(prompts, responses, [True] * len(prompts), [1] * len(prompts))).tolist()


@pytest.mark.parametrize(("family", "head"), [("gpt2", "hidden"), ("llama", "linear")])
def test_one_score_everywhere(family: str, head: str, tmp_path: Path) -> None:
    """In the stage; in PPO; after normalising, saving and loading; pad = end, and no pad."""
    pad_is_end = family == "gpt2"
    folder, tokenizer = byte_policy(tmp_path / "policy", family, pad_is_end=pad_is_end)
    built = build_reward_model(settings(folder, reward_model={"head": head}), CPU, silent)
    rows = [tokenizer(prompt + response)["input_ids"] for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    raw = torch.tensor([by_hand(built.model, row) for row in rows])
    assert float(raw.std()) > 0.01
    torch.testing.assert_close(score_rows(built.model, rows), raw, atol=1e-5, rtol=0)
    saved = finish_reward_model(built.model, tokenizer, built.head, rows, "held-out examples", tmp_path / "reward")
    assert saved.normalised == Normalisation(
        4, pytest.approx(float(raw.mean()), abs=1e-5), pytest.approx(float(raw.std()), abs=1e-5), "held-out examples"
    )
    expected = ((raw - raw.mean()) / raw.std()).tolist()
    assert score_rows(built.model, rows).tolist() == pytest.approx(expected, abs=2e-5)
    assert in_ppo(tmp_path / "reward", PROMPTS, RESPONSES) == pytest.approx(expected, abs=2e-5)
    loaded = load_reward_model(str(tmp_path / "reward"), "main", "", torch.float32, silent, "reward").model
    assert score_rows(loaded, rows).tolist() == pytest.approx(score_rows(built.model, rows).tolist(), abs=1e-5)
    again = build_reward_model(settings(tmp_path / "reward", reward_model={"head": head}), CPU, silent)
    assert again.trained_on and score_rows(again.model, rows).tolist() == pytest.approx(expected, abs=2e-5)
    assert all(parameter.requires_grad for parameter in again.model.parameters())


def test_lora_trains_adapters_and_head_and_merges_to_the_same_scores(tmp_path: Path) -> None:
    head = "hidden"
    policy, tokenizer = byte_policy(tmp_path / "policy", "llama")
    lora = {"enabled": True, "r": 2, "alpha": 4}
    built = build_reward_model(settings(policy, lora=lora, reward_model={"head": head}), CPU, silent)
    trained = {name for name, parameter in built.model.named_parameters() if parameter.requires_grad}
    assert trained and all(".lora_" in name or ".score.modules_to_save." in name for name in trained)
    assert not any("score" in name and ".lora_" in name for name in trained)
    rows = [tokenizer(text)["input_ids"] for text in RESPONSES]
    with torch.no_grad():
        for name, parameter in built.model.named_parameters():
            if name in trained:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    raw = score_rows(built.model, rows)
    torch.testing.assert_close(score_rows(merged_reward_model(built.model), rows), raw, atol=1e-4, rtol=0)
    torch.testing.assert_close(score_rows(built.model, rows), raw)  # merging has changed a copy
    built.model.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter" / "reward_model.json").write_text(built.head.text())
    adapter = load_reward_model(str(tmp_path / "adapter"), "main", "", torch.float32, silent, "reward").model
    torch.testing.assert_close(score_rows(adapter, rows), raw, atol=1e-4, rtol=0)
    measured = {"pairs": {"chosen": raw.tolist(), "rejected": raw.tolist(), "scale": 1.0}}
    finish_reward_model(built.model, tokenizer, built.head, rows, "", tmp_path / "reward", measured)
    told = read_measured(tmp_path / "reward")
    assert told is not None and told["pairs"]["chosen"] == pytest.approx(((raw - raw.mean()) / raw.std()).tolist(), abs=1e-3)
    assert told["pairs"]["scale"] == pytest.approx(float(raw.std()), rel=1e-3)
    expected = ((raw - raw.mean()) / raw.std()).tolist()
    assert in_ppo(tmp_path / "reward", [""] * 4, RESPONSES) == pytest.approx(expected, abs=1e-3)
    with pytest.raises(ValueError, match="merge the adapters before"):
        normalise(built.model, rows, "")


def test_a_checkpoint_with_lora_on_a_reward_model_keeps_its_base(tmp_path: Path) -> None:
    """Trained on with LoRA, the base is a reward model that is saved once, with the head and the shift that it started with."""
    head = "hidden"
    policy, tokenizer = byte_policy(tmp_path / "policy", "gpt2")
    first = build_reward_model(settings(policy, reward_model={"head": head}), CPU, silent)
    rows = [tokenizer(text)["input_ids"] for text in RESPONSES]
    finish_reward_model(first.model, tokenizer, first.head, rows, "", tmp_path / "reward")
    lora = {"enabled": True, "r": 2}
    built = build_reward_model(settings(tmp_path / "reward", lora=lora, reward_model={"head": head}), CPU, silent)
    assert built.trained_on
    started = score_rows(built.model, rows)
    torch.testing.assert_close(started, score_rows(first.model, rows), atol=1e-5, rtol=0)
    with torch.no_grad():
        for name, parameter in built.model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    raw = score_rows(built.model, rows)
    assert float((raw - started).abs().max()) > 0.01
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000001" / "policy"
    save_model(built.model, checkpoint, tmp_path / "run" / "base")
    tokenizer.save_pretrained(checkpoint)
    (checkpoint / "reward_model.json").write_text(built.head.text())
    loaded = load_reward_model(str(checkpoint), "main", "", torch.float32, silent, "reward").model
    torch.testing.assert_close(score_rows(loaded, rows), raw, atol=1e-4, rtol=0)
    again = build_reward_model(settings(checkpoint.parent, reward_model={"head": head}), CPU, silent)
    torch.testing.assert_close(score_rows(again.model, rows), raw, atol=1e-4, rtol=0)


def test_the_head_is_drawn_by_the_seed_and_dropout_stands_before_it(tmp_path: Path) -> None:
    policy = save_policy(tmp_path)
    first, same, other = (
        build_reward_model(settings(policy, reward_model={"head_dropout": 0.5}, seed=seed), CPU, silent).model for seed in (0, 0, 1)
    )
    assert torch.equal(first.score.weight, same.score.weight) and not torch.equal(first.score.weight, other.score.weight)
    wide = HiddenHead(1024)
    draw_head(wide, torch.Generator().manual_seed(0))
    # 1024 draws in the last layer: the deviation is within 10 %; over a million in the hidden one: within 0.5 %
    assert float(wide.output.weight.detach().std()) == pytest.approx(1 / math.sqrt(1025), rel=0.1)
    assert float(wide.weight.detach().std()) == pytest.approx(1 / math.sqrt(1025), rel=0.005)
    assert not wide.bias.any() and not wide.output.bias.any()
    states = torch.ones(2000, 32)
    with torch.no_grad():
        first.score.weight.fill_(1.0)
        assert first.eval().score(states).unique().tolist() == [32.0]
        dropped = first.train().score(states)
    assert float(dropped.mean()) == pytest.approx(32, rel=0.05)
    assert float(dropped.std()) == pytest.approx(math.sqrt(32), rel=0.1)  # 2 * Bernoulli(1/2) has variance 1
    assert "score.weight" in first.state_dict() and type(first.score) is nn.Linear


def test_several_outputs_become_their_weighted_sum(tmp_path: Path) -> None:
    folder = save_plain(tmp_path, labels=3)
    many = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with pytest.raises(ConfigError, match="several outputs.*such as LABEL_0=1; its outputs are LABEL_0, LABEL_1, LABEL_2"):
        build_reward_model(settings(folder), CPU, silent)
    with pytest.raises(ConfigError, match="there is no output 'helpful'"):
        build_reward_model(settings(folder, model={"criteria": "helpful=1"}), CPU, silent)
    built = build_reward_model(settings(folder, model={"criteria": "LABEL_0=1, LABEL_2=-0.5"}), CPU, silent)
    rows = [[3, 4, 5], [6, 7]]
    with torch.no_grad():
        outputs = torch.cat([many(input_ids=torch.tensor([row])).logits for row in rows])
    torch.testing.assert_close(score_rows(built.model, rows), outputs[:, 0] - 0.5 * outputs[:, 2], atol=1e-6, rtol=0)
    save_reward_model(built.model, built.tokenizer, tmp_path / "one", built.head)
    assert describe_reward_model(str(tmp_path / "one")).criteria == {"LABEL_0": 1.0, "LABEL_2": -0.5}


@pytest.mark.parametrize("text", ["helpful", "=1", "a=x", "a=1, b=nan", "a=inf"])
def test_criteria_that_are_no_weights(text: str) -> None:
    with pytest.raises(ConfigError, match="write name=weight"):
        criteria_of(text)


def test_a_checkpoint_folder_and_what_cannot_be_built(tmp_path: Path) -> None:
    step = tmp_path / "run" / "checkpoints" / "step-000020"
    save_policy(step / "policy")
    assert not build_reward_model(settings(step), CPU, silent).trained_on
    assert start_folder(str(tmp_path / "run")) == str(tmp_path / "run")
    (tmp_path / "later" / "reward_model").mkdir(parents=True)
    assert start_folder(str(tmp_path / "later")) == str(tmp_path / "later" / "reward_model")
    with pytest.raises(ConfigError, match="model.criteria.*language model"):
        build_reward_model(settings(step, model={"criteria": "a=1"}), CPU, silent)
    built = build_reward_model(settings(step, reward_model={"append_eos": True}), CPU, silent)
    save_reward_model(built.model, built.tokenizer, tmp_path / "reward", built.head)
    with pytest.raises(ConfigError, match="reward_model.append_eos.*trained with an end token"):
        build_reward_model(settings(tmp_path / "reward"), CPU, silent)
    for append_eos, expected in ((True, []), (False, ["reward.components.0.append_eos"])):
        problems: list[Problem] = []
        check_component(
            RewardModelReward(model=str(tmp_path / "reward"), append_eos=append_eos), "reward.components.0", None, problems, None
        )
        assert [problem.field for problem in problems] == expected
    rows = [[2, 3]] * 3
    with pytest.raises(ValueError, match="do not vary"):
        normalise(merged_reward_model(built.model), rows, "")
    with pytest.raises(ValueError, match="at least two responses, and there are 1"):
        normalise(merged_reward_model(built.model), rows[:1], "")


def built_small(folder: Path) -> BuiltRewardModel:
    return build_reward_model(settings(save_policy(folder)), CPU, silent)


def test_models_of_several_seeds_are_gathered_and_scored_together(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy", spread=0.2)
    folders = []
    for member in range(2):
        built = build_reward_model(settings(policy, seed=member), CPU, silent)
        folders.append(tmp_path / f"run-{member}")
        save_reward_model(built.model, built.tokenizer, folders[-1], built.head)
    gather_ensemble(tmp_path / "all", folders)
    reward = RewardConfig(components=[EnsembleReward(models=str(tmp_path / "all"))])
    texts = ["w1 w2", "w3 w4 w5"]
    scores = build_scorer(reward, CPU, silent)(Episodes(["", ""], texts, [True] * 2, [2, 3])).raw.tolist()
    single = [in_ppo(folder, ["", ""], texts) for folder in folders]
    assert single[0] != pytest.approx(single[1], abs=1e-3)
    assert scores == pytest.approx([sum(both) / 2 for both in zip(*single, strict=True)], abs=1e-5)
    for models, part in (([folders[0]] * 2, "each counts once"), (folders[:1], "at least two"), (folders, "exists already")):
        with pytest.raises(ValueError, match=part):
            gather_ensemble(tmp_path / "all", models)
    (folders[1] / "reward_model.json").write_text(RewardFile(append_eos=True).text())
    with pytest.raises(ValueError, match="whether texts end with an end token"):
        gather_ensemble(tmp_path / "other", folders)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not valid JSON"), ("[]", "is not a JSON object"), ('{"head": "deep"}', "it must be linear or hidden"),
        ('{"head": "hidden", "activation": "exec"}', "it must be gelu or tanh"), ('{"format": 2}', "a newer version"),
        ('{"normalised": {"std": 0}}', "must be null, or the numbers"),
        ('{"normalised": {"responses": 1, "mean": 0, "std": 0}}', "std above 0"),
        ('{"criteria": {"a": "b"}}', "names with their weights"), ('{"append_eos": 1}', "true or false"),
    ],
)  # fmt: skip
def test_a_damaged_file_beside_the_weights_is_named(text: str, part: str, tmp_path: Path) -> None:
    built = built_small(tmp_path / "policy")
    save_reward_model(built.model, built.tokenizer, tmp_path / "reward", RewardFile())
    (tmp_path / "reward" / "reward_model.json").write_text(text)
    with pytest.raises(ConfigError, match=part):
        load_reward_model(str(tmp_path / "reward"), "main", "", torch.float32, silent, "reward")


def test_weights_of_our_own_head_are_no_mismatch_and_foreign_ones_are_told(tmp_path: Path) -> None:
    """The report of transformers is logged for what is really left over, and for nothing else."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addHandler(handler)
    try:
        for head in ("linear", "hidden"):
            folder, _ = byte_policy(tmp_path / head / "policy", "llama")
            built = build_reward_model(settings(folder, reward_model={"head": head}), CPU, silent)
            saved = tmp_path / head / "reward"
            finish_reward_model(built.model, built.tokenizer, built.head, [[1, 2], [3, 4]], "held-out examples", saved)
            told.clear()
            load_reward_model(str(saved), "main", "", torch.float32, silent, "reward")
            assert told == [], head
            weights = load_file(saved / "model.safetensors")
            save_file({**weights, "model.left_over.weight": torch.zeros(2, 2)}, saved / "model.safetensors", {"format": "pt"})
            load_reward_model(str(saved), "main", "", torch.float32, silent, "reward")
            assert len(told) == 1 and "left_over" in told[0], head
    finally:
        logger.removeHandler(handler)


def test_a_hidden_head_whose_weights_do_not_fit(tmp_path: Path) -> None:
    built = built_small(tmp_path / "policy")
    save_reward_model(built.model, built.tokenizer, tmp_path / "reward", RewardFile("hidden", "gelu"))  # it has a linear one
    with pytest.raises(ConfigError, match="its score head has the weights"):
        load_reward_model(str(tmp_path / "reward"), "main", "", torch.float32, silent, "reward")
