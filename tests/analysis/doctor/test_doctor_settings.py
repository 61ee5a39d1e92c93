"""Risky settings before Start."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.config import RunConfig
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import parse_config
from rlhf_studio.config.recipes import list_recipes, load_recipe


def world(**sections: dict[str, Any]) -> RunConfig:
    settings = load_recipe("world").config.model_dump(mode="json")
    return parse_config({**settings, **{name: {**settings[name], **values} for name, values in sections.items()}})


@pytest.mark.parametrize("recipe", list_recipes(), ids=lambda recipe: recipe.name)
def test_no_recipe_is_risky(recipe: Any) -> None:
    assert examine_settings(recipe.config) == []


def test_a_wild_learning_rate_is_told_in_times_the_recipes() -> None:
    (one,) = examine_settings(world(ppo={"learning_rate": 0.9}))
    assert (one.level, one.title) == ("alarm", "Learning rate 0.9 is 4,500 times the recipe's")
    assert one.changes == {"ppo.learning_rate": 2e-4}


def test_without_a_recipe_it_is_compared_with_what_is_usual() -> None:
    (one,) = examine_settings(RunConfig.model_validate({"ppo": {"learning_rate": 0.5}}))
    assert (one.level, one.title) == ("alarm", "Learning rate 0.5 is 500 times the highest usual rate")
    assert examine_settings(RunConfig.model_validate({"ppo": {"learning_rate": 5e-3}, "lora": {"enabled": True}})) == []


RISKY: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "settings-learning-rate": ({"ppo": {"learning_rate": 1e-6}}, "warning"),
    "settings-warm-up": ({"ppo": {"warmup_steps": 30}}, "warning"),
    "settings-critic-warm-up": ({"ppo": {"critic_warmup_steps": 30}}, "alarm"),
    "settings-batch": ({"ppo": {"batch_size": 4, "mini_batch_size": 2}}, "warning"),
    "settings-passes": ({"ppo": {"ppo_epochs": 50}}, "warning"),
    "settings-sampling": ({"generation": {"top_k": 50}}, "warning"),
    "settings-temperature": ({"generation": {"temperature": 3.0}}, "warning"),
    "settings-length": ({"generation": {"response_length": 2}}, "note"),
    "settings-kl": ({"ppo": {"kl_coef": 0.0}}, "warning"),
    "settings-gamma": ({"ppo": {"gamma": 0.9}}, "warning"),
    "settings-lambda": ({"ppo": {"lam": 0.0}}, "warning"),
    "settings-clip-range": ({"ppo": {"cliprange": 0.9}}, "warning"),
    "settings-steps": ({"ppo": {"steps": 2}}, "note"),
}


@pytest.mark.parametrize("name", RISKY)
def test_each_risk_is_told_alone_and_its_change_is_valid_and_cures_it(name: str) -> None:
    sections, level = RISKY[name]
    config = world(**sections)
    (one,) = examine_settings(config)
    assert (one.check, one.level) == (name, level)
    changed: dict[str, Any] = config.model_dump(mode="json")
    for setting, value in one.changes.items():
        section, field = setting.split(".")
        changed[section][field] = value
    assert examine_settings(parse_config(changed)) == []
    assert {change.setting for change in changes_between(config.model_dump(mode="json"), changed)} == set(one.changes)


def test_very_strong_kl_and_rewards_without_weight() -> None:
    assert [one.check for one in examine_settings(world(ppo={"kl_coef": 5.0}))] == ["settings-kl"]
    settings = load_recipe("world").config.model_dump(mode="json")
    settings["reward"]["components"][0]["weight"] = 0.0
    assert [one.check for one in examine_settings(parse_config(settings))] == ["settings-reward"]


def test_no_gradient_clip_with_a_high_rate() -> None:
    found = examine_settings(world(ppo={"learning_rate": 1.5e-3, "max_grad_norm": 0.0}))
    assert [one.check for one in found] == ["settings-gradient-clip"]


def test_the_gravest_comes_first() -> None:
    found = examine_settings(world(ppo={"learning_rate": 0.9, "kl_coef": 0.0, "steps": 3}))
    assert [one.level for one in found] == ["alarm", "warning", "note"]
