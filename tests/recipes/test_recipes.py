"""Recipes: each is a valid configuration with a complete head."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.config_io import ConfigError, config_from_yaml, config_to_yaml
from rlhf_studio.recipes import list_recipes, load_recipe, recipe_from_mapping

HEAD = {"title": "T", "summary": "S", "estimate": {"minutes": 2}, "config": {"ppo": {"steps": 3}}}


def test_the_first_recipe_is_the_tiny_world_and_all_are_complete() -> None:
    recipes = list_recipes()
    assert [recipe.name for recipe in recipes][:2] == ["world", "world-lora"]
    for recipe in recipes:
        assert recipe.title and recipe.summary.endswith(".") and recipe.minutes > 0
        assert recipe.config.recipe == recipe.name
        assert config_from_yaml(config_to_yaml(recipe.config)) == recipe.config


def test_the_two_worlds_differ_in_lora_and_both_are_watched_by_the_gold_scorer() -> None:
    world, lora = load_recipe("world"), load_recipe("world-lora")
    assert (world.config.lora.enabled, lora.config.lora.enabled) == (False, True)
    assert {recipe.config.reward.gold for recipe in (world, lora)} == {"world"}
    assert (world.download, world.config.model.policy) == ("", "bundled/world-policy")


def test_an_unknown_recipe_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'moon'; there are: world, world-lora") as caught:
        load_recipe("moon")
    assert caught.value.problems[0].field == "recipe"


def test_a_recipe_from_a_mapping() -> None:
    recipe = recipe_from_mapping("mine", {**HEAD, "estimate": {"minutes": 2, "download": "0.5 GB"}})
    assert (recipe.name, recipe.minutes, recipe.download, recipe.config.ppo.steps) == ("mine", 2.0, "0.5 GB", 3)


@pytest.mark.parametrize("key", ["title", "summary", "estimate", "config"])
def test_an_incomplete_head(key: str) -> None:
    data: dict[str, Any] = {name: value for name, value in HEAD.items() if name != key}
    with pytest.raises(ConfigError, match=f"recipe mine has no {key}"):
        recipe_from_mapping("mine", data)


def test_a_setting_that_is_not_valid() -> None:
    with pytest.raises(ConfigError, match="ppo.steps"):
        recipe_from_mapping("mine", {**HEAD, "config": {"ppo": {"steps": 0}}})
