"""Settings that a fork could try, as a remedy for a finding."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, overload

from rlhf_studio.config import PPOConfig, RunConfig, StageConfig, SupervisedConfig, TrainingConfig
from rlhf_studio.config.recipes import Recipe, list_recipes

USUAL_KL_COEF = 0.05  # of InstructGPT-style recipes: Huang et al. 2024, arXiv:2403.17031
FAR = 3.0  # a learning rate within this factor of the recipe's counts as the recipe's


@lru_cache(maxsize=1)
def _recipes() -> dict[str, Recipe]:
    return {recipe.name: recipe for recipe in list_recipes()}


_Config = TypeVar("_Config", bound=StageConfig)


def recipe_of(config: _Config) -> _Config | None:
    """The settings of the recipe that a configuration started from; None if it names no recipe of its stage that runs as it is."""
    recipe = _recipes().get(config.recipe)
    return recipe.config if recipe is not None and not recipe.asks and isinstance(recipe.config, type(config)) else None


@overload
def optimisation(config: RunConfig | SupervisedConfig) -> tuple[str, PPOConfig | TrainingConfig]: ...
@overload
def optimisation(config: StageConfig) -> tuple[str, PPOConfig | TrainingConfig] | None: ...
def optimisation(config: StageConfig) -> tuple[str, PPOConfig | TrainingConfig] | None:
    """The section that says how the weights are trained, with its name; None for a stage that trains nothing."""
    if isinstance(config, RunConfig):
        return "ppo", config.ppo
    section = getattr(config, config.stage)
    return (config.stage, section) if isinstance(section, TrainingConfig) else None


def calmer(config: StageConfig) -> dict[str, Any]:
    """A lower learning rate: the recipe's where this one is far above it, else a third."""
    return _other_rate(config, lambda now, usual: usual if usual and now > FAR * usual else float(f"{now / 3:.2g}"))


def bolder(config: StageConfig) -> dict[str, Any]:
    """A higher learning rate: the recipe's where this one is far below it, else three times as much, at most 1."""
    return _other_rate(config, lambda now, usual: usual if usual and now * FAR < usual else min(1.0, float(f"{now * 3:.2g}")))


def _other_rate(config: StageConfig, choose: Callable[[float, float], float]) -> dict[str, Any]:
    """The learning rate that ``choose`` picks, given the rate in force and the recipe's (0 without a recipe)."""
    own, recipe = optimisation(config), recipe_of(config)
    if own is None:
        return {}
    section, settings = own
    usual = optimisation(recipe) if recipe is not None else None
    return {f"{section}.learning_rate": choose(settings.learning_rate, usual[1].learning_rate if usual else 0.0)}


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


def less_memory(config: StageConfig) -> dict[str, Any]:
    """Half the micro-batch, where it can be halved; else gradient checkpointing."""
    own = optimisation(config)
    if own is None:
        return {}
    section, settings = own
    minibatch = settings.mini_batch_size if isinstance(settings, PPOConfig) else 0  # which micro-batches must divide; 0: any size will do
    half = next((size for size in range(settings.micro_batch // 2, 0, -1) if minibatch % size == 0), 0)
    return {f"{section}.micro_batch_size": half} if half else {"model.gradient_checkpointing": True}
