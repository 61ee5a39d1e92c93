"""What can be known to be wrong with the reward components before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import KeywordReward, RegexReward, RewardModelReward, RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.model_files import Hub, ModelError
from rlhf_studio.inputs.models import ModelFacts, check_reward_model


def check_rewards(config: RunConfig, hub: Hub | None, problems: list[Problem]) -> list[ModelFacts]:
    """Facts of the reward models that can be used; what is wrong goes to ``problems``."""
    facts = []
    seen: dict[str, int] = {}
    for index, component in enumerate(config.reward.components):
        field_name = f"reward.components.{index}"
        name = component.name or component.kind
        if name in seen:
            message = f"component {seen[name] + 1} is called {name} too; give each its own name, so that their curves can be told apart"
            problems.append(Problem(f"{field_name}.name", message))
        seen.setdefault(name, index)
        if isinstance(component, RewardModelReward):
            try:
                facts.append(check_reward_model(component.model, component.revision, component.label, hub))
            except ModelError as error:
                problems.append(Problem(f"{field_name}.{error.setting}", str(error)))
        elif isinstance(component, RegexReward):
            problems.extend(_pattern_problems(f"{field_name}.pattern", component.pattern))
        elif isinstance(component, KeywordReward) and not any(word.strip() for word in component.words.split(",")):
            problems.append(Problem(f"{field_name}.words", "there are no words between the commas; write for example: good, lovely"))
    return facts


def _pattern_problems(field_name: str, pattern: str) -> Iterator[Problem]:
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        yield Problem(field_name, f"is not a valid regular expression: {error}")
