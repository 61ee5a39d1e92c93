"""How a finding about settings is made, and the rules that all training stages share.

Each stage says in its own words what too high a learning rate does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhf_studio.analysis.doctor.remedies import optimisation, recipe_of
from rlhf_studio.analysis.records import OF_SETTINGS, Evidence, Finding, Level
from rlhf_studio.config import RunConfig, SupervisedConfig

FAR_ABOVE, WILD = 10.0, 100.0  # times the recipe's or the highest usual rate
FAR_BELOW = 0.01  # times the recipe's


def settings_finding(
    name: str, level: Level, title: str, rule: str, cause: str, advice: str, changes: dict[str, Any] | None = None, *, setting: str
) -> Finding:
    """A finding that holds from before the first step; ``setting`` is what to look at."""
    return Finding(f"{OF_SETTINGS}{name}", level, title, 0, rule, [Evidence(setting)], cause, advice, changes or {})


def learning_rate(config: RunConfig | SupervisedConfig, usual: float, *, too_high: str, more: str = "") -> Iterator[Finding]:
    """A rate far from the recipe's, or far above ``usual`` where the run has no recipe of its kind.

    ``too_high`` says what such a rate does; ``more`` stands behind the rate that is advised.
    """
    section, settings = optimisation(config)
    recipe = recipe_of(config)
    same_kind = recipe is not None and recipe.lora.enabled == config.lora.enabled and recipe.model.policy == config.model.policy
    base, whose = (optimisation(recipe)[1].learning_rate, "the recipe's") if recipe and same_kind else (usual, "the highest usual rate")
    name, rate, factor = f"{section}.learning_rate", settings.learning_rate, settings.learning_rate / base
    changes, setting = {name: base}, f"{name} {rate:g}"
    if factor >= FAR_ABOVE * 0.999:
        title = f"Learning rate {rate:g} is {_times(factor)} {whose}"
        rule = f"{FAR_ABOVE:g} times {whose} ({base:g}); alarm: {WILD:g} times"
        advice = f"Use {base:g}{more}, and change it by factors of 2 or 3 from there."
        level: Level = "alarm" if factor >= WILD * 0.999 else "warning"
        yield settings_finding("learning-rate", level, title, rule, too_high, advice, changes, setting=setting)
    elif same_kind and factor <= FAR_BELOW:
        title = f"Learning rate {rate:g} is a {1 / factor:,.0f}th of the recipe's"
        rule, cause = f"below {FAR_BELOW:g} times the recipe's ({base:g})", "In so few steps so small a rate changes hardly anything."
        yield settings_finding("learning-rate", "warning", title, rule, cause, f"Use {base:g}.", changes, setting=setting)


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
