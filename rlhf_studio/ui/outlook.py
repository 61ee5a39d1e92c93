"""What a run is going to do, shown before it starts: one plain sentence and the few figures that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config import (
    STAGES,
    DPORunConfig,
    EvaluationRunConfig,
    RewardModelRunConfig,
    RunConfig,
    SFTRunConfig,
    StageConfig,
    TrainingConfig,
    short_name,
)
from rlhf_studio.config.fitting import NOTHING_KNOWN, Known
from rlhf_studio.config.io import text_of, walk_fields
from rlhf_studio.config.recipes import Recipe
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.language import N_, _, ngettext, shown
from rlhf_studio.runs.scaled_time import scaled_minutes
from rlhf_studio.units import duration, format_bytes

UNKNOWN_TIME = {"label": N_("Time"), "value": N_("known after the first round"), "help": N_("It depends on the model and the machine.")}
_UNKNOWN_OF_A_STAGE = {**UNKNOWN_TIME, "value": N_("known after the first steps")}


def sentence(
    config: StageConfig, recipe: Recipe, prompts: int | None = None, policies: Sequence[str] = (), answering: int | None = None
) -> str:
    """What will happen, in plain words that need no knowledge of the method.

    Args:
        prompts: how many there are for an evaluation; None where that is not known.
        policies: who answers in an evaluation, in words, where its settings do not name all of them yet.
        answering: how many policies that is, where somebody has looked: a line for a whole run stands for several.
    """
    if isinstance(config, RunConfig):
        return _ppo_sentence(config, recipe)
    if isinstance(config, SFTRunConfig):
        return _sft_sentence(config)
    if isinstance(config, RewardModelRunConfig):
        return _reward_model_sentence(config)
    if isinstance(config, DPORunConfig):
        return _dpo_sentence(config)
    return _evaluation_sentence(config, prompts, policies, answering) if isinstance(config, EvaluationRunConfig) else ""


_NO_NAMES = ("model", "policy")
"""Last parts of paths that say nothing: folders into which a model was saved."""


def _learner(config: RunConfig | SFTRunConfig | DPORunConfig | RewardModelRunConfig) -> str:
    """``model world-policy, with LoRA adapters of rank 16,``; a folder that is called "model" adds no name."""
    name = short_name(config.model.policy)
    model = _("model") if name.lower() in _NO_NAMES else _("model {name}").format(name=name)
    return _("{model}, with LoRA adapters of rank {rank},").format(model=model, rank=config.lora.r) if config.lora.enabled else model


def _sft_sentence(config: SFTRunConfig) -> str:
    who = (
        _("An untrained model in the shape of {policy}").format(policy=short_name(config.model.policy))
        if config.model.fresh
        else _("The {learner}").format(learner=_learner(config))
    )
    what = (
        _("{who} reads {source} and learns to write as these examples do. {amount}.")
        if config.sft.loss_on == "text"
        else _("{who} reads {source} and learns to answer as these examples do. {amount}.")
    )
    return what.format(who=who, source=short_name(config.data.source), amount=_amount(config.sft, _("examples")))


def _reward_model_sentence(config: RewardModelRunConfig) -> str:
    begin = _("A copy of the {learner} becomes a judge").format(learner=_learner(config))
    return _("{begin}: of each pair in {source}, it learns to score the response higher that people preferred. {amount}.").format(
        begin=begin, source=short_name(config.data.source), amount=_amount(config.reward_model, _("pairs"))
    )


def _dpo_sentence(config: DPORunConfig) -> str:
    return _(
        "The {learner} learns from the pairs in {source} themselves: preferred responses become likelier than "
        "rejected ones. No judge is needed. {amount}."
    ).format(learner=_learner(config), source=short_name(config.data.source), amount=_amount(config.dpo, _("pairs")))


def _evaluation_sentence(config: EvaluationRunConfig, there: int | None, policies: Sequence[str], answering: int | None) -> str:
    evaluation = config.evaluation
    asked = evaluation.prompts if there is None else min(evaluation.prompts or there, there)
    some = ngettext("{count} held-out prompt gets", "{count} held-out prompts get", asked)
    prompts = some.format(count=grouped(asked)) if asked else _("All held-out prompts get")
    count = answering or len([line for line in evaluation.policies.splitlines() if line.strip()]) or 1
    who = _listed(policies) if policies else ngettext("{count} policy", "{count} policies", count).format(count=count)
    each = "" if evaluation.samples == 1 else _(", {count} times each").format(count=evaluation.samples)
    return _("{prompts} an answer from {who}{each}. Nothing is trained.").format(prompts=prompts, who=who, each=each)


def _amount(training: TrainingConfig, what: str) -> str:
    """How much the run reads, as a part of a sentence: ``1 pass over all of them, 64 examples at a time``."""
    each = _("{count} {what}").format(count=grouped(training.batch_size), what=what)
    if training.max_steps:
        of = ngettext("{count} step of {each}", "{count} steps of {each}", training.max_steps)
        return of.format(count=grouped(training.max_steps), each=each)
    passes = ngettext(
        "{count} pass over all of them, {each} at a time", "{count} passes over all of them, {each} at a time", training.epochs
    )
    return passes.format(count=grouped(training.epochs), each=each)


def _ppo_sentence(config: RunConfig, recipe: Recipe) -> str:
    ppo = config.ppo
    learner = _learner(config)
    writes = _(recipe.writes) if config.model.policy == recipe.config.model.policy else _("responses")
    return _(
        "The {learner} writes {batch_size} {writes}, {judges} each, and what scored high becomes likelier. {rounds}, {all} {writes} in all."
    ).format(
        learner=learner,
        batch_size=grouped(ppo.batch_size),
        writes=writes,
        judges=_judges(config),
        rounds=ngettext("{count} round", "{count} rounds", ppo.steps).format(count=grouped(ppo.steps)),
        all=grouped(ppo.steps * ppo.batch_size),
    )


def watch(config: StageConfig, recipe: Recipe) -> str:
    """Why it is worth watching; empty where the models, or what they learn from, are not the recipe's."""
    return _(recipe.watch) if _learned_from(config) == _learned_from(recipe.config) else ""


def _learned_from(config: StageConfig) -> object:
    if isinstance(config, RunConfig | EvaluationRunConfig):
        return config.model.policy, config.reward.components
    source = config.data.source if isinstance(config, SFTRunConfig | RewardModelRunConfig | DPORunConfig) else ""
    return config.model.policy, source


def risks(config: StageConfig, known: Known = NOTHING_KNOWN) -> list[dict[str, Any]]:
    """Settings that are likely to spoil the run, the worst first. The run may start all the same.

    ``known``: what is known of the model and the data.

    Each has ``level``, ``title``, ``cause``, ``rule`` (when this is said), ``advice``, ``field`` (the setting to look at), ``changes``
    (settings that would cure it, empty when only a person can tell) and ``use``, the words of the button that fills them in.
    """
    return [_risk(finding) for finding in examine_settings(config, known)]


def _risk(finding: Finding) -> dict[str, Any]:
    blamed = next(iter(finding.changes), "") or finding.evidence[0].text.split(" ")[0].rstrip(",")
    return {
        "level": finding.level,
        "title": f"{finding.title}.",
        "cause": finding.cause,
        "rule": finding.threshold,
        "advice": finding.advice,
        "field": blamed,
        "changes": finding.changes,
        "use": _use(finding.changes),
    }


def _use(changes: Mapping[str, Any]) -> str:
    """What the button says: ``Use 0.0002`` for one setting, ``Use top-k 0 and top-p 1`` for several; empty for none."""
    values = {name: value_text(value) for name, value in changes.items()}
    if len(values) <= 1:
        return "".join(_use_one(value) for value in values.values())
    titles = {name: field.title or name for kind in STAGES.values() for name, field in walk_fields(kind)}
    return _("Use {values}").format(values=_listed([f"{_(titles[name])} {value}" for name, value in values.items()]))


def _use_one(value: str) -> str:
    switched = {_("on"): _("Switch it on"), _("off"): _("Switch it off")}
    return switched.get(value) or _("Use {value}").format(value=value)


def value_text(value: Any) -> str:
    """A setting's value as the page shows it: ``on``, ``0.0003``, ``16``."""
    return (_("on") if value else _("off")) if isinstance(value, bool) else text_of(value)


def _judges(config: RunConfig) -> str:
    """Who scores: ``a judge (sentiment) scores``, ``2 rules score``."""
    components = config.reward.components
    if len(components) > 3:
        return _("{components} reward components score").format(components=len(components))
    names = [component.name or component.described() for component in components]
    if len(names) == 1:
        return _("a judge ({name}) scores").format(name=names[0])
    return _("{names} score").format(names=_listed(names))


def _listed(names: Sequence[str]) -> str:
    """``a, b and c``, of two or more."""
    return _("{first} and {last}").format(first=", ".join(names[:-1]), last=names[-1]) if len(names) > 1 else names[0]


def figures(report: Preflight | None) -> list[dict[str, str]]:
    """Download and disk as label, value and help, once the machine was looked at. :mod:`forecast` shows memory and time."""
    if report is None:
        return []
    download = format_bytes(report.download_bytes) if report.download_bytes else _("none")
    return [
        {"label": _("Download"), "value": download, "help": _("Weights that are not on this machine yet.")},
        {
            "label": _("Disk"),
            "value": _("at most {bytes}").format(bytes=format_bytes(report.disk_bytes)),
            "help": _("Kept checkpoints and recorded responses."),
        },
    ]


def recipe_minutes(config: StageConfig, recipe: Recipe) -> float | None:
    """The recipe's measured minutes, scaled to these settings; None unless it was measured and the models are the recipe's.

    Of the stages that learn from examples, only the settings that were measured have a time.
    """
    if recipe.minutes is not None and isinstance(config, RunConfig) and isinstance(recipe.config, RunConfig):
        return scaled_minutes(config, recipe.config, recipe.minutes)
    return recipe.minutes if values_that_teach(config) == values_that_teach(recipe.config) else None


def unknown_time(config: StageConfig) -> dict[str, str]:
    """That the time is not known yet, as label, value and help."""
    known: dict[str, str] = shown(UNKNOWN_TIME if isinstance(config, RunConfig) else _UNKNOWN_OF_A_STAGE, ("label", "value", "help"))
    return known


def values_that_teach(config: StageConfig) -> dict[str, Any]:
    """The settings without names and the seed, which cost no time."""
    values = config.model_dump(exclude={"name", "recipe"})
    return {**values, "engine": {name: value for name, value in values["engine"].items() if name != "seed"}}


def tags(recipe: Recipe, minutes: float | None = None) -> list[str]:
    """What a recipe's card says about its cost; ``minutes``: how long it takes on this machine, None where nobody can tell."""
    download = _("downloads {size}").format(size=recipe.download) if recipe.download else _("no download")
    return [
        *([_("about {time}").format(time=duration(60 * minutes))] if minutes is not None else []),
        download,
        *([_(recipe.gpu)] if recipe.gpu else []),
    ]


def count(number: int, singular: str, many: str) -> str:
    """``1 step``, ``3,840 steps``."""
    return f"{grouped(number)} {singular if number == 1 else many}"


def grouped(number: int) -> str:
    """3840 -> "3,840"."""
    return f"{number:,}"
