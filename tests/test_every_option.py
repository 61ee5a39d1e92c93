"""Every setting is explained, is read by the program, stands in the form, and refuses what is outside its bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, STAGES, USED_ONLY_BY, RunConfig, Stage, StageConfig
from rlhf_studio.config.base import may_be_a_number, may_be_empty
from rlhf_studio.config.io import ConfigError, parse_config, section_model, walk_fields
from rlhf_studio.ui.form import describe_form
from tools.settings_page import own_sections

PACKAGE = Path(__file__).parents[1] / "rlhf_studio"


@dataclass(frozen=True)
class Option:
    """A setting of a section, of a reward component (``section`` is its kind), or of the run itself (``section`` is empty)."""

    name: str
    field: FieldInfo
    stage: Stage = "ppo"
    section: str = ""
    component: bool = False

    def __str__(self) -> str:
        return f"{self.stage}: {self.section}.{self.name}"


def options() -> Iterator[Option]:
    """Every setting once, or once for each stage whose section has it in another class."""
    yield from (Option(name, field) for name, field in StageConfig.model_fields.items())
    for section in RunConfig.sections:
        yield from (Option(name, field, "ppo", section) for name, field in section_model(section).model_fields.items())
    for kind, component in REWARD_KINDS.items():
        yield from (Option(name, field, "ppo", kind, True) for name, field in component.model_fields.items() if name != "kind")
    for stage in STAGES:
        for section, model in own_sections(stage).items() if stage != "ppo" else ():
            yield from (Option(name, field, stage, section) for name, field in model.model_fields.items())


OPTIONS = list(options())


# --- explained, read, in the form --------------------------------------------------------------------------------------------------


def test_each_is_explained() -> None:
    for option in OPTIONS:
        field = option.field
        assert field.title and field.description and field.description.endswith("."), f"{option} needs a title and a help sentence"
        assert isinstance(field.json_schema_extra, dict) and field.json_schema_extra["level"] in ("basic", "all"), option


def test_each_is_read_by_the_program() -> None:
    """A setting that nothing reads would be offered, stored and without effect. Columns are read by their roles' names."""
    sources = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("ui", "trl", "lessons")]
    read = {name for path in sources for name in re.findall(r"""(?:\.|["'])(\w+)\b""", path.read_text(encoding="utf-8"))}
    assert not {str(option) for option in OPTIONS if not {option.name, option.name.removesuffix("_column")} & read}


def test_the_form_has_one_field_for_each_setting_that_its_stage_uses() -> None:
    form = describe_form()
    fields = {(section["name"], field["name"].partition(".")[2]) for section in form["sections"] for field in section["fields"]}
    fields |= {(component["kind"], field["name"]) for component in form["components"] for field in component["fields"]}
    fields |= {("", form["name"]["name"]), ("", "recipe"), ("", "stage")}  # the recipe is a card, and its recipe has the stage
    assert fields == {(option.section, option.name) for option in OPTIONS if option.stage == "ppo"}
    for stage in STAGES:
        shown = [field["name"] for section in describe_form(stage=stage)["sections"] for field in section["fields"]]
        names = [name for name, _ in walk_fields(STAGES[stage]) if name != "name"]
        assert stage == "ppo" or shown == [name for name in names if stage in USED_ONLY_BY.get(name, (stage,))]


def test_a_stage_refuses_what_it_does_not_use() -> None:
    for name in USED_ONLY_BY:
        section, _, setting = name.partition(".")
        for stage, kind in STAGES.items():
            fields = dict(walk_fields(kind))
            if name not in fields:
                continue
            default = fields[name].get_default()
            another = {"engine.keep_best": "eval_loss" if stage != "ppo" else "score", "engine.accelerate_config": "x.yaml"}.get(name)
            usual = [value for value in (not default, 3, 0.5, "normalise", "replace", "skip", "stop") if value != default]
            messages = []
            for value in [another] if another else usual:
                try:
                    parse_config({"stage": stage, section: {setting: value}})
                except ConfigError as error:
                    messages += [problem.message for problem in error.problems if problem.field == name]
            refused = any("does not use this; leave it out" in message for message in messages)
            assert refused == (stage not in USED_ONLY_BY[name]), (name, stage, messages)


# --- bounds ------------------------------------------------------------------------------------------------------------------------


def place(option: Option, value: Any) -> tuple[dict[str, Any], str]:
    """The configuration that sets this option, and how errors call it."""
    name, section = option.name, option.section
    if not section:
        return {name: value}, name
    if not option.component:
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
        if "min_length" in limits:
            yield [], "needs a value"
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


def test_what_is_outside_is_refused_with_what_would_be_right_and_the_limits_are_inside() -> None:
    """The stage itself is tried below: it decides which class reads all the rest."""
    wrong = []
    for option in OPTIONS:
        if option.name == "stage":
            continue
        setting = place(option, 0)[1]
        for value, pattern in outside(option.field):
            answer = problems(option, value)
            if set(answer) != {setting} or not re.search(pattern, answer[setting]) or len(answer[setting]) >= 400:
                wrong.append(f"{option} = {value!r:.60} was answered with {answer}")
        for rule in option.field.metadata:  # a value at a limit may not fit other settings, but it is within its own bounds
            for value in (getattr(rule, "ge", None), getattr(rule, "le", None)):
                if value is not None and option.field.annotation in (int, float):
                    answers = problems(option, value).values()
                    wrong += [f"{option} = {value}: {message}" for message in answers if " than " in message and "should" in message]
    assert not wrong, "\n".join(wrong)


def test_the_stage_decides_which_settings_there_are() -> None:
    for stage in STAGES:
        config = parse_config({"stage": stage})
        assert config.stage == stage and set(config.model_dump()) == {"stage", "name", "recipe", *STAGES[stage].sections}
        stranger = "critic" if stage != "ppo" else "sft"
        with pytest.raises(ConfigError, match=f"{stranger}: there is no such setting"):
            parse_config({"stage": stage, stranger: {}})
    for wrong in ("training", "", None, ["sft"]):
        with pytest.raises(ConfigError, match="stage: should be one of ppo, sft, reward_model, dpo, evaluation, not "):
            parse_config({"stage": wrong})


# --- settings that must fit together ---------------------------------------------------------------------------------------------

TOGETHER: list[tuple[dict[str, Any], str, str]] = [
    ({"ppo": {"kl_target": 1e-40}}, "ppo.kl_target", "should be 0, or at least 1e-30 away from it, not 1e-40"),
    ({"ppo": {"batch_size": 8}}, "ppo.mini_batch_size", "32 is larger than batch_size 8; use at most the batch size"),
    ({"ppo": {"mini_batch_size": 24}}, "ppo.mini_batch_size", "24 does not divide batch_size 64; use a divisor of it"),
    ({"ppo": {"responses_per_prompt": 5}}, "ppo.responses_per_prompt", "5 does not divide batch_size 64; use a divisor of it"),
    ({"ppo": {"micro_batch_size": 5}}, "ppo.micro_batch_size", "5 does not divide mini_batch_size 32; use a divisor of it"),
    ({"ppo": {"dual_clip": 1.0}}, "ppo.dual_clip", "1.0 must be above 1, or 0 for none"),
    ({"ppo": {"kl_placement": "loss"}}, "ppo.kl_estimator", "k1 cannot be used in the loss; use k2 or k3 with kl_placement loss"),
    ({"ppo": {"kl_controller": "adaptive", "kl_horizon": 12}}, "ppo.kl_horizon", "12 is too short for batches of 64; use at"),
    ({"generation": {"response_length_min": 33}}, "generation.response_length_min", "33 is larger than response_length 32; use"),
    ({"engine": {"device": "cuda:1", "processes": 4}}, "engine.device", "cuda:1 is one GPU, for one process; use cuda for 4"),
    ({"engine": {"device": "cuda:0", "accelerate_config": "some.yaml"}}, "engine.device", "cuda:0 is one GPU, and the"),
    ({"engine": {"report_to": "wandb, mlflow"}}, "engine.report_to", "there is no tracker 'mlflow'; there are: trackio,"),
    ({"data": {"min_characters": 9, "max_characters": 8}}, "data.max_characters", "8 is below min_characters 9; use at least"),
    ({"data": {"min_prompt_tokens": 129, "overlong": "drop"}}, "data.min_prompt_tokens", "129 is above max_prompt_tokens 128; use less"),
    ({"data": {"query_tokens_min": 3}}, "data.query_tokens_max", "set both query lengths, or neither"),
    ({"data": {"query_tokens_min": 3, "query_tokens_max": 2}}, "data.query_tokens_max", "2 is below query_tokens_min 3; use at"),
    ({"data": {"query_tokens_min": 3, "query_tokens_max": 129}}, "data.query_tokens_max", "129 is above max_prompt_tokens 128;"),
    (
        {"data": {"chat_template": True, "query_tokens_min": 2, "query_tokens_max": 3}},
        "data.query_tokens_max",
        "a chat cannot be cut to its first tokens; use 0, or switch chat_template off",
    ),
    ({"data": {"chat_template": True, "overlong": "cut_right"}}, "data.overlong", "cut_right would cut off the place where a"),
    (
        {"reward": {"components": [{"kind": "reward_model", "chat_template": "own", "reads": "response"}]}},
        "reward.components.0.chat_template",
        "own writes prompt and response as one chat; use policy, or set reads to both",
    ),
    ({"reward": {"components": [{"kind": "judge", "lowest": 10.0}]}}, "reward.components.0.highest", "10 must be above lowest 10"),
    ({"reward": {"components": [{"kind": "human", "lowest": 1.0}]}}, "reward.components.0.highest", "1 must be above lowest 1"),
    ({"ppo": {"schedule": "0.2"}}, "ppo.schedule", "'0.2' is no change; write step, setting and value, such as 8 ppo.kl_coef 0.2"),
    ({"ppo": {"schedule": "8 ppo.gamma 0.9"}}, "ppo.schedule", "ppo.gamma in step 8: cannot change while a run goes on; these"),
    ({"engine": {"keep_best": "gold/score"}}, "engine.keep_best", "gold/score is not measured without a gold score; set"),
    ({"data": {"system_text": "Be brief."}}, "data.system_text", "is used only with chat_template; switch that on, or leave this empty"),
    (
        {"data": {"prompt_format": "Q: {prompt} A:", "query_tokens_min": 2, "query_tokens_max": 3}},
        "data.query_tokens_max",
        "a prompt in its form cannot be cut to its first tokens; use 0, or empty prompt_format",
    ),
    ({"data": {"prompt_format": "Q: {prompt} A:", "overlong": "cut_right"}}, "data.overlong", "cut_right would cut off the"),
    ({"data": {"prompt_format": "Q:"}}, "data.prompt_format", "needs {prompt} exactly once, where the prompt stands, such"),
    ({"data": {"prompt_format": "Q: {prompt} A:", "chat_template": True}}, "data.prompt_format", "the chat template says how"),
    ({"stage": "sft", "data": {"prompt_format": "Q:"}}, "data.prompt_format", "needs {prompt} exactly once, where the prompt"),
    (
        {"stage": "dpo", "data": {"prompt_format": "Q: {prompt} A:", "chat_template": True}},
        "data.prompt_format",
        "the chat template says how prompts are written; use one of the two",
    ),
    ({"stage": "reward_model", "data": {"system_text": "Be brief."}}, "data.system_text", "is used only with chat_template;"),
    ({"engine": {"keep_best": "eval_loss"}}, "engine.keep_best", "eval_loss is not measured in a PPO run; take"),
    ({"ppo": {"advantage": "rloo"}}, "ppo.responses_per_prompt", "1 gives advantage rloo nothing to compare a response with;"),
    ({"ppo": {"advantage": "grpo", "responses_per_prompt": 4}}, "ppo.kl_placement", "advantage grpo charges the KL in the"),
    (
        {"ppo": {"advantage": "grpo", "responses_per_prompt": 4, "kl_placement": "loss", "kl_estimator": "k2"}},
        "ppo.kl_estimator",
        "advantage grpo charges the KL as k3, not k2; use k3",
    ),
    ({"ppo": {"ratio_level": "sequence"}}, "ppo.ratio_level", "advantage gae gives each token its own; use token, or"),
    ({"ppo": {"advantage": "dr_grpo", "responses_per_prompt": 4}}, "ppo.kl_placement", "advantage dr_grpo charges the KL in the"),
    ({"ppo": {"advantage": "reinforce", "batch_size": 1, "mini_batch_size": 1}}, "ppo.batch_size", "1 gives advantage reinforce nothing"),
    (
        {"ppo": {"advantage": "rloo", "responses_per_prompt": 4, "whiten_advantages": False}},
        "ppo.whiten_advantages",
        "advantage rloo has no critic and does not use this; leave it at true",
    ),
    ({"ppo": {"advantage": "rloo", "responses_per_prompt": 4}, "critic": {"model": "x"}}, "critic.model", "ppo.advantage rloo"),
    ({"stage": "sft", "engine": {"probe_prompts": 2}}, "engine.probe_prompts", "a run of the stage sft does not use this;"),
    ({"stage": "sft", "engine": {"keep_best": "objective/scores"}}, "engine.keep_best", "objective/scores is measured in PPO"),
    ({"stage": "reward_model", "reward_model": {"normalise": 1}}, "reward_model.normalise", "a single score has no variance;"),
    ({"stage": "evaluation", "evaluation": {"greedy": True, "samples": 2}}, "evaluation.samples", "greedy answers to one"),
]


def test_settings_that_do_not_fit_together() -> None:
    for data, field, message in TOGETHER:
        with pytest.raises(ConfigError) as caught:
            parse_config(data)
        told = {problem.field: problem.message for problem in caught.value.problems}  # what else does not fit is told too
        assert message in told.get(field, ""), data


def test_the_best_of_held_out_examples_is_for_every_stage_that_has_some() -> None:
    for stage in ("reward_model", "dpo"):
        assert parse_config({"stage": stage, "engine": {"keep_best": "eval_loss"}}).engine.keep_best == "eval_loss"
        with pytest.raises(ConfigError, match="engine.keep_best: gold/score is measured in PPO runs only"):
            parse_config({"stage": stage, "engine": {"keep_best": "gold/score"}})
