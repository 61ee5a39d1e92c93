"""Ready-made configurations. Each is a YAML file here: a head (title, summary, estimate) and the settings that differ from the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import ConfigError, Problem, mapping_from_yaml, parse_config

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Recipe:
    """A configuration that is known to work.

    Attributes:
        name: what the command line takes, e.g. ``world``; the file's stem.
        title, summary: for the card.
        minutes: how long the run takes on two CPU cores, in minutes.
        download: what is fetched first, e.g. ``0.5 GB``; empty when nothing is.
    """

    name: str
    title: str
    summary: str
    minutes: float
    download: str
    config: RunConfig


def list_recipes() -> list[Recipe]:
    """All recipes, the first of which the app opens with."""
    return sorted((_read(path) for path in FOLDER.glob("*.yaml")), key=lambda recipe: (len(recipe.name), recipe.name))


def load_recipe(name: str) -> Recipe:
    """One recipe by name. Raises :class:`ConfigError` that lists the names there are."""
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    if name not in recipes:
        raise ConfigError([Problem("recipe", f"there is no recipe {name[:60]!r}; there are: {', '.join(recipes)}")])
    return recipes[name]


@lru_cache(maxsize=64)
def _read(path: Path) -> Recipe:
    return recipe_from_mapping(path.stem, mapping_from_yaml(path.read_text(encoding="utf-8")))


def recipe_from_mapping(name: str, data: dict[str, Any]) -> Recipe:
    """Build a recipe from a parsed file. Raises :class:`ConfigError` for a head that is incomplete or settings that are not valid."""
    missing = [key for key in ("title", "summary", "estimate", "config") if not data.get(key)]
    if missing:
        raise ConfigError([Problem(missing[0], f"recipe {name} has no {missing[0]}")])
    config = parse_config({"recipe": name, **data["config"]})
    estimate = data["estimate"]
    return Recipe(name, data["title"], data["summary"], float(estimate["minutes"]), str(estimate.get("download") or ""), config)
