"""Every setting of every reward component: bounds, the docs' examples, and the way through YAML and the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import Component, RewardConfig, RunConfig
from rlhf_studio.config_io import ConfigError, apply_overrides, config_from_yaml, config_to_yaml, parse_config

KINDS = {kind.model_fields["kind"].default: kind for kind in Component.__subclasses__()}
PAGE = Path(__file__).parents[1] / "docs" / "rewards.md"


def beyond() -> Iterator[tuple[str, str, Any]]:
    """(kind, setting, a value just outside its bounds) for each bound there is."""
    for kind, model in KINDS.items():
        for name, field in model.model_fields.items():
            for rule in field.metadata:
                for attribute, step in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
                    if (bound := getattr(rule, attribute, None)) is not None:
                        yield kind, name, type(bound)(bound + step) if field.annotation is int else float(bound + step)
                if getattr(rule, "max_length", None) is not None:
                    yield kind, name, "x" * (rule.max_length + 1)
                if getattr(rule, "min_length", None):
                    yield kind, name, ""


@pytest.mark.parametrize(("kind", "name", "value"), beyond(), ids=lambda value: str(value)[:20])
def test_values_beyond_their_bounds(kind: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"reward": {"components": [{"kind": "length"}, {"kind": kind, name: value}]}})
    assert {problem.field for problem in caught.value.problems} == {f"reward.components.1.{name}"}


@pytest.mark.parametrize(
    ("component", "part"),
    [
        ({"kind": "reward_model", "dtype": "float16"}, "dtype: input should be 'auto', 'float32' or 'bfloat16'"),
        ({"kind": "reward_model", "reads": "prompt"}, "reads: input should be 'both' or 'response'"),
        ({"kind": "ensemble", "combine": "median"}, "combine: input should be 'mean', 'minimum' or 'mean_minus_std'"),
        ({"kind": "regex", "match": "start"}, "match: input should be 'search' or 'full'"),
        ({"kind": "bleu", "smoothing": "x"}, "smoothing: input should be"),
        ({"kind": "bleu", "tokenizer": "zh"}, "tokenizer: input should be"),
        ({"kind": "rouge", "variant": "rouge3"}, "variant: input should be"),
        ({"kind": "rouge", "measure": "f1"}, "measure: input should be"),
        ({"kind": "python", "function": "a.b"}, "function: string should match pattern"),
        ({"kind": "python", "function": "a b"}, "function: string should match pattern"),
        ({"kind": "http", "url": "http://x"}, "url: there is no such setting"),
    ],
)
def test_choices_and_patterns(component: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"reward.components.0.{part}")):
        parse_config({"reward": {"components": [component]}})


@pytest.mark.parametrize("values", [{"length_penalty": -0.1}, {"length_penalty": 1001.0}, {"missing_eos_mode": "add"}])
def test_shaping_settings_have_bounds(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"reward": values})
    assert caught.value.problems[0].field == f"reward.{next(iter(values))}"


def test_every_kind_survives_yaml_and_can_be_set_on_the_command_line() -> None:
    config = RunConfig(reward=RewardConfig(components=[model() for model in KINDS.values()]))
    assert config_from_yaml(config_to_yaml(config)) == config
    place = list(KINDS).index("ensemble")
    changed = parse_config(
        apply_overrides(config.model_dump(mode="json"), {f"reward.components.{place}.models": "a/b,c/d", "reward.length_penalty": "1e-2"})
    )
    assert changed.reward.components[place].model_names() == ["a/b", "c/d"]  # type: ignore[union-attr]
    assert changed.reward.length_penalty == 0.01


def test_models_of_an_ensemble_are_parted_by_commas_and_lines() -> None:
    for text in ("a/b, c/d", "a/b\nc/d\n", " a/b ,\n\n c/d,"):
        assert KINDS["ensemble"](models=text).model_names() == ["a/b", "c/d"]  # type: ignore[attr-defined]


def test_the_examples_of_the_page_are_valid_and_no_kind_is_missing() -> None:
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 5
    shown = {component.kind for example in examples for component in config_from_yaml(example).reward.components}
    assert set(KINDS) == shown | set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
