"""The rewards that a PPO run can be given: used before, trained here, on this disk, of recipes, bundled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from rlhf_studio.config import RewardComponent, RewardModelReward, RunConfig, short_name
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.choices.choice import FROM_HUB, Choice, ChoiceGroup, distinct
from rlhf_studio.inputs.choices.hub_cache import CachedRepo
from rlhf_studio.inputs.choices.used import UsedRun
from rlhf_studio.inputs.models.facts import check_reward_model
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.language import _
from rlhf_studio.units import format_bytes

MOST_LABELS = 4
"""Of a classifier, each a reward of its own; one with more labels is named in the form."""


def reward_groups(runs: Iterable[UsedRun], cached: Iterable[CachedRepo]) -> list[ChoiceGroup]:
    """All groups that have a choice; the same components once."""
    runs = list(runs)
    before = [(run.config.reward.components, _("in {name}").format(name=run.name)) for run in runs if isinstance(run.config, RunConfig)]
    trained = [_choice([_model(str(run.folder))], f"{run.name}: {run.about}") for run in runs if run.kind == "reward_model"]
    recipes = [
        _choice(recipe.config.reward.components, _("recipe {title}").format(title=_(recipe.title)), fetched=True)
        for recipe in list_recipes("ppo")
        if recipe.download and isinstance(recipe.config, RunConfig)
    ]
    groups = [
        ChoiceGroup(_("Trained here"), trained),
        ChoiceGroup(_("Used before"), [_choice(components, about) for components, about in before if not _is_bundled(components)]),
        ChoiceGroup(_("On this disk"), [choice for repo in cached if repo.is_classifier for choice in _labels(repo)]),
        ChoiceGroup(_("Used by recipes, to be downloaded"), recipes),
        ChoiceGroup(_("Comes with RLHF Studio"), [_choice([_model("bundled/world-reward")], _("scores how friendly a film review is"))]),
    ]
    return distinct(groups, _without_names)


def _without_names(choice: Choice) -> str:
    return json.dumps([{**component, "name": ""} for component in choice.settings["reward.components"]], sort_keys=True)


def _choice(components: Sequence[RewardComponent], about: str, *, size: str = "", fetched: bool = False) -> Choice:
    models = fetched and any(component.model_names() for component in components)
    named = ", ".join(component.name if isinstance(component, RewardModelReward) else what_scores(component) for component in components)
    named = named if any(component.name for component in components) else ""
    return Choice(
        {"reward.components": [component.model_dump(mode="json") for component in components]},
        title_of(components),
        size,
        ", ".join(filter(None, (named, about))),
        download=_(FROM_HUB) if models else "",
    )


def title_of(components: Sequence[RewardComponent]) -> str:
    """``distilbert-imdb: POSITIVE + −2 × repetition``: what scores, a rule by its name where it has one."""
    return " + ".join(_weighted(component) for component in components)


def _weighted(component: RewardComponent) -> str:
    name = what_scores(component) if isinstance(component, RewardModelReward) else component.name or what_scores(component)
    return name if component.weight == 1 else f"{component.weight:g} × {name}".replace("-", "−", 1)


def what_scores(component: RewardComponent) -> str:
    """``distilbert-imdb: POSITIVE``, ``the length rule``."""
    if not isinstance(component, RewardModelReward):
        return component.described()
    name = component.model if component.model in BUNDLED else short_name(component.model)
    return f"{name}: {component.label}" if component.label else name


def _model(name: str, label: str = "") -> RewardModelReward:
    return RewardModelReward(model=name, label=label)


def _is_bundled(components: Sequence[RewardComponent]) -> bool:
    return all(name in BUNDLED for component in components for name in component.model_names()) and all(
        component.model_names() for component in components
    )


def _labels(repo: CachedRepo) -> list[Choice]:
    """A reward for each label of a classifier; none for one that cannot be used, or has many labels."""
    size = format_bytes(repo.bytes)
    try:
        return [_choice([_model(repo.name)], "", size=size)] if check_reward_model(str(repo.folder)) else []
    except ModelError as error:
        named = repo.described.get("id2label")
        if error.setting != "label" or not isinstance(named, dict) or len(named) > MOST_LABELS:
            return []
        try:
            return [
                _choice([_model(repo.name, str(label))], _("how likely {label} is").format(label=label), size=size)
                for label in named.values()
            ]
        except ValidationError:  # a label that no setting can name: too long, or half a character
            return []
