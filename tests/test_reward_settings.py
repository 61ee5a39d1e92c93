"""Reward components in settings: the docs' examples, and the way through YAML and the command line. Bounds: test_every_option.py."""

from __future__ import annotations

import re
from pathlib import Path

from rlhf_studio.config import REWARD_KINDS, RewardConfig, RunConfig
from rlhf_studio.config.io import apply_overrides, config_from_yaml, config_to_yaml, parse_config

PAGE = Path(__file__).parents[1] / "docs" / "rewards.md"


def test_every_kind_survives_yaml_and_can_be_set_on_the_command_line() -> None:
    config = RunConfig(reward=RewardConfig(components=[model() for model in REWARD_KINDS.values()]))
    assert config_from_yaml(config_to_yaml(config)) == config
    place = list(REWARD_KINDS).index("ensemble")
    changed = parse_config(
        apply_overrides(config.model_dump(mode="json"), {f"reward.components.{place}.models": "a/b,c/d", "reward.length_penalty": "1e-2"})
    )
    assert changed.reward.components[place].model_names() == ["a/b", "c/d"]  # type: ignore[union-attr]
    assert changed.reward.length_penalty == 0.01


def test_the_examples_of_the_page_are_valid_and_no_kind_is_missing() -> None:
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 8
    shown = {component.kind for example in examples for component in config_from_yaml(example).reward.components}
    assert set(REWARD_KINDS) == shown | set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_repetition_is_a_penalty_from_the_start() -> None:
    (component,) = parse_config({"reward": {"components": [{"kind": "repetition"}]}}).reward.components
    assert component.weight == -1.0
    assert {kind for kind, model in REWARD_KINDS.items() if model().weight != 1.0} == {"repetition"}
