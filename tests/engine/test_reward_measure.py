"""Measuring a reward model in memory: scores beside single forward passes, rewriting by its rules, padding that goes wrong."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.engine.stages.reward_model.build import build_reward_model
from rlhf_studio.engine.stages.reward_model.measure import PairTexts, measure, padding_difference
from rlhf_studio.engine.stages.reward_model.rewrites import capitals, punctuation, synonyms
from rlhf_studio.inputs.world.gold import gold_score
from tests.engine.small_models import save_policy
from tests.engine.test_reward_heads import CPU, by_hand, byte_policy, settings, silent


@dataclass(frozen=True)
class Pair:
    prompt: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    number: int
    tie: bool = False
    group: str = ""


PAIRS = [
    Pair((2, 3), (4, 5, 6), (7,), 11, group="a"),
    Pair((2,), (8,), (9, 10), 12),
    Pair((), (11, 12), (13, 14), 15, tie=True, group="a"),
]


def test_scores_are_those_of_single_rows_and_everything_is_recorded(tmp_path: Path) -> None:
    model = build_reward_model(settings(save_policy(tmp_path, spread=0.2)), CPU, silent).model.train()
    told = measure(model, PAIRS, end=1, scale=2.0)
    model.eval()
    expected = [[by_hand(model, [*pair.prompt, *side, 1]) for pair, side in zip(PAIRS, sides, strict=True)] for sides in (
        [pair.chosen for pair in PAIRS], [pair.rejected for pair in PAIRS]
    )]  # fmt: skip
    assert told.record["pairs"]["chosen"] == pytest.approx(expected[0], abs=1e-5)
    assert told.record["pairs"]["rejected"] == pytest.approx(expected[1], abs=1e-5)
    assert told.record["pairs"]["chosen_tokens"] == [3, 1, 2] and told.record["pairs"]["numbers"] == [11, 12, 15]
    margins = 2 * (np.array(expected[0]) - np.array(expected[1]))[:2]
    assert told.metrics["reward_model/eval_loss"] == pytest.approx(float(np.log1p(np.exp(-margins)).mean()), abs=1e-5)
    assert told.metrics["reward_model/eval_accuracy"] == float((margins > 0).mean())
    assert told.record["consistency"]["padding"] < 1e-5 and told.record["consistency"]["rewrites"] == {}
    json.dumps(told.record, allow_nan=False)


def test_rewriting_and_gold(tmp_path: Path) -> None:
    policy, tokenizer = byte_policy(tmp_path, "gpt2")
    model = build_reward_model(settings(policy), CPU, silent).model
    texts = [PairTexts("In this drama", " the plot is superb.", " the plot is dull."), PairTexts("x", "", "y")]

    def encode(prompt: str, response: str) -> list[int]:
        return tokenizer(prompt + response)["input_ids"]

    pairs = [Pair((), tuple(encode(text.prompt, text.chosen)), tuple(encode(text.prompt, text.rejected)), 0) for text in texts]
    told = measure(model, pairs, texts=texts, encode=encode, gold=True)
    assert told.record["pairs"]["chosen_gold"] == pytest.approx([gold_score(text.prompt, text.chosen) for text in texts], abs=1e-5)
    assert told.report.gold is not None and "reward_model/gold_accuracy" in told.metrics
    small = told.record["consistency"]["rewrites"]["punctuation"]
    rows = [encode("In this drama", text) for text in (" the plot is superb.", " the plot is superb")]
    assert [small["before"][0], small["after"][0]] == pytest.approx([by_hand(model, row) for row in rows], abs=1e-5)
    assert small["others"] == pytest.approx([by_hand(model, list(pairs[0].rejected))], abs=1e-5)
    assert {name: len(lists["before"]) for name, lists in told.record["consistency"]["rewrites"].items()} == {
        "synonyms": 1, "punctuation": 1, "capitals": 1
    }  # fmt: skip
    for wrong in told.report.wrong:
        assert wrong.texts == tuple(getattr(texts[wrong.place], part) for part in ("prompt", "chosen", "rejected"))
    assert len(told.report.wrong) == sum(
        margin < 0 for margin in np.subtract(*(told.record["pairs"][side] for side in ("chosen", "rejected")))
    )
    with pytest.raises(ValueError, match="1 texts for 2 pairs"):
        measure(model, pairs, texts=texts[:1])
    with pytest.raises(ValueError, match="no held-out pairs"):
        measure(model, [])


def test_rules_of_rewriting() -> None:
    draw = random.Random(0)
    assert synonyms("the plot is gripping", draw) == "the plot is spellbinding"
    assert synonyms("gripping and spellbinding", draw) == "gripping and spellbinding"  # its only synonym is said already
    assert synonyms("unheard words", draw) == "unheard words"
    before, after = "In this drama the plot is superb.", synonyms("In this drama the plot is superb.", draw)
    assert after != before and gold_score("", after) == gold_score("", before)
    assert [punctuation(text, draw) for text in ("a, b, c!", "a, b, c.", "a.", "a", " ")] == ["a, b, c.", "a b, c.", "a", "a.", " "]
    assert [capitals(text, draw) for text in ("In May", "in may", "12")] == ["in may", "In may", "12"]


def test_a_model_that_reads_padding_is_found_out(tmp_path: Path) -> None:
    model = build_reward_model(settings(save_policy(tmp_path, spread=0.2)), CPU, silent).model
    rows = [(2, 3), (4, 5, 6, 7, 8)]
    assert padding_difference(model, rows) < 1e-5
    usual = model.base_model.forward

    def sees_padding(*args: Any, attention_mask: torch.Tensor, **more: Any) -> Any:
        return usual(*args, attention_mask=torch.ones_like(attention_mask), **more)

    model.base_model.forward = sees_padding
    assert padding_difference(model, rows) > 1e-3
