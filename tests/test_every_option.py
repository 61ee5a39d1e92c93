"""Every option is explained, stands in the docs and the form, has a test of its effect, and refuses what is outside its bounds.

``every_option.yaml`` beside this file names the tests. An option without a row, or a row without its test, fails here.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, STAGES, USED_ONLY_BY, ExamplesConfig, RunConfig, Stage, StageConfig, TrainingConfig
from rlhf_studio.config.base import may_be_a_number, may_be_empty
from rlhf_studio.config.model import TrainedModelConfig
from rlhf_studio.config_io import ConfigError, parse_config, section_model, walk_fields
from rlhf_studio.ui.form import describe_form
from tools.settings_page import SECTION_TITLE, own_sections

TESTS = Path(__file__).parent
TABLE: dict[str, dict[str, dict[str, str]]] = yaml.safe_load((TESTS / "every_option.yaml").read_text(encoding="utf-8"))
# What sections of several stages have in common has one row of the table, in the group of this name.
SHARED: dict[type[BaseModel], str] = {TrainedModelConfig: "model", ExamplesConfig: "examples", TrainingConfig: "training"}


@dataclass(frozen=True)
class Option:
    """A setting, and where it stands.

    Attributes:
        title: of the table in docs/settings.md that describes it.
        group: the group of every_option.yaml that has its row.
        section: empty for the settings of the run itself; the kind, for those of a reward component.
    """

    title: str
    group: str
    name: str
    field: FieldInfo
    stage: Stage = "ppo"
    section: str = ""

    def __str__(self) -> str:
        return f"{self.title}.{self.name}".replace(": ", ".")


def options() -> Iterator[Option]:
    """Every setting once, or once for each stage whose section has it in another class, in the order of docs/settings.md."""
    yield from (Option("The run", "run", name, field) for name, field in StageConfig.model_fields.items())
    for section in RunConfig.sections:
        for name, field in section_model(section).model_fields.items():
            yield Option(section, section, name, field, "ppo", section)
    for kind, component in REWARD_KINDS.items():
        for name, field in component.model_fields.items():
            if name != "kind":
                yield Option(f"reward.components: kind {kind}", kind, name, field, "ppo", kind)
    for stage in STAGES:
        for section, model in own_sections(stage).items() if stage != "ppo" else ():
            title = SECTION_TITLE.format(stage=stage, section=section)
            for name, field in model.model_fields.items():
                yield Option(title, group_of(stage, section, model, name), name, field, stage, section)


def group_of(stage: Stage, section: str, model: type[BaseModel], name: str) -> str:
    """Where the row of a setting is looked for: with those of the class that it is inherited from, unless that is said anew here."""
    of_ppo = section_model(section) if section in RunConfig.sections else BaseModel
    if of_ppo.model_fields.get(name) is not None and issubclass(of_ppo, model):
        return section  # DPO's model is the part of PPO's without a value head
    for base, shared in SHARED.items():
        if issubclass(model, base) and name in base.model_fields and _same_help(model, base, name):
            return shared
    return f"{stage}.{section}"


def _same_help(model: type[BaseModel], base: type[BaseModel], name: str) -> bool:
    return model.model_fields[name].description == base.model_fields[name].description


OPTIONS = list(options())
EVERY = pytest.mark.parametrize("option", OPTIONS, ids=str)
# The stage itself has messages and a test of its own: it decides which class reads all the rest.
BOUNDED = pytest.mark.parametrize("option", [option for option in OPTIONS if option.name != "stage"], ids=str)


# --- explained, in the docs, in the form, tested ---------------------------------------------------------------------------------


@EVERY
def test_each_is_explained(option: Option) -> None:
    field = option.field
    assert field.title and field.description, "needs a title and a help sentence"
    assert field.description.endswith(".") and len(field.description.split()) >= 3
    assert isinstance(field.json_schema_extra, dict) and field.json_schema_extra["level"] in ("basic", "all")


def test_the_docs_have_one_row_for_each() -> None:
    page = (TESTS.parent / "docs" / "settings.md").read_text(encoding="utf-8")
    rows, title = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif match := re.match(r"\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", line):
            assert all(cell.strip() for cell in match.groups()), line
            rows.append((title, match[1]))
    assert rows == [(option.title, option.name) for option in OPTIONS]
    assert [line for line in page.splitlines() if line.startswith("# ")][1:] == [
        "# Supervised fine-tuning (`stage: sft`)",
        "# Reward model (`stage: reward_model`)",
        "# DPO (`stage: dpo`)",
        "# Evaluation (`stage: evaluation`)",
    ]


def test_the_form_has_one_field_for_each() -> None:
    form = describe_form()
    fields = {(section["name"], field["name"].partition(".")[2]) for section in form["sections"] for field in section["fields"]}
    fields |= {(component["kind"], field["name"]) for component in form["components"] for field in component["fields"]}
    fields |= {("", form["name"]["name"]), ("", "recipe"), ("", "stage")}  # the recipe is a card, and its recipe has the stage
    assert fields == {(option.section, option.name) for option in OPTIONS if option.stage == "ppo"}


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "ppo"])
def test_the_form_of_a_stage_has_what_the_stage_uses(stage: Stage) -> None:
    shown = [field["name"] for section in describe_form(stage=stage)["sections"] for field in section["fields"]]
    names = [name for name, _ in walk_fields(STAGES[stage]) if name != "name"]
    assert shown == [name for name in names if stage in USED_ONLY_BY.get(name, (stage,))]


@pytest.mark.parametrize("name", USED_ONLY_BY)
def test_a_stage_refuses_what_it_does_not_use(name: str) -> None:
    section, _, setting = name.partition(".")
    for stage, kind in STAGES.items():
        fields = dict(walk_fields(kind))
        if name not in fields:
            continue
        default = fields[name].get_default()
        another = {"engine.keep_best": "eval_loss" if stage != "ppo" else "score", "engine.accelerate_config": "x.yaml"}.get(name)
        values = (
            [another] if another else [value for value in (not default, 3, 0.5, "normalise", "replace", "skip", "stop") if value != default]
        )
        messages = []
        for value in values:
            try:
                parse_config({"stage": stage, section: {setting: value}})
            except ConfigError as error:
                messages += [problem.message for problem in error.problems if problem.field == name]
        refused = any("does not use this; leave it out" in message for message in messages)
        assert refused == (stage not in USED_ONLY_BY[name]), (stage, messages)


def test_what_only_some_stages_use_is_a_setting_of_each_of_them() -> None:
    for name, stages in USED_ONLY_BY.items():
        having = {stage for stage, kind in STAGES.items() if name in dict(walk_fields(kind))}
        assert set(stages) < having, f"{name}: of the stages {having}, those without it must be left out"


@cache
def names_of_tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_names_all_options_and_tests_that_exist() -> None:
    assert {(group, name) for group, rows in TABLE.items() for name in rows} == {(option.group, option.name) for option in OPTIONS}
    for group, rows in TABLE.items():
        for name, row in rows.items():
            assert {"effect"} <= set(row) <= {"effect", "refused"}, f"{group}.{name}"
            for test in row.values():
                file, _, function = test.partition("::")
                assert function in names_of_tests(TESTS / file), f"{group}.{name}: there is no {test}"


# --- bounds ------------------------------------------------------------------------------------------------------------------------


def place(option: Option, value: Any) -> tuple[dict[str, Any], str]:
    """The configuration that sets this option, and how errors call it."""
    name, section = option.name, option.section
    if not section:
        return {name: value}, name
    if section in STAGES[option.stage].sections and not option.title.startswith("reward.components"):
        return {"stage": option.stage, section: {name: value}}, f"{section}.{name}"
    return {"reward": {"components": [{"kind": "length"}, {"kind": section, name: value}]}}, f"reward.components.1.{name}"


def problems(option: Option, value: Any) -> dict[str, str]:
    """Setting -> message; empty when the value is taken."""
    try:
        parse_config(place(option, value)[0])
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
        yield from ((value, "should be text|should be eos") for value in (number, True, ["x"], *([] if may_be_empty(field) else [None])))
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
            yield type(bound)(bound + step), rf"should be {words} {re.escape(np.format_float_positional(bound, trim='-'))}\b"


RULES = {
    "ge": (-1, "greater than or equal to"), "gt": (0, "greater than"), "le": (1, "less than or equal to"), "lt": (0, "less than"),
    "min_length": (0, ""), "max_length": (0, ""), "pattern": (0, ""),
}  # fmt: skip


@BOUNDED
def test_what_is_outside_is_refused_with_what_would_be_right(option: Option) -> None:
    setting = place(option, 0)[1]
    tried = 0
    for value, pattern in outside(option.field):
        found = problems(option, value)
        assert set(found) == {setting}, f"{value!r} was answered with {found}"
        assert re.search(pattern, found[setting]), f"{value!r}: {found[setting]!r} does not say {pattern!r}"
        assert len(found[setting]) < 400
        tried += 1
    assert tried > 2


@BOUNDED
def test_the_limits_themselves_are_inside(option: Option) -> None:
    """A value at a limit may not fit other settings, but it is within its own bounds."""
    for rule in option.field.metadata:
        for value in (getattr(rule, "ge", None), getattr(rule, "le", None)):
            if value is not None and option.field.annotation in (int, float):
                assert not [message for message in problems(option, value).values() if " than " in message and "should" in message]


@pytest.mark.parametrize("stage", ["training", "PPO", "", 3, None, ["sft"]])
def test_a_stage_that_there_is_not(stage: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"stage": stage})
    (problem,) = caught.value.problems
    assert (problem.field, problem.message) == ("stage", f"should be one of ppo, sft, reward_model, dpo, evaluation, not {stage!r}")


@pytest.mark.parametrize("stage", STAGES)
def test_the_stage_decides_which_settings_there_are(stage: Stage) -> None:
    config = parse_config({"stage": stage})
    assert config.stage == stage and set(config.model_dump()) == {"stage", "name", "recipe", *STAGES[stage].sections}
    stranger = "critic" if stage != "ppo" else "sft"
    with pytest.raises(ConfigError, match=f"{stranger}: there is no such setting"):
        parse_config({"stage": stage, stranger: {}})


# --- settings that must fit together ---------------------------------------------------------------------------------------------

TOGETHER: list[tuple[dict[str, Any], str, str]] = [
    ({"ppo": {"kl_target": 1e-40}}, "ppo.kl_target", "should be 0, or at least 1e-30 away from it, not 1e-40"),
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
    (
        {"data": {"prompt_format": "Q: {prompt} A:", "query_tokens_min": 2, "query_tokens_max": 3}},
        "data.query_tokens_max",
        "a prompt in its form cannot be cut to its first tokens; use 0, or empty prompt_format",
    ),
    (
        {"data": {"prompt_format": "Q: {prompt} A:", "overlong": "cut_right"}},
        "data.overlong",
        "cut_right would cut off the place where the answer begins; use cut_left or drop",
    ),
    (
        {"data": {"prompt_format": "Q:"}},
        "data.prompt_format",
        "needs {prompt} exactly once, where the prompt stands, such as: Human: {prompt}\\n\\nAssistant:",
    ),
    (
        {"data": {"prompt_format": "Q: {prompt} A:", "chat_template": True}},
        "data.prompt_format",
        "the chat template says how prompts are written; use one of the two",
    ),
    (
        {"stage": "sft", "data": {"prompt_format": "Q:"}},
        "data.prompt_format",
        "needs {prompt} exactly once, where the prompt stands, such as: Human: {prompt}\\n\\nAssistant:",
    ),
    (
        {"stage": "dpo", "data": {"prompt_format": "Q: {prompt} A:", "chat_template": True}},
        "data.prompt_format",
        "the chat template says how prompts are written; use one of the two",
    ),
    (
        {"stage": "reward_model", "data": {"system_text": "Be brief."}},
        "data.system_text",
        "is used only with chat_template; switch that on, or leave this empty",
    ),
    (
        {"engine": {"keep_best": "eval_loss"}},
        "engine.keep_best",
        "eval_loss is not measured in a PPO run; take objective/scores or gold/score",
    ),
    (
        {"ppo": {"advantage": "rloo"}},
        "ppo.responses_per_prompt",
        "1 gives advantage rloo nothing to compare a response with; use at least 2",
    ),
    (
        {"ppo": {"advantage": "grpo", "responses_per_prompt": 4}},
        "ppo.kl_placement",
        "advantage grpo charges the KL in the loss; use loss, with kl_estimator k3",
    ),
    (
        {"ppo": {"advantage": "grpo", "responses_per_prompt": 4, "kl_placement": "loss", "kl_estimator": "k2"}},
        "ppo.kl_estimator",
        "advantage grpo charges the KL as k3, not k2; use k3",
    ),
    (
        {"ppo": {"advantage": "rloo", "responses_per_prompt": 4, "whiten_advantages": False}},
        "ppo.whiten_advantages",
        "advantage rloo has no critic and does not use this; leave it at true",
    ),
    (
        {"ppo": {"advantage": "rloo", "responses_per_prompt": 4}, "critic": {"model": "x"}},
        "critic.model",
        "ppo.advantage rloo has no critic and does not use this; leave it at ''",
    ),
    (
        {"stage": "sft", "engine": {"probe_prompts": 2}},
        "engine.probe_prompts",
        "a run of the stage sft does not use this; leave it out",
    ),
    (
        {"stage": "sft", "engine": {"keep_best": "objective/scores"}},
        "engine.keep_best",
        "objective/scores is measured in PPO runs only; take eval_loss, or none",
    ),
    (
        {"stage": "reward_model", "reward_model": {"normalise": 1}},
        "reward_model.normalise",
        "a single score has no variance; use at least 2, or 0 to leave scores as they are",
    ),
    (
        {"stage": "evaluation", "evaluation": {"greedy": True, "samples": 2}},
        "evaluation.samples",
        "greedy answers to one prompt are all the same; use 1, or switch greedy off",
    ),
]


@pytest.mark.parametrize(("data", "field", "message"), TOGETHER, ids=[field for _, field, _ in TOGETHER])
def test_settings_that_do_not_fit_together(data: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(data)
    assert [(problem.field, problem.message) for problem in caught.value.problems] == [(field, message)]


def test_the_best_of_held_out_examples_is_for_every_stage_that_has_some() -> None:
    for stage in ("reward_model", "dpo"):
        assert parse_config({"stage": stage, "engine": {"keep_best": "eval_loss"}}).engine.keep_best == "eval_loss"
        with pytest.raises(ConfigError, match="engine.keep_best: gold/score is measured in PPO runs only"):
            parse_config({"stage": stage, "engine": {"keep_best": "gold/score"}})


def rules(tree: ast.Module) -> int:
    """How many errors the definitions raise. ``as_sampled`` is no definition: whoever calls it has a configuration that is right."""
    parts = [node for node in tree.body if getattr(node, "name", "") != "as_sampled"]
    return sum(isinstance(node, ast.Raise) for part in parts for node in ast.walk(part))


def test_no_rule_between_settings_is_left_untried() -> None:
    raised = 0
    for file in (TESTS.parent / "rlhf_studio" / "config").glob("*.py"):
        if file.stem != "permissions":  # flags of the program, no settings
            raised += rules(ast.parse(file.read_text(encoding="utf-8")))
    assert raised == len(TOGETHER), "add a case to TOGETHER for each rule"
