"""Ready-made configurations. Each is one YAML file in this folder: a head, and the settings that differ from the defaults.

The head has ``order`` (the place among the cards), ``title``, ``summary``, ``estimate`` and perhaps ``first``, ``writes``, ``watch`` and
``asks``; docs/extending.md says how to add a recipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlhf_studio.config import Stage, StageConfig
from rlhf_studio.config.io import ConfigError, Problem, mapping_from_yaml, parse_config

FOLDER = Path(__file__).resolve().parent
HEAD = ("order", "title", "summary", "estimate")
"""What every recipe says of itself, besides its settings (``config``)."""
MORE = ("first", "writes", "watch", "asks")
"""What a recipe may say as well."""


@dataclass(frozen=True)
class Recipe:
    """A ready-made configuration.

    Attributes:
        name: what the command line takes, e.g. ``world``; the name of the file without its ending.
        order: the place among the cards, lowest first: from what runs anywhere to what needs a large GPU. The app opens with the first.
        title, summary: for the card.
        minutes: how long the run takes on two CPU cores, in minutes; None when nobody has measured it here.
        download: what is fetched first, e.g. ``0.5 GB``; empty when nothing is.
        gpu: which GPU the run needs, in words; empty when it needs none.
        first: what may have to be done before the run can start, one sentence; empty when nothing.
        writes: what the model writes, in the plural: ``film reviews``.
        watch: why the run is worth watching, one sentence; empty when nothing is said.
        asks: the settings that a person must give, because the recipe is for a model of one's own; its other settings are fitted to them
            (:mod:`rlhf_studio.inputs.fitted`). Empty for a recipe that runs as it is.
    """

    name: str
    order: int
    title: str
    summary: str
    minutes: float | None
    download: str
    gpu: str
    config: StageConfig
    first: str = ""
    writes: str = "responses"
    watch: str = ""
    asks: tuple[str, ...] = ()

    @property
    def stage(self) -> Stage:
        """What the run does: PPO, or a stage before it."""
        return self.config.stage


def list_recipes(stage: Stage | None = None) -> list[Recipe]:
    """All recipes, or those of one stage, in the order of the cards."""
    recipes = (_read(path) for path in FOLDER.glob("*.yaml"))
    return sorted((recipe for recipe in recipes if stage in (None, recipe.stage)), key=lambda recipe: (recipe.order, recipe.name))


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
    missing = [key for key in (*HEAD, "config") if not data.get(key)]
    if missing:
        raise ConfigError([Problem(missing[0], f"recipe {name} has no {missing[0]}")])
    unknown = [str(key) for key in data if key not in (*HEAD, "config", *MORE)]
    if unknown:
        raise ConfigError([Problem(unknown[0], f"recipe {name} has no such entry; it takes {', '.join((*HEAD, *MORE))} and config")])
    order = data["order"]
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise ConfigError([Problem("order", f"the order of recipe {name} should be a whole number of at least 1, not {order!r}")])
    config = parse_config({"recipe": name, **data["config"]})
    estimate = data["estimate"]
    minutes = float(estimate["minutes"]) if estimate.get("minutes") else None
    download, gpu = (str(estimate.get(key) or "") for key in ("download", "gpu"))
    first, writes, watch = (str(data.get(key) or "") for key in ("first", "writes", "watch"))
    asks = tuple(str(setting) for setting in data.get("asks") or ())
    return Recipe(name, order, data["title"], data["summary"], minutes, download, gpu, config, first, writes or "responses", watch, asks)
