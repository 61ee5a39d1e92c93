"""What is wrong with the reward components, as far as that shows before anything is loaded: names, references and reward models.

Each kind of component checks its own settings (``Component.problems``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.config import NOTHING_ALLOWED, ClassifierReward, ComponentProblem, DataConfig, Permissions, RewardComponent, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.checks.reward_texts import RewardTextReader
from rlhf_studio.inputs.checks.text_form import form_findings, is_chat
from rlhf_studio.inputs.models.facts import check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.reward_models import RewardFile, read_reward_file
from rlhf_studio.language import S_


def check_rewards(
    config: RunConfig, hub: Hub | None, problems: list[Problem], permissions: Permissions = NOTHING_ALLOWED
) -> list[RewardTextReader]:
    """The reward models that can be used; what is wrong goes to ``problems``."""
    readers = []
    first_index: dict[str, int] = {}
    for index, component in enumerate(config.reward.components):
        field_name = f"reward.components.{index}"
        name = component.name or component.kind
        if name in first_index:
            earlier = first_index[name] + 1
            message = S_(f"component {earlier} is called {name} too; give each its own name, so that their curves can be told apart")
            problems.append(Problem(f"{field_name}.name", message))
        first_index.setdefault(name, index)
        readers += check_component(component, field_name, hub, problems, permissions, config.data)
        problems += [_problem(field_name, finding) for finding in component.problems_with_batches(config.ppo.batch_size)]
        if component.asks_people and (config.engine.processes > 1 or config.engine.accelerate_config):
            message = "people's ratings need a run of one process; set engine.processes to 1 and leave engine.accelerate_config empty"
            problems.append(Problem(f"{field_name}.kind", message))
        if component.needs_reference() and not config.data.reference_column:
            message = S_(f"component {index + 1} ({component.kind}) compares with a reference text; name the column that holds one")
            problems.append(Problem("data.reference_column", message))
    return readers


def refuse_without_permission(components: Sequence[RewardComponent], permissions: Permissions) -> None:
    """Refuse a person's own code and servers that this start does not allow, before anything large is loaded.

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
) -> list[RewardTextReader]:
    """As :func:`check_rewards`, for one component. ``data``: the prompts that it will score, where they are known."""
    problems += [_problem(field_name, finding) for finding in component.problems(permissions)]
    return _models(component, field_name, hub, problems, data) if isinstance(component, ClassifierReward) else []


def _models(
    component: ClassifierReward, field_name: str, hub: Hub | None, problems: list[Problem], data: DataConfig | None
) -> list[RewardTextReader]:
    readers = []
    for name in dict.fromkeys(component.model_names()):
        try:
            facts = check_reward_model(name, component.revision, component.label, hub)
            saved = None if facts.path is None else read_reward_file(facts.path)
            trained = None if saved is None else saved.trained_on
            readers.append(RewardTextReader(field_name, name, component, facts, chat=is_chat(component, trained)))
            template = find_template(facts.tokenizer_files) if readers[-1].chat else None
            if component.chat_template == "own" and template is None:
                message = S_(f"{name} has no chat template; use policy, or a model trained on chats")
                problems.append(Problem(f"{field_name}.chat_template", message))
            findings = form_findings(name, component, trained, None if template is None else template.source, data)
            problems += [_problem(field_name, finding) for finding in findings]
            problems += _end_token_problems(component, name, saved, field_name)
        except ChatError as error:
            problems.append(Problem(f"{field_name}.chat_template", str(error)))
        except ModelError as error:
            setting = component.models_setting if error.setting == "model" else error.setting
            problems.append(Problem(f"{field_name}.{setting}", str(error)))
    return readers


def _end_token_problems(component: ClassifierReward, name: str, saved: RewardFile | None, field_name: str) -> list[Problem]:
    """A model that was trained here says whether its texts ended with the end token. Its scores hold only for such texts."""
    if saved is None or saved.append_eos == component.append_eos:
        return []
    what, use = ("with", "on") if saved.append_eos else ("without", "off")
    message = S_(f"{name} was trained on texts {what} an end token at their end, so its scores hold only for such texts; switch this {use}")
    return [Problem(f"{field_name}.append_eos", message)]


def _problem(field_name: str, finding: ComponentProblem) -> Problem:
    return Problem(f"{field_name}.{finding.setting}", finding.message)
