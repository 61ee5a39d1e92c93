"""A text that is longer than its reader takes loses its beginning: counted where it is cut, and on record wherever texts are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RewardConfig
from rlhf_studio.config.io import parse_ppo
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.rewards.scorer import Episodes, build_scorer
from rlhf_studio.engine.stages.evaluating.labelling import label_by_model
from rlhf_studio.inputs.checks.reward_texts import RewardTextReader
from rlhf_studio.inputs.models.facts import check_reward_model
from rlhf_studio.jobs.scoring.command import as_table
from rlhf_studio.jobs.scoring.one_text import TextScorer, TextToScore
from tests.engine.small_models import save_reward_model
from tests.engine.test_rewards_models import save_encoder

CPU = Compute(torch.device("cpu"), torch.float32)
PROMPTS = [" ".join(f"w{index % 28}" for index in range(count)) + " " for count in (2, 5, 20, 80)]
RESPONSES = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w14 w15"]


def silent(text: str, fraction: float | None) -> None:
    """Progress that nobody reads."""


def readings(*components: dict[str, Any]) -> list[list[int]] | None:
    scorer = build_scorer(RewardConfig.model_validate({"components": list(components)}), CPU, silent)
    counts = scorer(Episodes(PROMPTS, RESPONSES, [True] * 4, [3] * 4)).reading
    return None if counts is None else counts.tolist()


def by_hand(folder: Path, most: int, texts: list[str]) -> list[list[int]]:
    """Counted by the model's own tokenizer, text by text."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    counts = [len(tokenizer(text)["input_ids"]) for text in texts]
    return [[min(count, most), count] for count in counts]


def test_what_every_reader_cuts_is_counted(tmp_path: Path) -> None:
    """By the component's limit, the model's positions and the tokenizer's own limit; of several readers, that which lost most."""
    texts = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    gpt2, roberta = save_reward_model(tmp_path / "gpt2", "gpt2"), save_encoder(tmp_path / "roberta", "roberta", labels=1)
    own = {"kind": "reward_model", "model": str(gpt2)}
    assert readings({**own, "max_tokens": 8}) == by_hand(gpt2, 8, texts)
    assert readings(own) == by_hand(gpt2, 64, texts)  # positions
    assert readings({**own, "reads": "response", "max_tokens": 8}) == by_hand(gpt2, 8, RESPONSES)
    both = {"kind": "ensemble", "models": f"{gpt2},{roberta}", "max_tokens": 16}
    counts = readings(both)  # RoBERTa has two tokens more in every text
    assert counts is not None and [length - read for read, length in counts] == [
        length - read for read, length in by_hand(roberta, 16, texts)
    ]
    assert readings(both, {"kind": "length"}) == counts
    assert readings({"kind": "length"}) is None
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    tokenizer.model_max_length = 20
    tokenizer.save_pretrained(gpt2)
    assert readings(own) == by_hand(gpt2, 20, texts)
    for folder, most in ((gpt2, 20), (roberta, 64)):  # the check before the start knows the same limits
        component = RewardConfig.model_validate({"components": [{**own, "model": str(folder)}]}).components[0]
        assert RewardTextReader("", "", component, check_reward_model(str(folder))).longest == most


@pytest.mark.parametrize("most", [8, 64])
def test_a_step_says_how_many_texts_were_cut_and_which(make_trainer: Callable[..., Trainer], tmp_path: Path, most: int) -> None:
    folder = save_reward_model(tmp_path / "judge", "gpt2")
    trainer = make_trainer(reward={"components": [{"kind": "reward_model", "model": str(folder), "max_tokens": most}]})
    record = trainer.step()
    texts = [row.prompt + row.response for row in record.rollouts]
    expected = by_hand(folder, most, texts)
    cut = [read < length for read, length in expected]
    assert any(cut) == (most == 8)
    assert record.episodes is not None
    if most == 64:
        assert record.metrics["tokens/reward_cut"] == 0 and record.episodes.reading is None
        return
    kept = record.episodes.reading
    assert kept is not None and kept[: len(texts)].tolist() == expected
    assert record.metrics["tokens/reward_cut"] == pytest.approx(np.mean(kept[:, 0] < kept[:, 1]))


def test_trying_and_labelling_say_what_was_cut(tmp_path: Path) -> None:
    folder = save_reward_model(tmp_path / "judge", "gpt2")
    component = {"kind": "reward_model", "model": str(folder), "max_tokens": 8, "name": "judge"}
    scorer = TextScorer(Permissions(), silent)
    for prompt, response, cut in ((PROMPTS[0], RESPONSES[0], False), (PROMPTS[2], RESPONSES[2], True)):
        result = scorer.score(parse_ppo({"reward": {"components": [component]}}), TextToScore(prompt, response))
        (row,) = result["components"]
        assert bool(row["cut"]) == cut and (("8" in row["cut"] and "29" in row["cut"]) or not cut)
        assert (row["cut"] in as_table(result)) and bool(result["notes"]) == cut
    labelled = label_by_model({PROMPTS[3]: ["w1", "w2"], PROMPTS[0]: ["w1"]}, str(folder), CPU, silent, NOTHING_ALLOWED)
    assert labelled.cut == 2 and "2" in labelled.notes()
