"""Risky settings of fine-tuning, reward models and DPO."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

from rlhf_studio.analysis.doctor import settings_rules
from rlhf_studio.analysis.doctor.settings_rules import settings_finding as finding
from rlhf_studio.analysis.records import Finding, Level
from rlhf_studio.config import DPORunConfig, RewardModelRunConfig, SFTRunConfig, SupervisedConfig, fitting
from rlhf_studio.config.fitting import FRESH_TIMES, LORA_TIMES, NOTHING_KNOWN, Known
from rlhf_studio.config.usual import recipe_of
from rlhf_studio.language import _, ngettext
from rlhf_studio.units import percent

HIGHEST_RATE = {"sft": 1e-3, "reward_model": 1e-3, "dpo": 1e-4}
"""The highest that people use in full training: large models take 1e-6 to 5e-5, tiny ones more. DPO takes a tenth of the others."""
TOO_MANY_PASSES = {"sft": 10, "reward_model": 3, "dpo": 3}
"""InstructGPT trained its reward model for one pass and saw it overfit after (Ouyang et al. 2022, section C.2); DPO takes 1 to 3."""
LOW_BETA, HIGH_BETA = 0.01, 1.0  # DPO's own experiments use 0.1 to 0.5 (Rafailov et al. 2023, section B)
FAR_FEWER = 4  # times fewer examples in a batch than fit
MUCH_SMOOTHING = 0.3  # a share of wrong labels at which there is hardly anything left to learn
STRONG_CENTERING = 0.1  # ten times what TRL recommends


def risks(config: SupervisedConfig, known: Known = NOTHING_KNOWN) -> Iterator[Finding]:
    """What is risky in the settings of such a run."""
    yield from _learning_rate(config, known)
    yield from settings_rules.chat_template(config, known)
    yield from _steps(config, known)
    yield from _held_out(config, known)
    if isinstance(config, RewardModelRunConfig):
        yield from _reward_model(config)
    if isinstance(config, DPORunConfig):
        yield from _beta(config)
    if isinstance(config, RewardModelRunConfig | DPORunConfig):
        yield from _smoothing(config)


def _learning_rate(config: SupervisedConfig, known: Known) -> Iterator[Finding]:
    fresh = isinstance(config, SFTRunConfig) and config.model.fresh
    usual = HIGHEST_RATE[config.stage] * (LORA_TIMES if config.lora.enabled else FRESH_TIMES if fresh else 1.0)
    too_high = _("Such steps usually destroy within a few updates what the model knows; the loss then rises and stays high.")
    yield from settings_rules.learning_rate(config, known, usual, too_high=too_high, or_less=True)


def _batch(config: SupervisedConfig, known: Known) -> Iterator[Finding]:
    stage, count, recipe = config.stage, config.training.batch_size, recipe_of(config)
    if recipe and recipe.model.policy == config.model.policy:
        size = recipe.training.batch_size
    else:
        size = fitting.supervised_batch(known.examples, config.training.epochs).value if known.examples else fitting.BATCHES[0]
    tiny = count < fitting.BATCHES[-1]
    if tiny or known.examples and FAR_FEWER * count < size:
        title = ngettext("A step sees one example", "A step sees {count} examples", count).format(count=count)
        rule = _("fewer than {tiny} examples in a batch (warning), or than a quarter of {size} (note)")
        rule = rule.format(tiny=fitting.BATCHES[-1], size=size)
        cause = _("Each step follows so few, so most of what the steps do undoes the one before.")
        if count == 1:
            cause = _("Each step follows one example alone, so most of what the steps do undoes the one before.")
        advice = _("Use {size}. A micro-batch of {count} keeps the memory low and changes nothing else.").format(size=size, count=count)
        changes: dict[str, Any] = {f"{stage}.batch_size": size, f"{stage}.micro_batch_size": count}
        level: Level = "warning" if tiny else "note"
        yield finding("batch", level, title, rule, cause, advice, changes, setting=f"{stage}.batch_size {count}")


def _steps(config: SupervisedConfig, known: Known) -> Iterator[Finding]:
    stage, training = config.stage, config.training
    yield from _batch(config, known)
    most = TOO_MANY_PASSES[stage]
    if training.epochs > most and not training.max_steps:
        title = _("{count} passes over the same examples").format(count=training.epochs)
        rule = _("more than {count} passes, without a limit of the steps").format(count=most)
        cause = _("The model then learns the examples by heart: its loss on them goes on falling, on new ones it rises.")
        advice = _("Use 1 to 3.") if stage == "sft" else _("Use 1, or 2 where there are few pairs: a reward model or DPO soon overfits.")
        changes: dict[str, Any] = {f"{stage}.epochs": 3 if stage == "sft" else 1}
        yield finding("passes", "warning", title, rule, cause, advice, changes, setting=f"{stage}.epochs {training.epochs}")
    if steps := known.steps or training.max_steps:
        yield from settings_rules.warm_up(config, steps)
    yield from settings_rules.gradient_clip(config, HIGHEST_RATE[stage], _("A single odd batch can then throw the model far off."))


def _held_out(config: SupervisedConfig, known: Known) -> Iterator[Finding]:
    data, better = config.data, fitting.examples_share(known.examples)
    aside: dict[str, Any] = {"data.eval_share": better.value}
    if not data.eval and data.eval_share == 0:
        cause = _(
            "Then nobody can see whether the model learns something general or these examples by heart, and no best checkpoint is known."
        )
        advice = _("Use a share of {share:g}: {why}.").format(share=better.value, why=better.why)
        title, rule = _("No example is held out"), _("neither held-out data nor a share set aside")
        level: Level = "note" if config.stage == "sft" else "warning"
        yield finding("held-out", level, title, rule, cause, advice, aside, setting="data.eval_share 0")
    elif data.eval and data.eval == data.source and data.eval_split == data.split:
        title, rule = _("The held-out data is the training data"), _("the same source and split for both")
        cause = _("The held-out loss then falls also where the model only learns by heart.")
        cleared: dict[str, Any] = {"data.eval": "", **({} if data.eval_share else aside)}
        advice = _("Leave it empty: a share is set aside then.")
        yield finding("held-out", "warning", title, rule, cause, advice, cleared, setting=f"data.eval {data.eval}")


def _reward_model(config: RewardModelRunConfig) -> Iterator[Finding]:
    centering = config.reward_model.centering
    if centering > STRONG_CENTERING:
        title, rule = _("Centering {value:g} is strong").format(value=centering), _("above {value:g}").format(value=STRONG_CENTERING)
        cause = _("It costs more to give any score than pairs can earn, so all scores stay near 0.")
        changes, setting = {"reward_model.centering": 0.01}, f"reward_model.centering {centering:g}"
        yield finding("centering", "warning", title, rule, cause, _("0.01 is usual."), changes, setting=setting)


def _smoothing(config: RewardModelRunConfig | DPORunConfig) -> Iterator[Finding]:
    share = config.training.label_smoothing
    if share > MUCH_SMOOTHING:
        title = _("Label smoothing {value:g} hides what the labels say").format(value=share)
        rule = _("above {value:g}").format(value=MUCH_SMOOTHING)
        cause = _("It takes {share} of the pairs for wrong, so a margin of {margin:.2f} is already too sure.")
        cause = cause.format(share=percent(share), margin=_widest(share))
        changes, setting = {f"{config.stage}.label_smoothing": 0.1}, f"{config.stage}.label_smoothing {share:g}"
        yield finding("smoothing", "warning", title, rule, cause, _("0.05 to 0.2 are usual."), changes, setting=setting)


def _widest(share: float) -> float:
    """The margin at which a smoothed loss is lowest: its sigmoid is 1 minus the share of wrong labels."""
    return log((1 - share) / share)


def _beta(config: DPORunConfig) -> Iterator[Finding]:
    beta, setting, advice = config.dpo.beta, f"dpo.beta {config.dpo.beta:g}", _("0.05 to 0.5 are usual.")
    if beta < LOW_BETA:
        title, rule = _("β {value:g} hardly holds the policy").format(value=beta), _("below {value:g}").format(value=LOW_BETA)
        cause = _("A reward margin of 1 asks for log-ratios of {nats:,.0f} nats: the policy leaves its reference far behind.")
        yield finding("beta", "warning", title, rule, cause.format(nats=1 / beta), advice, {"dpo.beta": 0.1}, setting=setting)
    elif beta > HIGH_BETA:
        title, rule = _("β {value:g} hardly lets the policy move").format(value=beta), _("above {value:g}").format(value=HIGH_BETA)
        cause = _("A reward margin of 1 is reached with log-ratios of {nats:.2g} nats, which changes next to nothing in its answers.")
        yield finding("beta", "warning", title, rule, cause.format(nats=1 / beta), advice, {"dpo.beta": 0.1}, setting=setting)
