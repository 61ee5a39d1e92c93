"""How a finding about settings is made, and the rules that all training stages share.

Each stage says in its own words what too high a learning rate does.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

from rlhf_studio.analysis.records import OF_SETTINGS, Evidence, Finding, Level
from rlhf_studio.config import DataConfig, RunConfig, SupervisedConfig, fitting
from rlhf_studio.config.fitting import Known
from rlhf_studio.config.usual import Usual, optimisation, recipe_of, usual_rate
from rlhf_studio.language import _

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


def learning_rate(
    config: RunConfig | SupervisedConfig, known: Known, highest: float, *, too_high: str, more: str = ""
) -> Iterator[Finding]:
    """A rate far from the usual one. ``too_high`` says what such a rate does; ``more`` stands behind the rate that is advised."""
    usual = usual_rate(config, known.weights, known.examples) or Usual(highest, _("the highest usual rate"), binding=False)
    section, settings = optimisation(config)
    too_low = _("In so few steps so small a rate changes hardly anything.")
    name = f"{section}.learning_rate"
    yield from _far_off(_("Learning rate"), name, settings.learning_rate, usual, too_high=too_high, too_low=too_low, more=more)


def critic_rate(config: RunConfig, width: int | None) -> Iterator[Finding]:
    """A critic's rate far from the recipe's for this model, and from what fits its ``width``."""
    usual = []
    recipe = recipe_of(config)
    if recipe and recipe.ppo.has_critic and (recipe.model.policy, recipe.critic.kind) == (config.model.policy, config.critic.kind):
        usual.append(Usual(_critic_rate(recipe), _("the recipe's")))
    if width and config.critic.kind == "shared":
        usual.append(Usual(fitting.critic_learning_rate(width).value, _("what fits a width of {width:,}").format(width=width)))
    if not config.ppo.has_critic or not usual:
        return
    rate = _critic_rate(config)
    nearest = min(usual, key=lambda one: abs(log(rate / one.rate)))
    too_high = _("The critic's guesses then jump from step to step, and the advantages with them.")
    too_low = _("The critic then learns hardly anything, so that the advantages stay as noisy as the scores.")
    yield from _far_off(_("Critic learning rate"), "ppo.critic_learning_rate", rate, nearest, too_high=too_high, too_low=too_low)


def _critic_rate(config: RunConfig) -> float:
    return config.ppo.critic_learning_rate or config.ppo.learning_rate


def _far_off(what: str, name: str, rate: float, usual: Usual, *, too_high: str, too_low: str, more: str = "") -> Iterator[Finding]:
    """A rate far from the usual one; ``what`` it is called, and ``name`` its setting."""
    factor, check = rate / usual.rate, what.lower().replace(" ", "-")
    changes, setting = {name: usual.rate}, f"{name} {rate:g}"
    level = next((level for least, level in ABOVE if factor * AS_GOOD >= least), None)
    if level is not None and (usual.binding or level != "note"):
        title = _("{what} {rate:g} is {factor} {whose}").format(what=what, rate=rate, factor=_times(factor), whose=usual.whose)
        rule = _("at least {join} {whose} ({rate:g})").format(
            join=", ".join(_("{least:g} times ({grave})").format(least=least, grave=_(grave)) for least, grave in reversed(ABOVE)),
            whose=usual.whose,
            rate=usual.rate,
        )
        cause = _("It may learn faster, and may break the run.") if level == "note" else too_high
        advice = _("Use {rate:g}{more}, and change it by factors of 2 or 3 from there.").format(rate=usual.rate, more=more)
        yield settings_finding(check, level, title, rule, cause, advice, changes, setting=setting)
    elif usual.binding and factor <= BELOW:
        title = _("{what} {rate:g} is {factor:,.0f} times below {whose}").format(what=what, rate=rate, factor=1 / factor, whose=usual.whose)
        rule = _("below {BELOW:g} times {whose} ({rate:g})").format(BELOW=BELOW, whose=usual.whose, rate=usual.rate)
        yield settings_finding(check, "warning", title, rule, too_low, _("Use {rate:g}.").format(rate=usual.rate), changes, setting=setting)


def chat_template(config: RunConfig | SupervisedConfig, known: Known) -> Iterator[Finding]:
    """Prompts that are not written as chats, for a model that knows chats. Beginnings of texts are none."""
    data = config.data
    beginnings = isinstance(data, DataConfig) and data.query_tokens_max
    if known.chat and not (data.chat_template or data.prompt_format or beginnings):
        title, rule = _("The chat template is off, and the model has one"), _("off, and the tokenizer has a chat template")
        cause = _("A model that learned from chats answers other prompts worse, and may not know where its answer ends.")
        changes: dict[str, Any] = {"data.chat_template": True}
        if data.overlong == "cut_right":
            changes["data.overlong"] = "cut_left"  # a chat cannot lose its end
        advice = _("Switch it on (data.chat_template true); only a model that never learned from chats does as well without.")
        yield settings_finding("chat-template", "warning", title, rule, cause, advice, changes, setting="data.chat_template false")


def warm_up(config: RunConfig | SupervisedConfig, steps: int) -> Iterator[Finding]:
    """A warm-up that lasts as long as the run of so many ``steps``."""
    section, settings = optimisation(config)
    if settings.warmup_steps >= steps:
        name = f"{section}.warmup_steps"
        title, setting = (
            _("The warm-up is as long as the run"),
            _("{name} {warmup_steps}, of {steps:,} steps").format(name=name, warmup_steps=settings.warmup_steps, steps=steps),
        )
        rule, cause = _("warm-up steps at least as many as steps"), _("The learning rate never reaches its full value.")
        better = fitting.warm_up(steps)
        advice = _("Use {value}: {why}.").format(value=better.value, why=better.why)
        yield settings_finding("warm-up", "warning", title, rule, cause, advice, {name: better.value}, setting=setting)


def gradient_clip(config: RunConfig | SupervisedConfig, highest_rate: float, learner: str) -> Iterator[Finding]:
    """No gradient clip with a learning rate above the highest usual one; ``learner`` names the model that would be damaged."""
    section, settings = optimisation(config)
    if settings.max_grad_norm == 0 and settings.learning_rate > highest_rate:
        name = f"{section}.max_grad_norm"
        title, rule = (
            _("No gradient clip with a high learning rate"),
            _("gradient clip 0 and a learning rate above {highest_rate:g}").format(highest_rate=highest_rate),
        )
        cause = _("A single odd batch can then throw the {learner} far off.").format(learner=learner)
        yield settings_finding("gradient-clip", "warning", title, rule, cause, "Use 1.", {name: 1.0}, setting=f"{name} 0")


def _times(factor: float) -> str:
    """4500.0 -> "4,500 times", 2.5 -> "2.5 times"."""
    return _("{factor:,.0f} times").format(factor=factor) if factor >= 10 else _("{factor:.2g} times").format(factor=factor)
