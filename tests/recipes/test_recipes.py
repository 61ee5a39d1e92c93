"""Recipes: each is a valid configuration with a complete head."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import recipes
from rlhf_studio.config.io import ConfigError, config_from_yaml, config_to_yaml, mapping_from_yaml, parse_config, walk_fields
from rlhf_studio.config.recipes import FOLDER, list_recipes, load_recipe, recipe_from_mapping
from rlhf_studio.inputs.models.pickles import convert_command
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.train_page import TrainPage

HEAD = {"order": 5, "title": "T", "summary": "S", "estimate": {"minutes": 2}, "config": {"ppo": {"steps": 3}}}


def test_the_first_recipe_is_the_tiny_world_and_all_are_complete() -> None:
    found = list_recipes()
    assert [recipe.name for recipe in found][:2] == ["world", "world-lora"]
    assert len({recipe.title for recipe in found}) == len({recipe.order for recipe in found}) == len(found)
    for recipe in found:
        assert set(recipe.asks) <= dict(walk_fields(type(recipe.config))).keys()
        assert recipe.title and recipe.summary.endswith(".") and len(recipe.summary) <= 100
        assert recipe.config.recipe == recipe.name
        assert config_from_yaml(config_to_yaml(recipe.config)) == recipe.config


def test_a_file_in_the_folder_is_all_that_a_recipe_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed in its place, offered on the Train page and taken by the command line."""
    folder = tmp_path / "recipes"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "mine.yaml").write_text(
        "order: 5\ntitle: My world\nsummary: A try.\nestimate: {minutes: 2}\nconfig: {ppo: {steps: 3}}\n", encoding="utf-8"
    )
    monkeypatch.setattr(recipes, "FOLDER", folder)
    assert [recipe.name for recipe in list_recipes()][:2] == ["mine", "world"]
    assert load_recipe("mine").config.ppo.steps == 3
    assert main(["recipes", "list"]) == 0
    assert "mine            My world: A try." in capsys.readouterr().out
    page = TrainPage(Workspace(tmp_path), Access())
    cards = page.boot({}, None)["recipes"]  # type: ignore[arg-type] # nobody in particular: a viewer
    assert [card["title"] for card in cards][0] == "My world"


def test_the_sentiment_recipes_say_what_to_convert_first(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gpt2-imdb", "gpt2-imdb-mean"):
        recipe = load_recipe(name)
        assert convert_command(recipe.config.model.policy) in recipe.first
        assert main(["recipes", "show", name]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"# {recipe.first}\n") and config_from_yaml(shown) == recipe.config
    assert main(["recipes", "list"]) == 0
    assert capsys.readouterr().out.count("convert lvwerra/gpt2-imdb") == 2


def test_an_unknown_recipe_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'moon'; there are: world, world-lora") as caught:
        load_recipe("moon")
    assert caught.value.problems[0].field == "recipe"


def test_a_recipe_from_a_mapping() -> None:
    recipe = recipe_from_mapping("mine", {**HEAD, "estimate": {"minutes": 2, "download": "0.5 GB"}})
    assert (recipe.name, recipe.minutes, recipe.download, recipe.gpu, recipe.config.ppo.steps) == ("mine", 2.0, "0.5 GB", "", 3)
    unknown = recipe_from_mapping("mine", {**HEAD, "estimate": {"gpu": "a large one"}})
    assert (unknown.minutes, unknown.gpu) == (None, "a large one")


@pytest.mark.parametrize("key", ["order", "title", "summary", "estimate", "config"])
def test_an_incomplete_head(key: str) -> None:
    data: dict[str, Any] = {name: value for name, value in HEAD.items() if name != key}
    with pytest.raises(ConfigError, match=f"recipe mine has no {key}"):
        recipe_from_mapping("mine", data)


def test_a_head_with_an_entry_that_means_nothing() -> None:
    takes = "order, title, summary, estimate, first, writes, watch, asks and config"
    with pytest.raises(ConfigError, match=f"^frist: recipe mine has no such entry; it takes {takes}"):
        recipe_from_mapping("mine", {**HEAD, "frist": "Convert it."})


@pytest.mark.parametrize(
    "order",
    [
        "last",
        1.5,
    ],
)
def test_an_order_that_is_no_place(order: object) -> None:
    with pytest.raises(ConfigError, match="^order: the order of recipe mine should be a whole number of at least 1, not "):
        recipe_from_mapping("mine", {**HEAD, "order": order})


@pytest.mark.parametrize("name", [recipe.name for recipe in list_recipes()])
def test_every_setting_that_is_shown_can_be_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is the recipe, and no printed setting is one that such a run refuses as unused."""
    assert main(["recipes", "show", name]) == 0
    shown = mapping_from_yaml(capsys.readouterr().out)
    assert parse_config(shown) == load_recipe(name).config
    for section, settings in ((section, settings) for section, settings in shown.items() if isinstance(settings, dict)):
        for setting, value in settings.items():
            other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else "other"
            try:
                parse_config({**shown, section: {**settings, setting: other}})
            except ConfigError as error:
                assert "does not use this" not in str(error), f"{section}.{setting}"
