"""A warning for an evaluation's judge that is no second opinion: a policy learned from it, or it scores the answers already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rlhf_studio.config import Component, EvaluationRunConfig, StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.relative_paths import named_in
from rlhf_studio.inputs.trained import resolve, run_of_model
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.evaluation.policies import PolicySource, settings_of_run, sources_of


def judge_notes(config: StageConfig) -> list[str]:
    """A warning for each run that was trained with the judge; if there is none, a warning where the judge is this evaluation's reward."""
    if not isinstance(config, EvaluationRunConfig) or not config.evaluation.judge:
        return []
    judge = _identity(config.evaluation.judge, Path.cwd())
    if notes := list(_of_runs(config, judge)):
        return notes
    own = _reward_models(config, Path.cwd())
    if judge in own:
        return [
            "Warning: evaluation.judge is a reward model of this evaluation's own reward as well, so it only says again what the score "
            "says."
        ]
    if _of_the_same_run(judge, own):
        return [
            "Warning: evaluation.judge is another step of a reward model of this evaluation's own reward, so it says much the same as the "
            "score."
        ]
    return []


def _of_runs(config: EvaluationRunConfig, judge: str) -> Iterator[str]:
    try:
        runs = dict.fromkeys(run for source in sources_of(config) if (run := _run_of(source)) is not None)
    except ConfigError:  # which the check of the evaluation tells
        return
    for run in runs:
        try:
            learned_from = _reward_models(*settings_of_run(run))
        except (ConfigError, StoreError) as error:
            yield f"Whether the run {run.name} learned from evaluation.judge is not known: {error}."
            continue
        if judge in learned_from or _of_the_same_run(judge, learned_from):
            which = "the reward model" if judge in learned_from else "another step of the reward model"
            yield (
                f"Warning: evaluation.judge is {which} that the run {run.name} was trained with. It is no independent judge: it "
                "favours what this run has learned to please it with. Name one that none of the policies learned from."
            )


def _of_the_same_run(judge: str, models: set[str]) -> bool:
    """Whether one run has trained the judge and one of these models: at two steps they are much the same."""
    judge_run = run_of_model(Path(judge))
    others = (run_of_model(Path(model)) for model in models)
    return judge_run is not None and any(other is not None and other[0] == judge_run[0] for other in others)


def _run_of(source: PolicySource) -> Path | None:
    if source.run_folder:
        return Path(source.run_folder)
    run_and_step = run_of_model(Path(source.path))
    return run_and_step[0] if run_and_step else None


def _reward_models(config: StageConfig, folder: Path) -> set[str]:
    components: list[Component] = getattr(getattr(config, "reward", None), "components", [])
    return {_identity(name, folder) for component in components for name in component.model_names()}


def _identity(name: str, folder: Path) -> str:
    """One text for each model, however it is named: its folder on this machine, else its name."""
    path = Path(resolve(named_in(folder, name)))
    return str(path.resolve()) if os.path.exists(path) else name
