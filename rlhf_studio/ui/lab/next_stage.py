"""The result of a run in the next stage: as a recipe of that stage with a few values filled in, for the Train page's form.

Nothing is started, and no code is in what is handed on: a recipe's name, and texts by the names of settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.config import (
    DPORunConfig,
    RewardModelRunConfig,
    RunConfig,
    SFTRunConfig,
    Stage,
    StageConfig,
    prompt_writing,
)
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.io import ConfigError
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.paths import workspace_of
from rlhf_studio.runs.reader import RunReader

MODELS = ("policy", "reward_model")
"""The folders of a checkpoint that hold a model as transformers loads it."""
WORLD = "world"


@dataclass(frozen=True)
class NextStage:
    """One thing that a result can be used for.

    Attributes:
        title: a few words for a link.
        why: what it is good for, one sentence.
        recipe: the card of the Train page.
        values: texts by dotted name of a setting.
    """

    title: str
    why: str
    recipe: str
    values: dict[str, str]


def next_stages(reader: RunReader, others: Sequence[RunReader] = ()) -> list[NextStage]:
    """What the newest model of a run can be used for. Empty when the run has no model, or comes from another program's log.

    ``others`` are finished runs of the workspace. Those whose reward models differ from this one in their seed alone are offered together
    with it, as an ensemble.
    """
    config = reader.config()
    checkpoints = reader.policies()
    folder = _model(Path(checkpoints[-1].path)) if checkpoints and reader.origin().keeps_model else None
    if folder is None:
        return []
    texts = _texts(config)
    if isinstance(config, SFTRunConfig):
        return [
            _next(
                config,
                "reward_model",
                _("Train a reward model on it"),
                _("It starts from the fine-tuned model."),
                "model.policy",
                folder,
                texts,
            ),
            _next(
                config,
                "ppo",
                _("Train it with PPO"),
                _("The fine-tuned model is the policy, and what it is held to."),
                "model.policy",
                folder,
                texts,
            ),
            _next(config, "dpo", _("Train it with DPO"), _("It learns from pairs, without a reward model."), "model.policy", folder, texts),
        ]
    if isinstance(config, RewardModelRunConfig):
        why = _("It scores what the policy writes.")
        body = _trained_from(config)
        texts |= {"model.policy": body} if body else {}
        alone = _next(config, "ppo", _("Use it as the reward in PPO"), why, "reward.components.0.model", folder, texts)
        return [alone, *_together(config, folder, others, texts)]
    if isinstance(config, RunConfig | DPORunConfig):
        if not _is_of_the_world(config):  # the only recipe has the review world's prompts and its reward
            return []
        recipes = list_recipes("evaluation")
        values = {"evaluation.policies": f"{reader.run_dir}@all", "model.policy": config.model.policy, **texts}
        return (
            [NextStage(_("Evaluate it"), _("See its answers beside those of where it began."), recipes[0].name, values)] if recipes else []
        )
    return []


def _together(config: RewardModelRunConfig, folder: Path, others: Sequence[RunReader], texts: dict[str, str]) -> list[NextStage]:
    """The reward model together with others from the same settings and other seeds, as one reward; empty when there are no others."""
    folders = {config.engine.seed: folder}  # the same seed again gives the same model
    for reader in others:
        try:
            other = reader.config()
            alike = other.engine.seed not in folders and _but_for_the_seed(other) == _but_for_the_seed(config)
            checkpoints = reader.policies() if alike else []  # reads folders, which takes longer than the comparison
        except (StoreError, ConfigError):  # a run that cannot be read is offered for nothing
            continue
        if checkpoints and (model := _model(Path(checkpoints[-1].path))):
            folders[other.engine.seed] = model
    if len(folders) == 1:
        return []
    why = _("Models that differ in their seed alone score together: a flaw of one is harder to please, and where they disagree they warn.")
    reward = {"reward.components.0.kind": "ensemble", "reward.components.0.models": "\n".join(map(str, folders.values()))}
    return [NextStage(_("Use all {count} as an ensemble").format(count=len(folders)), why, _recipe(config, "ppo"), {**texts, **reward})]


def _but_for_the_seed(config: StageConfig) -> dict[str, Any]:
    settings = config.model_dump(exclude={"name", "recipe"})
    settings["engine"].pop("seed")
    return settings


def _next(config: StageConfig, stage: Stage, title: str, why: str, setting: str, folder: Path, more: dict[str, str]) -> NextStage:
    recipe = _recipe(config, stage)
    return NextStage(title, why, recipe, {setting: str(folder), **more})


def _recipe(config: StageConfig, stage: Stage) -> str:
    """In the review world its recipe of the stage, else the card of one's own model."""
    in_world = next((recipe.name for recipe in list_recipes(stage) if recipe.name.startswith(WORLD)), "")
    return in_world if in_world and _is_of_the_world(config) else next(recipe.name for recipe in list_recipes(stage) if recipe.asks)


def _is_of_the_world(config: StageConfig) -> bool:
    names = (config.model.policy, getattr(config.data, "source", ""))  # type: ignore[attr-defined]  # every stage has data
    return any(name.startswith(f"bundled/{WORLD}") for name in names) or config.recipe.startswith(WORLD)


def _texts(config: StageConfig) -> dict[str, str]:
    """How prompts are written, as texts for the form; empty where they stay as they are."""
    return {f"data.{name}": "true" if value is True else str(value) for name, value in prompt_writing(config).items() if value}


def _trained_from(config: RewardModelRunConfig) -> str:
    """The fine-tuned model that the reward model started from, where it is one of this workspace; empty where it is not."""
    model = config.model.policy
    if model in BUNDLED or not Path(model).is_absolute():
        return ""
    return model if any(workspace_of(folder) is not None for folder in Path(model).parents) else ""


def _model(folder: Path) -> Path | None:
    """The model in the folder of a checkpoint."""
    return next((folder / name for name in MODELS if (folder / name).is_dir()), None)
