"""The form says what the configuration says, and the command line it offers gives the same configuration back."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_studio.config import REWARD_KINDS, SECTIONS, RunConfig
from rlhf_studio.config.io import ConfigError, apply_overrides, parse_config, walk_fields
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.ui.command import PROGRAM, command_line, overrides
from rlhf_studio.ui.form import USED_WHEN, describe_form, field_kind, nested, values_of

FORM = describe_form()
FIELDS = {field["name"]: field for section in FORM["sections"] for field in section["fields"]}
COMPONENTS = {component["kind"]: component for component in FORM["components"]}
COMPONENT_FIELDS = [field for component in COMPONENTS.values() for field in component["fields"]]


def test_every_setting_is_in_the_form_once_and_in_order() -> None:
    names = [name for name, _ in walk_fields() if name != "name"]
    assert [field["name"] for section in FORM["sections"] for field in section["fields"]] == names
    assert [section["name"] for section in FORM["sections"]] == list(SECTIONS)
    assert FORM["name"]["name"] == "name"


def test_every_setting_is_explained() -> None:
    for field in (*FIELDS.values(), *COMPONENT_FIELDS, FORM["name"]):
        name = field["name"]
        assert field["title"] and (field["title"][0] == field["title"][0].upper() or field["title"][0] in "n"), name
        assert field["help"].endswith("."), name
        assert field["level"] in ("basic", "all"), name
        assert field["kind"] in ("toggle", "integer", "number", "text", "choice", "components", "device"), name
        assert field["kind"] != "choice" or len(field["choices"]) >= 2, name
        assert field["kind"] not in ("integer", "number") or {"minimum", "maximum"} <= set(field), name


def test_bounds_units_and_choices_are_the_configurations_own() -> None:
    assert FIELDS["ppo.learning_rate"].items() >= {"kind": "number", "minimum": 0, "minimum_excluded": True, "maximum": 1}.items()
    assert "maximum_excluded" not in FIELDS["ppo.learning_rate"]
    assert FIELDS["ppo.steps"].items() >= {"kind": "integer", "minimum": 1, "unit": "steps", "level": "basic"}.items()
    assert FIELDS["ppo.kl_controller"]["choices"] == ["fixed", "adaptive"]
    assert FIELDS["lora.enabled"]["kind"] == "toggle"
    assert FIELDS["model.policy"]["suggestions"] == ["bundled/world-policy", "bundled/sums-policy"] and FIELDS["model.policy"]["wide"]
    assert FIELDS["data.prompts"]["suggestions"] == [
        "bundled/world-prompts",
        "bundled/sums-prompts",
        "bundled/unsafe-prompts",
        "bundled/harmless-prompts",
    ]
    assert "suggestions" not in FIELDS["data.column"]


def test_every_kind_of_component_is_offered_with_its_defaults() -> None:
    assert set(COMPONENTS) == set(REWARD_KINDS) and len(FORM["components"]) == len(REWARD_KINDS)
    for kind, component in COMPONENTS.items():
        assert parse_config({"reward": {"components": [component["defaults"]]}}).reward.components[0].kind == kind
        assert {field["name"] for field in component["fields"]} == set(component["defaults"]) - {"kind"}
        assert [field["name"] for field in component["fields"]][-2:] == ["weight", "name"]


def test_dependent_settings_name_settings_that_exist() -> None:
    names = dict(walk_fields())
    for name, (other, _) in USED_WHEN.items():
        assert name in names and other in names
    assert FIELDS["lora.r"]["used_when"] == {"name": "lora.enabled", "value": True}
    without_rule = {name for name in names if name.startswith(("lora.", "critic.")) and name not in USED_WHEN}
    assert without_rule == {"lora.enabled"}  # nothing else matters without LoRA
    assert FIELDS["critic.model"]["used_when"]["name"] == "critic.start"  # and, step by step, on a separate critic, and on any critic
    assert FIELDS["critic.kind"]["used_when"] == FIELDS["ppo.lam"]["used_when"] == {"name": "ppo.advantage", "value": "gae"}


def test_the_description_is_plain_json() -> None:
    assert json.loads(json.dumps(FORM, allow_nan=False)) == FORM


def test_a_type_without_a_control_is_an_error() -> None:
    with pytest.raises(TypeError, match="no control"):
        field_kind(bytes)


def test_values_and_back() -> None:
    config = load_recipe("world-lora").config
    values = json.loads(json.dumps(values_of(config)))
    assert parse_config({**nested(values), "recipe": "world-lora"}) == config
    assert set(values) == {name for name, _ in walk_fields()}


@pytest.mark.parametrize("sent", [None, [], "ppo", 3, {str(index): 0 for index in range(501)}, {"ppo": 3, "ppo.steps": 4}])
def test_what_is_no_list_of_settings_is_refused(sent: Any) -> None:
    with pytest.raises(ConfigError):
        nested(sent)


@pytest.mark.parametrize("name", ["ppo.stepz", "ppo.steps.x", "nothing.at_all", "recipe.x", "", "."])
def test_unknown_names_are_refused_by_the_configuration(name: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(nested({name: 1}))


# --- the command line --------------------------------------------------------------------------------------------------------

WORLD = load_recipe("world").config


def config_of(command: str, base: RunConfig) -> RunConfig:
    """What the command line's own reader makes of the command."""
    words = shlex.split(command)
    assert words[: len(PROGRAM.split()) + 2] == [*PROGRAM.split(), "--recipe", "world"]
    given_options, rest = {}, iter(words[len(PROGRAM.split()) + 2 :])
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        given_options[name] = value if equals else next(rest)
    return parse_config(apply_overrides(base.model_dump(mode="json"), given_options))


def changed(**settings: Any) -> RunConfig:
    data = WORLD.model_dump(mode="json")
    for dotted, value in settings.items():
        section, _, name = dotted.partition("__")
        if name:
            data[section][name] = value
        else:
            data[section] = value
    return parse_config(data)


def test_the_recipe_alone_when_nothing_differs() -> None:
    assert command_line(WORLD, "world", WORLD) == "python -m rlhf_studio train --recipe world"


def test_only_what_differs_is_written() -> None:
    command = command_line(changed(ppo__steps=50, data__prompts="my file.csv", lora__enabled=True), "world", WORLD)
    assert command == "python -m rlhf_studio train --recipe world --lora.enabled true --data.prompts 'my file.csv' --ppo.steps 50"
    assert overrides(changed(ppo__kl_controller="adaptive", model__dtype="bfloat16"), WORLD) == {
        "model.dtype": "bfloat16",
        "ppo.kl_controller": "adaptive",
    }


def test_one_setting_of_a_component_and_a_new_list() -> None:
    components = WORLD.model_dump()["reward"]["components"]
    weighted = changed(reward__components=[{**components[0], "weight": -2.0, "label": "1e-5"}])
    assert overrides(weighted, WORLD) == {"reward.components.0.weight": "-2.0", "reward.components.0.label": '"1e-5"'}
    assert "--reward.components.0.weight=-2.0" in command_line(weighted, "world", WORLD)
    longer = changed(reward__components=[*components, {"kind": "length", "target": 9}])
    assert list(overrides(longer, WORLD)) == ["reward.components"]
    assert config_of(command_line(longer, "world", WORLD), WORLD) == longer


NASTY = [
    "",
    "-",
    "--x",
    "'",
    '"',
    "$(id)",
    "`",
    "a b",
    "\n",
    "yes",
    "null",
    "1e-5",
    "0x1f",
    "~",
    "{a: b}",
    "\u2028",
    "😀",
    "é",
    "#",
    "%",
    "\\",
    "\t",
    "=",
]
TEXT = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20))


@given(
    name=TEXT,
    prompts=TEXT.filter(bool),
    coef=st.just(0.0) | st.floats(1e-30, 100),
    rate=st.floats(1e-12, 1),
    stop=st.sampled_from(["eos", "none", "7", "007"]),
    shuffle=st.booleans(),
    words=st.lists(TEXT.filter(bool), max_size=3),
    label=TEXT,
)
@settings(max_examples=150, deadline=None)
def test_the_command_gives_the_same_configuration_back(**given_values: Any) -> None:
    components = [{"kind": "reward_model", "label": given_values["label"], "weight": -given_values["coef"]}]
    components += [{"kind": "keywords", "words": word} for word in given_values["words"]]
    config = changed(
        name=given_values["name"],
        data__prompts=given_values["prompts"],
        data__shuffle=given_values["shuffle"],
        ppo__kl_coef=given_values["coef"],
        ppo__learning_rate=given_values["rate"],
        generation__stop_token=given_values["stop"],
        reward__components=components,
    )
    assert config_of(command_line(config, "world", WORLD), WORLD) == config
