"""What the settings of a file stand on: a recipe that the file names, or the defaults. The rule of the command line and the Train page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, merged, names_given, stage_class, walk_fields
from rlhf_studio.config.recipes import Recipe, load_recipe

LEFT_OUT = 0.1
"""Share of all settings that a file saved with a run may lack: those that came later."""


def recipe_under(given: Mapping[str, Any]) -> Recipe | None:
    """The recipe that a file names, which gives what the file leaves out.

    None for a file that names none, and for one that gives nearly all settings: it was saved with a run, perhaps by an earlier version.
    Raises :class:`ConfigError` for what is no recipe, and for one of another stage than the file's.
    """
    name = given.get("recipe")
    every = {setting for setting, _ in walk_fields(stage_class(given)) if "." in setting}
    if not name or len(every - names_given(given)) <= LEFT_OUT * len(every):
        return None
    if not isinstance(name, str):
        raise ConfigError([Problem("recipe", "should be the name of a recipe; see 'recipes list'")])
    recipe = load_recipe(name)
    if given.get("stage", recipe.stage) != recipe.stage:
        raise ConfigError([Problem("stage", f"should be {recipe.stage}, as in the recipe {recipe.name}; or leave the recipe out")])
    return recipe


def over_recipe(recipe: Recipe, given: Mapping[str, Any], overrides: Mapping[str, str] | None = None) -> tuple[dict[str, Any], set[str]]:
    """All settings of a recipe with those that a file gives, and the command line as text; and the dotted names of these two.

    Raises :class:`ConfigError` for a name that leads nowhere; the values are not checked.
    """
    settings = apply_overrides(merged(recipe.config.model_dump(mode="json"), dict(given)), overrides or {})
    return settings, {*names_given(given), *(overrides or {})}
