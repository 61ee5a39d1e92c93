"""Each recipe that downloads, with small random models of the same kinds in place of the published ones, for two steps on a CPU.

What a stand-in changes is listed in :func:`stand_in`; every other setting runs as the recipe has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.config import RunConfig
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.inputs.preflight import inspect_run
from tests.engine.small_models import WORDS, save_policy, save_reward_model

pytestmark = pytest.mark.slow

CHAT = "{% for m in messages %}<u> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<a> {% endif %}"
CHAT_WORDS = [*WORDS, "<u>", "<a>"]
PLAIN_WORDS, ANSWERS = list("abcdefghijklmnopqrstuvwxyz"), ("3", "5")
"""Words without digits, and numbers that a random policy writes now and then, so that some of its answers are right."""
FAMILIES = {
    "tldr-pythia-1b": ("gpt_neox", "gpt_neox"),
    "qwen-chat": ("qwen2", "qwen2"),
    "gsm8k-qwen": ("qwen2", ""),
    "qlora-7b": ("qwen2", "qwen3"),
}
"""Families of the policy and of the reward model, where a recipe's are not GPT-2 and DistilBERT."""
EVERY_DAY = ("gpt2-imdb",)
DOWNLOADS = [recipe.name for recipe in list_recipes("ppo") if recipe.download]


def rows_of(recipe: RunConfig) -> list[dict[str, Any]]:
    """Rows with the recipe's column, as its data set has them: a text of 20 to 80 words, or a conversation."""
    words = PLAIN_WORDS if recipe.data.reference_column else WORDS
    texts = [" ".join(words[(start + step) % len(words)] for step in range(80)) for start in range(12)]
    if recipe.data.reference_column:
        question, answer = recipe.data.column, recipe.data.reference_column
        return [{question: text[: 20 + 3 * number], answer: f"so\n#### {ANSWERS[number % 2]}"} for number, text in enumerate(texts)]
    if recipe.data.chat_template:
        return [{recipe.data.column: [{"role": "user", "content": text[: 20 + 3 * number]}]} for number, text in enumerate(texts)]
    if recipe.data.min_characters:
        return [{recipe.data.column: text, "label": 0} for text in texts]
    return [{recipe.data.column: f"{text[: 20 + 3 * number]} TL;DR:", "completion": " w1"} for number, text in enumerate(texts)]


def stand_in(name: str, folder: Path) -> RunConfig:
    """The recipe with small models, local data, small batches, two steps, and no quantized weights."""
    recipe = load_recipe(name).config
    family, judge = FAMILIES.get(name, ("gpt2", "distilbert"))
    words = CHAT_WORDS if recipe.data.chat_template else WORDS
    if recipe.data.reference_column:
        words = [*PLAIN_WORDS, *ANSWERS, *CHAT_WORDS[len(WORDS) :]]
    save_policy(folder / "policy", family, words, spread=0.2, positions=640)
    if recipe.data.chat_template:
        settings = folder / "policy" / "tokenizer_config.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": CHAT}))
    judges = [component for component in recipe.reward.components if component.kind == "reward_model"]
    if judges:
        labels = 2 if any(component.label for component in judges) else 1
        save_reward_model(folder / "reward", judge, words, labels=labels, positions=640)
        if labels == 2:
            config = folder / "reward" / "config.json"
            names = {"id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "label2id": {"NEGATIVE": 0, "POSITIVE": 1}}
            config.write_text(json.dumps({**json.loads(config.read_text()), **names}))
    (folder / "data.jsonl").write_text("\n".join(json.dumps(row) for row in rows_of(recipe)))

    data = recipe.model_dump()
    data["model"] |= {"policy": str(folder / "policy"), "quantization": "none"}
    data["data"] |= {"prompts": str(folder / "data.jsonl"), "subset": "", "eval": ""}
    for component in data["reward"]["components"]:
        if component["kind"] == "reward_model":
            component["model"] = str(folder / "reward")
    data["ppo"] |= {"steps": 2, "batch_size": 8, "mini_batch_size": 4, "micro_batch_size": 2 if recipe.ppo.micro_batch_size else 0}
    data["engine"] |= {"device": "cpu", "watch_prompts": 2, "record_samples": 2}
    return RunConfig.model_validate(data)


@pytest.mark.parametrize("name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.long) for name in DOWNLOADS])
def test_two_steps(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = stand_in(name, tmp_path)
    report = inspect_run(config, tmp_path)
    assert report.problems == []
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    first = trainer.step()
    assert first.metrics["policy/first_log_ratio"] <= 1e-4 and abs(first.metrics["objective/kl"]) <= 1e-4
    assert first.metrics["optim/steps"] == config.ppo.ppo_epochs * 2
    weights = next(iter(trainer.models.policy.model_parameters())).clone()
    second = trainer.step()
    assert second.metrics["policy/first_log_ratio"] <= 1e-4
    if config.ppo.lr_schedule != "constant":
        assert second.metrics["lr"] < first.metrics["lr"]
    assert not torch.equal(weights, next(iter(trainer.models.policy.model_parameters())))
    assert max(row.length for row in first.rollouts) <= config.generation.response_length
    if config.data.query_tokens_max:
        drawn = trainer.prompts.batch(list(range(12))).mask.sum(dim=1)
        assert config.data.query_tokens_min <= drawn.min() < drawn.max() <= config.data.query_tokens_max
    if config.data.chat_template:
        assert all(row.prompt.startswith("<u>") and row.prompt.rstrip().endswith("<a>") for row in first.rollouts)


def test_the_sentiment_reward_is_the_classifiers_own_logit(tmp_path: Path) -> None:
    """Prompt and response together, straight through transformers."""
    config = stand_in("gpt2-imdb", tmp_path)
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    judge = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "reward")
    for row in trainer.step().rollouts:
        ids = torch.tensor([tokenizer(row.prompt + row.response).input_ids])
        with torch.no_grad():
            assert row.score == pytest.approx(float(judge(ids).logits[0, 1]), abs=1e-5)
