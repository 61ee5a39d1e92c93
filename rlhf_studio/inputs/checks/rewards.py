"""What can be known to be wrong with the reward components before anything is loaded. What is wrong with one kind's own settings, its
class says (``Component.problems``); here are names, references and reward models."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.config import NOTHING_ALLOWED, ClassifierReward, ComponentProblem, DataConfig, Permissions, RewardComponent, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.checks.reward_texts import TextReader
from rlhf_studio.inputs.checks.text_form import form_findings, is_chat
from rlhf_studio.inputs.models.facts import check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.reward_models import RewardFile, read_reward_file


def check_rewards(
    config: RunConfig, hub: Hub | None, problems: list[Problem], permissions: Permissions = NOTHING_ALLOWED
) -> list[TextReader]:
    """The reward models that can be used; what is wrong goes to ``problems``."""
    readers = []
    seen: dict[str, int] = {}
    for index, component in enumerate(config.reward.components):
        field_name = f"reward.components.{index}"
        name = component.name or component.kind
        if name in seen:
            message = f"component {seen[name] + 1} is called {name} too; give each its own name, so that their curves can be told apart"
            problems.append(Problem(f"{field_name}.name", message))
        seen.setdefault(name, index)
        readers += check_component(component, field_name, hub, problems, permissions, config.data)
        problems += [_problem(field_name, finding) for finding in component.problems_with_batches(config.ppo.batch_size)]
        if component.asks_people and (config.engine.processes > 1 or config.engine.accelerate_config):
            message = "people's ratings need a run of one process; set engine.processes to 1 and leave engine.accelerate_config empty"
            problems.append(Problem(f"{field_name}.kind", message))
        if component.needs_reference() and not config.data.reference_column:
            message = f"component {index + 1} ({component.kind}) compares with a reference text; name the column that holds one"
            problems.append(Problem("data.reference_column", message))
    return readers


def refuse_without_permission(components: Sequence[RewardComponent], permissions: Permissions) -> None:
    """Code and servers of the person's own must be allowed at each start: asked here before anything large is loaded.

    Raises :class:`ConfigError`.
    """
    problems: list[Problem] = []
    for index, component in enumerate(components):
        if component.outside:
            check_component(component, f"reward.components.{index}", None, problems, permissions)
    if problems:
        raise ConfigError(problems)


def check_component(
    component: RewardComponent,
    field_name: str,
    hub: Hub | None,
    problems: list[Problem],
    permissions: Permissions,
    data: DataConfig | None = None,
) -> list[TextReader]:
    """The same for one component by itself; ``data`` are the prompts that it is to score, where they are known."""
    problems += [_problem(field_name, finding) for finding in component.problems(permissions)]
    return _models(component, field_name, hub, problems, data) if isinstance(component, ClassifierReward) else []


def _models(
    component: ClassifierReward, field_name: str, hub: Hub | None, problems: list[Problem], data: DataConfig | None
) -> list[TextReader]:
    readers = []
    for name in dict.fromkeys(component.model_names()):
        try:
            facts = check_reward_model(name, component.revision, component.label, hub)
            saved = None if facts.path is None else read_reward_file(facts.path)
            trained = None if saved is None else saved.trained_on
            readers.append(TextReader(field_name, name, component, facts, chat=is_chat(component, trained)))
            template = find_template(facts.tokenizer_files) if readers[-1].chat else None
            if component.chat_template == "own" and template is None:
                message = f"{name} has no chat template; use policy, or a model trained on chats"
                problems.append(Problem(f"{field_name}.chat_template", message))
            found = form_findings(name, component, trained, None if template is None else template.source, data)
            problems += [_problem(field_name, finding) for finding in found]
            problems += _end_token_problems(component, name, saved, field_name)
        except ChatError as error:
            problems.append(Problem(f"{field_name}.chat_template", str(error)))
        except ModelError as error:
            setting = component.models_setting if error.setting == "model" else error.setting
            problems.append(Problem(f"{field_name}.{setting}", str(error)))
    return readers


def _end_token_problems(component: ClassifierReward, name: str, saved: RewardFile | None, field_name: str) -> list[Problem]:
    """A model that was trained here says whether its texts ended with the end token; used otherwise, its scores are of other texts."""
    if saved is None or saved.append_eos == component.append_eos:
        return []
    what, use = ("with", "on") if saved.append_eos else ("without", "off")
    message = f"{name} was trained on texts {what} an end token at their end, so its scores hold only for such texts; switch this {use}"
    return [Problem(f"{field_name}.append_eos", message)]


def _problem(field_name: str, finding: ComponentProblem) -> Problem:
    return Problem(f"{field_name}.{finding.setting}", finding.message)
