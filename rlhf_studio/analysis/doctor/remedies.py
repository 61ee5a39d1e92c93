"""Settings that a fork would try against what was found."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.recipes import list_recipes

USUAL_KL_COEF = 0.05  # of InstructGPT-style recipes: Huang et al. 2024, arXiv:2403.17031
FAR = 3.0  # a learning rate within this factor of the recipe's counts as the recipe's


@lru_cache(maxsize=1)
def _recipes() -> dict[str, RunConfig]:
    return {recipe.name: recipe.config for recipe in list_recipes() if isinstance(recipe.config, RunConfig)}


def recipe_of(config: RunConfig) -> RunConfig | None:
    """The settings of the recipe that a configuration started from; None when it names none that there is."""
    return _recipes().get(config.recipe)


def calmer(config: RunConfig) -> dict[str, Any]:
    """A lower learning rate: the recipe's where this one is far above it, else a third."""
    recipe, now = recipe_of(config), config.ppo.learning_rate
    rate = recipe.ppo.learning_rate if recipe and now > FAR * recipe.ppo.learning_rate else float(f"{now / 3:.2g}")
    return {"ppo.learning_rate": rate}


def bolder(config: RunConfig) -> dict[str, Any]:
    """A higher learning rate: the recipe's where this one is far below it, else three times as much, at most 1."""
    recipe, now = recipe_of(config), config.ppo.learning_rate
    rate = recipe.ppo.learning_rate if recipe and now * FAR < recipe.ppo.learning_rate else min(1.0, float(f"{now * 3:.2g}"))
    return {"ppo.learning_rate": rate}


def tighter(config: RunConfig) -> dict[str, Any]:
    """A stronger pull to the reference: twice the KL coefficient; the recipe's or the usual one where there is none.

    With a learning rate far above the recipe's, that is what has to change first.
    """
    ppo, recipe = config.ppo, recipe_of(config)
    if recipe and ppo.learning_rate > FAR * recipe.ppo.learning_rate:
        return calmer(config)
    if ppo.kl_controller == "adaptive" and ppo.kl_coef > 0:
        return {"ppo.kl_target": ppo.kl_target / 2}
    if ppo.kl_coef == 0:
        return usual_price(config)
    return {"ppo.kl_coef": min(100.0, 2 * ppo.kl_coef)}


def usual_price(config: RunConfig) -> dict[str, Any]:
    """The recipe's KL coefficient; the usual one where it has none."""
    recipe = recipe_of(config)
    return {"ppo.kl_coef": recipe.ppo.kl_coef if recipe and recipe.ppo.kl_coef > 0 else USUAL_KL_COEF}


def neutral_sampling(config: RunConfig) -> dict[str, Any]:
    """Top-k and top-p switched off, where they are on."""
    changes: dict[str, Any] = {"generation.top_k": 0} if config.generation.top_k else {}
    return changes | ({"generation.top_p": 1.0} if config.generation.top_p < 1 else {})
