"""A warning for an evaluation's judge that is no second opinion: a policy learned from it, or it scores the answers already."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from rlhf_studio.config import Component, EvaluationRunConfig, StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.checks.evaluation import judge_settings
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.relative_paths import named_in
from rlhf_studio.inputs.trained import resolve, run_of_model
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.evaluation.policies import PolicySource, settings_of_run, sources_of


def judge_notes(config: StageConfig) -> list[str]:
    """A warning for each run that was trained with the judge; if there is none, a warning where the judge is this evaluation's reward."""
    if not isinstance(config, EvaluationRunConfig) or not config.evaluation.judge:
        return []
    try:
        (component,) = judge_settings(config.evaluation.judge).components
    except (ConfigError, ModelError):  # which the check of the evaluation tells
        return []
    judge = _identities(component, Path.cwd())
    if notes := list(_of_runs(config, judge)):
        return notes
    own = _rewards_of(config, Path.cwd())
    if judge & own:
        return [_("Warning: evaluation.judge is part of this evaluation's own reward as well, so it only says again what the score says.")]
    if _of_the_same_run(judge, own):
        return [
            _(
                "Warning: evaluation.judge is another step of a reward model of this evaluation's own reward, so it "
                "says much the same as the score."
            )
        ]
    return []


def _of_runs(config: EvaluationRunConfig, judge: set[str]) -> Iterator[str]:
    try:
        runs = dict.fromkeys(run for source in sources_of(config) if (run := _run_of(source)) is not None)
    except ConfigError:  # which the check of the evaluation tells
        return
    for run in runs:
        try:
            learned_from = _rewards_of(*settings_of_run(run))
        except (ConfigError, StoreError) as error:
            yield _("Whether the run {name} learned from evaluation.judge is not known: {error}.").format(name=run.name, error=error)
            continue
        if judge & learned_from or _of_the_same_run(judge, learned_from):
            which = _("the reward") if judge & learned_from else _("another step of the reward model")
            yield (
                _(
                    "Warning: evaluation.judge is {which} that the run {name} was trained with. It is no independent "
                    "judge: it favours what this run has learned to please it with. Name one that none of the policies "
                    "learned from."
                ).format(which=which, name=run.name)
            )


def _of_the_same_run(judges: set[str], models: set[str]) -> bool:
    """Whether one run has trained the judge and one of these models: at two steps they are much the same."""
    ours, theirs = ({run[0] for model in each if (run := run_of_model(Path(model))) is not None} for each in (judges, models))
    return bool(ours & theirs)


def _run_of(source: PolicySource) -> Path | None:
    if source.run_folder:
        return Path(source.run_folder)
    run_and_step = run_of_model(Path(source.path))
    return run_and_step[0] if run_and_step else None


def _rewards_of(config: StageConfig, folder: Path) -> set[str]:
    components: list[Component] = getattr(getattr(config, "reward", None), "components", [])
    return {identity for component in components for identity in _identities(component, folder)}


def _identities(component: Component, folder: Path) -> set[str]:
    """One text for each model of a component, however it is named: its folder on this machine, else its name; of a rule its settings."""
    if names := component.model_names():
        return {_full(name, folder) for name in names}
    settings = component.model_dump(mode="json", exclude={"name", "weight"})
    return {json.dumps(settings | ({"file": _full(settings["file"], folder)} if settings.get("file") else {}), sort_keys=True)}


def _full(name: str, folder: Path) -> str:
    path = Path(resolve(named_in(folder, name)))
    return str(path.resolve()) if os.path.exists(path) else name
