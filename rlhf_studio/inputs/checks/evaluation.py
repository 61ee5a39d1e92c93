"""Whether an evaluation's judge and held-out text can be used."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.config import NOTHING_ALLOWED, DataConfig, EvaluationConfig, RewardConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.checks.reward_texts import RewardTextReader
from rlhf_studio.inputs.checks.rewards import check_component
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.reward_models import read_reward_file
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.trained import resolve

JUDGE, TEXT, TEXT_COLUMN = "evaluation.judge", "evaluation.text", "evaluation.text_column"


def judge_settings(name: str) -> RewardConfig:
    """The judge as the settings of a reward; it reads texts as it was trained to. Raises :class:`ModelError` for a damaged folder."""
    folder = Path(resolve(name))
    saved = read_reward_file(folder) if folder.is_dir() else None
    judge = {"kind": "reward_model", "model": name, "append_eos": saved is not None and saved.append_eos}
    return RewardConfig.model_validate({"components": [judge]})


def check_judge(name: str, hub: Hub | None, problems: list[Problem], data: DataConfig) -> list[RewardTextReader]:
    """The reward models of the judge, who judges answers to the prompts of ``data``. What is wrong is added to ``problems``."""
    if not name:
        return []
    component_problems: list[Problem] = []
    readers: list[RewardTextReader] = []
    try:
        for component in judge_settings(name).components:
            readers += check_component(component, JUDGE, hub, component_problems, NOTHING_ALLOWED, data)
    except ModelError as error:
        component_problems.append(Problem(JUDGE, str(error)))
    problems += [Problem(JUDGE, problem.message) for problem in component_problems]
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
