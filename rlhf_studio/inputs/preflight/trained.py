"""Notes on models that a run has trained: whether this run writes its prompts in the form that they know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlhf_studio.config import EvaluationRunConfig, SFTRunConfig, StageConfig, prompt_writing
from rlhf_studio.config.io import ConfigError, config_from_file
from rlhf_studio.config.reward_models import ClassifierReward
from rlhf_studio.inputs.trained import resolve, run_of_model
from rlhf_studio.language import _
from rlhf_studio.runs.evaluation.policies import sources_of

LONGEST_VALUE = 100  # characters of a setting that are shown


def trained_notes(config: StageConfig) -> list[str]:
    """A warning for each policy and reward model whose run wrote its prompts in another form than this one, and what to set."""
    own_form = prompt_writing(config)
    notes = [note for setting, name in _policies(config) if (note := _note(setting, name, own_form))]
    for index, component in enumerate(config.reward.components if hasattr(config, "reward") else []):
        if isinstance(component, ClassifierReward) and component.reads == "both":
            setting = f"reward.components.{index}"
            own = component.chat_template == "own"
            noted = (_own_note(setting, name) if own else _note(setting, name, own_form) for name in component.model_names())
            notes += filter(None, noted)
    return list(dict.fromkeys(notes))


def _policies(config: StageConfig) -> Iterator[tuple[str, str]]:
    """(setting, model) of the language models that read the prompts. Weights that are drawn anew know no form."""
    if isinstance(config, EvaluationRunConfig):
        try:
            sources = sources_of(config)
        except ConfigError:  # which the check of the evaluation tells
            return
        setting = "evaluation.policies" if config.evaluation.policies.strip() else "model.policy"
        yield from ((setting, source.path) for source in sources if source.kind == "model")
    elif not (isinstance(config, SFTRunConfig) and config.model.fresh):
        yield "model.policy", config.model.policy


def _note(setting: str, name: str, own_form: dict[str, Any]) -> str:
    form, run = form_of(name)
    if isinstance(form, str):
        return _("Whether this run writes its prompts as the run {run} did, which trained {setting}, is not known: {form}.").format(
            run=run, setting=setting, form=form
        )
    differing = [key for key, value in form.items() if value != own_form[key]]
    if not differing:
        return ""
    differences = ", ".join(
        _("data.{key} was {value} there and is {value_2} here").format(key=key, value=_short(form[key]), value_2=_short(own_form[key]))
        for key in differing
    )
    same = ", ".join(f"data.{key} {_short(form[key])}" for key in differing)
    warning = _("Warning: the run {run}, which trained {setting}, wrote its prompts in another form: {differences}.").format(
        run=run, setting=setting, differences=differences
    )
    return _("{warning} The same form would be: {same}.").format(warning=warning, same=same)


def _own_note(setting: str, name: str) -> str:
    """The note for a reward model that reads chats in the form of its own tokenizer, whatever this run's prompts look like."""
    form, run = form_of(name)
    if isinstance(form, str) or form.get("chat_template", True):
        return ""
    return _(
        "Warning: the run {run}, which trained {setting}, wrote its prompts without a chat template, and "
        "{setting}.chat_template is own here. The same form would be: policy."
    ).format(run=run, setting=setting)


def form_of(name: str) -> tuple[dict[str, Any] | str, str]:
    """How the run that trained a model wrote its prompts, or why that cannot be read; and the run's name. Empty for any other model."""
    run_and_step = run_of_model(Path(resolve(name)))
    if run_and_step is None:
        return {}, ""
    run = run_and_step[0]
    try:
        return prompt_writing(config_from_file(run / "config.yaml")), run.name
    except ConfigError as error:
        return str(error), run.name


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}...")
    return text if value else "empty"
