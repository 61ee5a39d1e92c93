"""The usual learning rate of a run: its recipe's where the model is the recipe's, else what fits a model of its size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, overload

from rlhf_studio.config import PPOConfig, RunConfig, StageConfig, SupervisedConfig, TrainingConfig, fitting
from rlhf_studio.config.recipes import Recipe, list_recipes
from rlhf_studio.language import _

USUAL_KL_COEF = 0.05  # of InstructGPT-style recipes: Huang et al. 2024, arXiv:2403.17031
MOST_KL_COEF = 100.0


@dataclass(frozen=True)
class Usual:
    """The learning rate that others are measured against.

    Attributes:
        rate: of AdamW.
        whose: for a title: ``the recipe's``.
        binding: whether a rate far below it is worth a word, and one somewhat above it: not where it is only the highest that people use.
    """

    rate: float
    whose: str
    binding: bool = True


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


def usual_rate(config: StageConfig, weights: int | None, examples: int | None = None) -> Usual | None:
    """The recipe's rate for a run with its model; else what fits a model of so many ``weights`` and ``examples``; None where it is not
    known."""
    if not isinstance(config, RunConfig | SupervisedConfig):
        return None
    recipe = recipe_of(config)
    if recipe and recipe.lora.enabled == config.lora.enabled and recipe.model.policy == config.model.policy:
        return Usual(optimisation(recipe)[1].learning_rate, _("the recipe's"))
    if not weights:
        return None
    learner = fitting.Learner(weights, config.lora.enabled, bool(getattr(config.model, "fresh", False)))
    fitted = fitting.learning_rate(config.stage, learner, examples)
    return Usual(fitted.value, _("what fits {why}").format(why=fitted.why))


def other_rate(
    config: StageConfig, weights: int | None, choose: Callable[[float, float | None], float], examples: int | None = None
) -> dict[str, float]:
    """The learning rate that ``choose`` (:func:`~rlhf_studio.config.stability.gentler` or ``bolder``) gives, by the setting's dotted name.

    Empty for a stage in which nothing learns. ``weights``: of the model that learns, and ``examples`` to learn from; None where that is not
    known.
    """
    if not isinstance(config, RunConfig | SupervisedConfig):
        return {}
    section, settings = optimisation(config)
    usual = usual_rate(config, weights, examples)
    return {f"{section}.learning_rate": choose(settings.learning_rate, usual.rate if usual else None)}


def usual_price(config: RunConfig) -> float:
    """The recipe's KL coefficient; the usual one where it has none."""
    recipe = recipe_of(config)
    return recipe.ppo.kl_coef if recipe and recipe.ppo.kl_coef > 0 else USUAL_KL_COEF


def stronger_pull(config: RunConfig) -> dict[str, Any]:
    """The setting that keeps the policy nearer to its reference, by dotted name: half the KL target of an adaptive controller, else twice
    the KL coefficient; :func:`usual_price` where there is none."""
    ppo = config.ppo
    if ppo.kl_coef == 0:
        return {"ppo.kl_coef": usual_price(config)}
    if ppo.kl_controller == "adaptive":
        return {"ppo.kl_target": float(f"{ppo.kl_target / 2:.2g}")}
    return {"ppo.kl_coef": min(MOST_KL_COEF, float(f"{2 * ppo.kl_coef:.2g}"))}
