"""How a finding about settings is made, and the rules that all training stages share.

Each stage says in its own words what too high a learning rate does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlhf_studio.analysis.doctor.remedies import optimisation, recipe_of
from rlhf_studio.analysis.records import OF_SETTINGS, Evidence, Finding, Level
from rlhf_studio.config import RunConfig, SupervisedConfig, fitting
from rlhf_studio.config.fitting import Learner

ABOVE: tuple[tuple[float, Level], ...] = ((30.0, "alarm"), (10.0, "warning"), (3.0, "note"))
"""How grave it is when a learning rate is so many times the usual one."""
BELOW = 0.03
"""Below this share of it hardly anything changes."""
AS_GOOD = 1.001
"""Rounding of a quotient of two rates."""


def settings_finding(
    name: str, level: Level, title: str, rule: str, cause: str, advice: str, changes: dict[str, Any] | None = None, *, setting: str
) -> Finding:
    """A finding that holds from before the first step; ``setting`` is what to look at."""
    return Finding(f"{OF_SETTINGS}{name}", level, title, 0, rule, [Evidence(setting)], cause, advice, changes or {})


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


def usual_rate(config: RunConfig | SupervisedConfig, learner: Learner | None, highest: float) -> Usual:
    """The recipe's rate for a run with its model; else what fits a model of this size, where that is known; else the ``highest`` usual."""
    recipe = recipe_of(config)
    if recipe and recipe.lora.enabled == config.lora.enabled and recipe.model.policy == config.model.policy:
        return Usual(optimisation(recipe)[1].learning_rate, "the recipe's")
    if learner is not None:
        return Usual(fitting.learning_rate(config.stage, learner).value, f"what fits {learner}")
    return Usual(highest, "the highest usual rate", binding=False)


def learning_rate(
    config: RunConfig | SupervisedConfig, learner: Learner | None, highest: float, *, too_high: str, more: str = ""
) -> Iterator[Finding]:
    """A rate far from the usual one. ``too_high`` says what such a rate does; ``more`` stands behind the rate that is advised."""
    usual = usual_rate(config, learner, highest)
    section, settings = optimisation(config)
    name, rate, factor = f"{section}.learning_rate", settings.learning_rate, settings.learning_rate / usual.rate
    changes, setting = {name: usual.rate}, f"{name} {rate:g}"
    level = next((level for least, level in ABOVE if factor * AS_GOOD >= least), None)
    if level is not None and (usual.binding or level != "note"):
        title = f"Learning rate {rate:g} is {_times(factor)} {usual.whose}"
        rule = f"at least {', '.join(f'{least:g} times ({grave})' for least, grave in reversed(ABOVE))} {usual.whose} ({usual.rate:g})"
        cause = "It may learn faster, and may break the run." if level == "note" else too_high
        advice = f"Use {usual.rate:g}{more}, and change it by factors of 2 or 3 from there."
        yield settings_finding("learning-rate", level, title, rule, cause, advice, changes, setting=setting)
    elif usual.binding and factor <= BELOW:
        title = f"Learning rate {rate:g} is {1 / factor:,.0f} times below {usual.whose}"
        rule, cause = f"below {BELOW:g} times {usual.whose} ({usual.rate:g})", "In so few steps so small a rate changes hardly anything."
        yield settings_finding("learning-rate", "warning", title, rule, cause, f"Use {usual.rate:g}.", changes, setting=setting)


def warm_up(config: RunConfig | SupervisedConfig, steps_name: str, steps: int) -> Iterator[Finding]:
    """A warm-up that lasts as long as the run, whose ``steps`` come from the setting ``steps_name``."""
    section, settings = optimisation(config)
    if settings.warmup_steps >= steps:
        name = f"{section}.warmup_steps"
        title, setting = "The warm-up is as long as the run", f"{name} {settings.warmup_steps}, {section}.{steps_name} {steps}"
        rule, cause = "warm-up steps at least as many as steps", "The learning rate never reaches its full value."
        yield settings_finding("warm-up", "warning", title, rule, cause, "Use fewer.", {name: 0}, setting=setting)


def gradient_clip(config: RunConfig | SupervisedConfig, highest_rate: float, learner: str) -> Iterator[Finding]:
    """No gradient clip with a learning rate above the highest usual one; ``learner`` names the model that would be damaged."""
    section, settings = optimisation(config)
    if settings.max_grad_norm == 0 and settings.learning_rate > highest_rate:
        name = f"{section}.max_grad_norm"
        title, rule = "No gradient clip with a high learning rate", f"gradient clip 0 and a learning rate above {highest_rate:g}"
        cause = f"A single odd batch can then throw the {learner} far off."
        yield settings_finding("gradient-clip", "warning", title, rule, cause, "Use 1.", {name: 1.0}, setting=f"{name} 0")


def _times(factor: float) -> str:
    """4500.0 -> "4,500 times", 2.5 -> "2.5 times"."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"
