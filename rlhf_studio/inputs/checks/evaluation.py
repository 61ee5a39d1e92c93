"""Whether an evaluation's judge and held-out text can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_studio.config import NOTHING_ALLOWED, DataConfig, EvaluationConfig, Permissions, RewardConfig, short_name
from rlhf_studio.config.io import ConfigError, Problem, parse_ppo
from rlhf_studio.inputs.checks.reward_texts import RewardTextReader
from rlhf_studio.inputs.checks.rewards import check_component
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.reward_models import read_reward_file
from rlhf_studio.inputs.named_reward import component_named
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.trained import resolve

JUDGE, TEXT, TEXT_COLUMN = "evaluation.judge", "evaluation.text", "evaluation.text_column"


def reward_model_settings(name: str) -> RewardConfig:
    """A reward model as the settings of a reward; it reads texts as it was trained to. Raises :class:`ModelError` for a damaged folder."""
    return RewardConfig.model_validate({"components": [_as_trained({"kind": "reward_model", "model": name})]})


def judge_settings(text: str) -> RewardConfig:
    """An evaluation's judge as the settings of a reward; a reward model reads texts as it was trained to.

    Raises :class:`ModelError` for a damaged folder, and :class:`ConfigError` that names ``evaluation.judge``.
    """
    try:
        return parse_ppo({"reward": {"components": [_as_trained(component_named(text))]}}).reward
    except ConfigError as error:
        raise ConfigError([Problem(JUDGE, problem.message) for problem in error.problems]) from error


def _as_trained(component: dict[str, Any]) -> dict[str, Any]:
    name = component.get("model")
    if component.get("kind") != "reward_model" or not isinstance(name, str):
        return component
    folder = Path(resolve(name))
    saved = read_reward_file(folder) if folder.is_dir() else None
    return {"append_eos": saved is not None and saved.append_eos, **component}


def judge_title(text: str) -> str:
    """Who judges, in a few words: ``the length rule``, or a model's short name."""
    component = component_named(text)
    if component.get("kind") == "reward_model":
        return short_name(str(component.get("model", "")))
    return judge_settings(text).components[0].described()


def judge_model_count(text: str) -> int:
    """How many reward models the judge loads."""
    try:
        return sum(len(component.model_names()) for component in judge_settings(text).components) if text else 0
    except (ModelError, ConfigError):  # which the check tells
        return 0


def check_judge(
    text: str, hub: Hub | None, problems: list[Problem], data: DataConfig, permissions: Permissions = NOTHING_ALLOWED
) -> list[RewardTextReader]:
    """The reward models of the judge, who judges answers to the prompts of ``data``. What is wrong is added to ``problems``."""
    if not text:
        return []
    wrong: list[Problem] = []
    readers: list[RewardTextReader] = []
    try:
        (component,) = judge_settings(text).components
        readers = check_component(component, JUDGE, hub, wrong, permissions, data)
        if component.asks_people:
            wrong.append(Problem(JUDGE, "people judge on the Evaluate page, blind; name a rule, a file or a model here"))
        if component.needs_reference() and not data.reference_column:
            wrong.append(Problem(JUDGE, "this rule compares with a reference text; name its column with data.reference_column"))
    except ModelError as error:
        wrong.append(Problem(JUDGE, str(error)))
    except ConfigError as error:
        wrong += error.problems
    problems += [Problem(JUDGE, problem.message) for problem in wrong]
    return readers


def text_settings(settings: EvaluationConfig) -> DataConfig:
    """The held-out text as settings of data."""
    return DataConfig(prompts=settings.text, column=settings.text_column, max_prompts=settings.text_rows, dialogue="whole", eval_share=0)


def text_error(error: PromptsError) -> PromptsError:
    """An error about :func:`text_settings`, with the name of the setting that a person wrote."""
    return PromptsError(TEXT_COLUMN if error.field == "data.column" else TEXT, error.message)


def check_text(settings: EvaluationConfig, problems: list[Problem]) -> None:
    """Read the held-out text, or its first rows; what is wrong goes to ``problems``."""
    if not settings.text:
        return
    try:
        read_once(text_settings(settings))
    except PromptsError as error:
        wrong = text_error(error)
        problems.append(Problem(wrong.field, wrong.message))
