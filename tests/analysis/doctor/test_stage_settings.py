"""Risky settings of the stages around PPO, before Start."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.config import STAGES
from rlhf_studio.config.io import parse_config, with_values
from rlhf_studio.ui import outlook

RISKY: dict[str, tuple[str, dict[str, dict[str, Any]], str]] = {
    "far too high": ("sft", {"sft": {"learning_rate": 0.5}}, "settings-learning-rate alarm"),
    "too high for DPO": ("dpo", {"dpo": {"learning_rate": 2e-3}}, "settings-learning-rate warning"),
    "one example": ("sft", {"sft": {"batch_size": 1}}, "settings-batch warning"),
    "many passes": ("reward_model", {"reward_model": {"epochs": 4}}, "settings-passes warning"),
    "warm-up": ("sft", {"sft": {"max_steps": 10, "warmup_steps": 10}}, "settings-warm-up warning"),
    "no clip": ("dpo", {"dpo": {"learning_rate": 3e-4, "max_grad_norm": 0.0}}, "settings-gradient-clip warning"),
    "none held out": ("reward_model", {"data": {"eval_share": 0.0}}, "settings-held-out warning"),
    "held out what is trained on": (
        "sft",
        {"data": {"source": "a", "eval": "a", "eval_split": "train"}},
        "settings-held-out warning",
    ),
    "centering": ("reward_model", {"reward_model": {"centering": 1.0}}, "settings-centering warning"),
    "smoothing": ("dpo", {"dpo": {"label_smoothing": 0.4}}, "settings-smoothing warning"),
    "low beta": ("dpo", {"dpo": {"beta": 0.001}}, "settings-beta warning"),
    "high beta": ("dpo", {"dpo": {"beta": 5.0}}, "settings-beta warning"),
    "few prompts": ("evaluation", {"evaluation": {"prompts": 8}}, "settings-prompts note"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_the_defaults_of_a_stage_are_not_risky(stage: str) -> None:
    assert examine_settings(parse_config({"stage": stage})) == []


@pytest.mark.parametrize("name", RISKY)
def test_each_risk_is_told_alone_and_its_change_is_valid_and_cures_it(name: str) -> None:
    stage, sections, expected = RISKY[name]
    config = parse_config({"stage": stage, **sections})
    (one,) = examine_settings(config)
    assert f"{one.check} {one.level}" == expected and one.changes
    assert examine_settings(with_values(config, one.changes)) == []


def test_the_button_of_the_train_page_names_the_settings_of_any_stage() -> None:
    (risk,) = outlook.risks(parse_config({"stage": "sft", "sft": {"batch_size": 1}}))
    assert risk["use"] == "Use Batch size 32 and Micro-batch size 1"


def test_what_is_usual_depends_on_adapters_and_on_an_untrained_start() -> None:
    for sections in ({"lora": {"enabled": True}}, {"model": {"fresh": True}}):
        assert examine_settings(parse_config({"stage": "sft", "sft": {"learning_rate": 0.03}, **sections})) == []
    assert examine_settings(parse_config({"stage": "sft", "sft": {"learning_rate": 0.03}})) != []
