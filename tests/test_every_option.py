"""Every option is explained, stands in the docs and the form, has a test of its effect, and refuses what is outside its bounds.

``every_option.yaml`` beside this file names the tests. An option without a row, or a row without its test, fails here.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, SECTIONS, RewardTrainingConfig, RunConfig, SFTConfig, TrainingConfig
from rlhf_studio.config.base import may_be_a_number, may_be_empty
from rlhf_studio.config.wording import sentence
from rlhf_studio.config_io import ConfigError, parse_config
from rlhf_studio.ui.form import describe_form
from tools.settings_page import STAGES, section_model

TESTS = Path(__file__).parent
TABLE: dict[str, dict[str, dict[str, str]]] = yaml.safe_load((TESTS / "every_option.yaml").read_text(encoding="utf-8"))
STAGE_MODELS = {"sft": SFTConfig, "reward_training": RewardTrainingConfig}


def models() -> dict[str, tuple[type[BaseModel], set[str]]]:
    """Group of options -> the model that defines them, and the fields of it that are no options of this group."""
    found: dict[str, tuple[type[BaseModel], set[str]]] = {"run": (RunConfig, set(SECTIONS))}
    found |= {section: (section_model(section), set()) for section in SECTIONS}
    found |= {kind: (model, {"kind"}) for kind, model in REWARD_KINDS.items()}
    found |= {"sft": (SFTConfig, set()), "reward_training": (RewardTrainingConfig, set())}
    return found


OPTIONS: dict[tuple[str, str], FieldInfo] = {
    (group, name): field for group, (model, others) in models().items() for name, field in model.model_fields.items() if name not in others
}
EVERY = pytest.mark.parametrize(("group", "name"), list(OPTIONS), ids=[".".join(option) for option in OPTIONS])


# --- explained, in the docs, in the form, tested ---------------------------------------------------------------------------------


def test_each_is_explained() -> None:
    for option, field in OPTIONS.items():
        assert field.title and field.description, f"{option} needs a title and a help sentence"
        assert field.description.endswith(".") and len(field.description.split()) >= 3, option
        assert isinstance(field.json_schema_extra, dict) and field.json_schema_extra["level"] in ("basic", "all"), option


def test_the_docs_have_one_row_for_each() -> None:
    page = (TESTS.parent / "docs" / "settings.md").read_text(encoding="utf-8")
    groups = {"The run": "run", **{title: {SFTConfig: "sft", RewardTrainingConfig: "reward_training"}[STAGES[title]] for title in STAGES}}
    rows, group = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ").removeprefix("reward.components: kind ")
            group = groups.get(title, title)
        elif match := re.match(r"\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", line):
            assert all(cell.strip() for cell in match.groups()), line
            rows.append((group, match[1]))
    assert rows == list(OPTIONS)


def test_the_form_has_one_field_for_each() -> None:
    form = describe_form()
    fields = {(section["name"], field["name"].partition(".")[2]) for section in form["sections"] for field in section["fields"]}
    fields |= {(component["kind"], field["name"]) for component in form["components"] for field in component["fields"]}
    fields |= {("run", form["name"]["name"]), ("run", "recipe")}  # the recipe is a card
    assert fields == {option for option in OPTIONS if option[0] not in STAGE_MODELS}


@cache
def names_of_tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_names_all_options_and_tests_that_exist() -> None:
    listed = [(group, name) for group, rows in TABLE.items() for name in rows]
    shared = {("reward_training", name) for name in TrainingConfig.model_fields}  # the same code as sft's
    assert set(listed) - set(OPTIONS) == set() and set(OPTIONS) - set(listed) - shared == set()
    for group, rows in TABLE.items():
        for name, row in rows.items():
            assert {"effect"} <= set(row) <= {"effect", "refused"}, f"{group}.{name}"
            for test in row.values():
                file, _, function = test.partition("::")
                assert function in names_of_tests(TESTS / file), f"{group}.{name}: there is no {test}"


# --- bounds ------------------------------------------------------------------------------------------------------------------------


def place(group: str, name: str, value: Any) -> tuple[dict[str, Any], str]:
    """The configuration that sets this option, and how errors call it."""
    if group == "run":
        return {name: value}, name
    if group in SECTIONS:
        return {group: {name: value}}, f"{group}.{name}"
    return {"reward": {"components": [{"kind": "length"}, {"kind": group, name: value}]}}, f"reward.components.1.{name}"


def problems(group: str, name: str, value: Any) -> dict[str, str]:
    """Setting -> message; empty when the value is taken."""
    if group in STAGE_MODELS:
        try:
            STAGE_MODELS[group].model_validate({name: value})
        except ValidationError as error:
            return {".".join(map(str, item["loc"])): sentence(item, STAGE_MODELS[group]) for item in error.errors()}
        return {}
    try:
        parse_config(place(group, name, value)[0])
    except ConfigError as error:
        return {problem.field: problem.message for problem in error.problems}
    return {}


def outside(field: FieldInfo) -> Iterator[tuple[Any, str]]:
    """Values that are not allowed, each with a pattern of what the message must say is right."""
    limits = {key: getattr(rule, key) for rule in field.metadata for key in RULES if getattr(rule, key, None) is not None}
    yield object, "should be"
    if get_origin(field.annotation) is list:
        yield [], "should have at least 1 item, not 0"
        yield [{"kind": "length"}] * 21, "should have at most 20 items, not 21"
        yield "length", "should be a list"
    elif choices := get_args(field.annotation):
        yield "no such choice", ".*".join(re.escape(repr(choice)) for choice in choices)
        yield 1, "should be"
    elif field.annotation is bool:
        yield from ((value, "should be true or false") for value in ("yes", 1, 0, None))
    elif field.annotation is str:
        number = 3.5 if may_be_a_number(field) else 3
        yield from ((value, "should be text") for value in (number, True, ["x"], *([] if may_be_empty(field) else [None])))
        assert {"max_length", "pattern"} & set(limits), "a text needs an end"
        if "max_length" in limits:
            yield "x" * (limits["max_length"] + 1), f"at most {limits['max_length']} characters"
        if "min_length" in limits:
            yield "", "needs a value"
        if "pattern" in limits:
            yield "no such thing!", re.escape(str(field.json_schema_extra["allowed"]))  # type: ignore[index,call-overload]
    else:
        whole = field.annotation is int
        yield from ((value, f"should be a {'whole ' if whole else ''}number") for value in (True, "5", None))
        yield from ((value, "whole number" if whole else "finite number") for value in (math.nan, math.inf, -math.inf))
        for rule, bound in limits.items():
            step, words = RULES[rule]
            yield type(bound)(bound + step), rf"should be {words} {re.escape(f'{bound:g}' if bound < 1e5 else str(int(bound)))}\b"


RULES = {
    "ge": (-1, "greater than or equal to"), "gt": (0, "greater than"), "le": (1, "less than or equal to"), "lt": (0, "less than"),
    "min_length": (0, ""), "max_length": (0, ""), "pattern": (0, ""),
}  # fmt: skip


@EVERY
def test_what_is_outside_is_refused_with_what_would_be_right(group: str, name: str) -> None:
    setting = name if group in STAGE_MODELS else place(group, name, 0)[1]
    tried = 0
    for value, pattern in outside(OPTIONS[group, name]):
        found = problems(group, name, value)
        assert set(found) == {setting}, f"{value!r} was answered with {found}"
        assert re.search(pattern, found[setting]), f"{value!r}: {found[setting]!r} does not say {pattern!r}"
        assert len(found[setting]) < 400
        tried += 1
    assert tried > 2


@EVERY
def test_the_limits_themselves_are_inside(group: str, name: str) -> None:
    """A value at a limit may not fit other settings, but it is within its own bounds."""
    field = OPTIONS[group, name]
    for rule in field.metadata:
        for value in (getattr(rule, "ge", None), getattr(rule, "le", None)):
            if value is not None and field.annotation in (int, float):
                assert not [message for message in problems(group, name, value).values() if " than " in message and "should" in message]


# --- settings that must fit together ---------------------------------------------------------------------------------------------

TOGETHER: list[tuple[dict[str, Any], str, str]] = [
    ({"ppo": {"batch_size": 8}}, "ppo.mini_batch_size", "32 is larger than batch_size 8; use at most the batch size"),
    ({"ppo": {"mini_batch_size": 24}}, "ppo.mini_batch_size", "24 does not divide batch_size 64; use a divisor of it"),
    ({"ppo": {"responses_per_prompt": 5}}, "ppo.responses_per_prompt", "5 does not divide batch_size 64; use a divisor of it"),
    ({"ppo": {"micro_batch_size": 5}}, "ppo.micro_batch_size", "5 does not divide mini_batch_size 32; use a divisor of it"),
    ({"ppo": {"dual_clip": 1.0}}, "ppo.dual_clip", "1.0 must be above 1, or 0 for none"),
    ({"ppo": {"kl_placement": "loss"}}, "ppo.kl_estimator", "k1 cannot be used in the loss; use k2 or k3 with kl_placement loss"),
    (
        {"ppo": {"kl_controller": "adaptive", "kl_horizon": 12}},
        "ppo.kl_horizon",
        "12 is too short for batches of 64; use at least 13",
    ),
    (
        {"generation": {"response_length_min": 33}},
        "generation.response_length_min",
        "33 is larger than response_length 32; use at most that",
    ),
    (
        {"engine": {"device": "cuda:1", "processes": 4}},
        "engine.device",
        "cuda:1 is one GPU, for one process; use cuda for 4 processes, or set processes to 1",
    ),
    (
        {"engine": {"device": "cuda:0", "accelerate_config": "some.yaml"}},
        "engine.device",
        "cuda:0 is one GPU, and the accelerate configuration file says which; use cuda or auto",
    ),
    (
        {"engine": {"report_to": "wandb, mlflow"}},
        "engine.report_to",
        "there is no tracker 'mlflow'; there are: trackio, tensorboard, wandb",
    ),
    (
        {"data": {"min_characters": 9, "max_characters": 8}},
        "data.max_characters",
        "8 is below min_characters 9; use at least that, or 0",
    ),
    ({"data": {"min_prompt_tokens": 129, "overlong": "drop"}}, "data.min_prompt_tokens", "129 is above max_prompt_tokens 128; use less"),
    ({"data": {"query_tokens_min": 3}}, "data.query_tokens_max", "set both query lengths, or neither"),
    (
        {"data": {"query_tokens_min": 3, "query_tokens_max": 2}},
        "data.query_tokens_max",
        "2 is below query_tokens_min 3; use at least that",
    ),
    (
        {"data": {"query_tokens_min": 3, "query_tokens_max": 129}},
        "data.query_tokens_max",
        "129 is above max_prompt_tokens 128; use at most that",
    ),
    (
        {"data": {"chat_template": True, "query_tokens_min": 2, "query_tokens_max": 3}},
        "data.query_tokens_max",
        "a chat cannot be cut to its first tokens; use 0, or switch chat_template off",
    ),
    (
        {"data": {"chat_template": True, "overlong": "cut_right"}},
        "data.overlong",
        "cut_right would cut off the place where a chat's answer begins; use cut_left or drop",
    ),
    (
        {"reward": {"components": [{"kind": "reward_model", "chat_template": "own", "reads": "response"}]}},
        "reward.components.0.chat_template",
        "own writes prompt and response as one chat; use policy, or set reads to both",
    ),
    (
        {"reward": {"components": [{"kind": "judge", "lowest": 10.0}]}},
        "reward.components.0.highest",
        "10 must be above lowest 10",
    ),
    (
        {"reward": {"components": [{"kind": "human", "lowest": 1.0}]}},
        "reward.components.0.highest",
        "1 must be above lowest 1",
    ),
    (
        {"ppo": {"schedule": "0.2"}},
        "ppo.schedule",
        "'0.2' is no change; write step, setting and value, such as 8 ppo.kl_coef 0.2",
    ),
    (
        {"ppo": {"schedule": "8 ppo.gamma 0.9"}},
        "ppo.schedule",
        "ppo.gamma in step 8: cannot change while a run goes on; these can: ppo.kl_coef, ppo.kl_target, ppo.learning_rate, "
        "generation.temperature",
    ),
    (
        {"engine": {"keep_best": "gold/score"}},
        "engine.keep_best",
        "gold/score is not measured without a gold score; set reward.gold, or take objective/scores",
    ),
    ({"data": {"system_text": "Be brief."}}, "data.system_text", "is used only with chat_template; switch that on, or leave this empty"),
    *(
        case
        for stage in ("ppo", "sft")
        for case in (
            (
                {"stage": stage, "data": {"prompt_format": "Q:"}},
                "data.prompt_format",
                r"needs {prompt} exactly once, where the prompt stands, such as: Human: {prompt}\n\nAssistant:",
            ),
            (
                {"stage": stage, "data": {"prompt_format": "{prompt}", "chat_template": True}},
                "data.prompt_format",
                "the chat template says how prompts are written; use one of the two",
            ),
        )
    ),
    (
        {"stage": "reward_model", "data": {"system_text": "Be brief."}},
        "data.system_text",
        "is used only with chat_template; switch that on, or leave this empty",
    ),
    (
        {"data": {"prompt_format": "Q: {prompt}", "query_tokens_min": 2, "query_tokens_max": 4}},
        "data.query_tokens_max",
        "a prompt in its form cannot be cut to its first tokens; use 0, or empty prompt_format",
    ),
    (
        {"data": {"prompt_format": "Q: {prompt}", "overlong": "cut_right"}},
        "data.overlong",
        "cut_right would cut off the place where the answer begins; use cut_left or drop",
    ),
]


@pytest.mark.parametrize(("data", "field", "message"), TOGETHER, ids=[field for _, field, _ in TOGETHER])
def test_settings_that_do_not_fit_together(data: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(data)
    assert [(problem.field, problem.message) for problem in caught.value.problems] == [(field, message)]


def test_no_rule_between_settings_is_left_untried() -> None:
    raised = 0
    for file in (TESTS.parent / "rlhf_studio" / "config").glob("*.py"):
        if file.stem != "permissions":  # flags of the program, no settings
            raised += sum(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    assert raised == len(TOGETHER), "add a case to TOGETHER for each rule"
