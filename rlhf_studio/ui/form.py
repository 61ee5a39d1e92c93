"""The form, described from the configuration's own definition: the page draws what this says and repeats no title, bound or default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import (
    NOTHING_ALLOWED,
    REWARD_KINDS,
    STAGES,
    Component,
    Group,
    LoraConfig,
    Permissions,
    Stage,
    StageConfig,
    io,
    kind_of,
    uses,
)
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.io import ConfigError, Problem, section_model, walk_fields
from rlhf_studio.config.ppo import CRITIC_SETTINGS
from rlhf_studio.config.run import CRITIC_SETTINGS_ELSEWHERE
from rlhf_studio.inputs.relative_paths import as_seen_from
from rlhf_studio.language import _
from rlhf_studio.runs.reader import RunReader

SECTION_TITLES = {
    "model": "Model",
    "lora": "LoRA",
    "critic": "Critic",
    "data": "Data",
    "reward": "Reward",
    "ppo": "PPO",
    "sft": "Fine-tuning",
    "reward_model": "Reward model",
    "dpo": "DPO",
    "evaluation": "Evaluation",
    "generation": "Generation",
    "engine": "Engine",
}
"""The sections of all stages; those of each stage come in this order."""
# Settings that the form shows only while another setting is shown and has a certain value.
USED_WHEN: dict[str, tuple[str, Any]] = {
    **{f"lora.{name}": ("lora.enabled", True) for name in LoraConfig.model_fields if name != "enabled"},
    **{f"ppo.{name}": ("ppo.advantage", "gae") for name in CRITIC_SETTINGS},
    **dict.fromkeys(CRITIC_SETTINGS_ELSEWHERE, ("ppo.advantage", "gae")),
    "critic.start": ("critic.kind", "separate"),
    "critic.model": ("critic.start", "model"),
    "critic.revision": ("critic.start", "model"),
    "data.system_text": ("data.chat_template", True),
    "ppo.kl_target": ("ppo.kl_controller", "adaptive"),
    "ppo.kl_horizon": ("ppo.kl_controller", "adaptive"),
}
FILLED = object()
"""In place of a value: the other setting is not empty."""
# The same of the stages that learn from examples.
EXAMPLES_WHEN: dict[str, tuple[str, Any]] = {
    "data.eval_split": ("data.eval", FILLED),
    "data.eval_share": ("data.eval", ""),
    "data.prompt_format": ("data.chat_template", False),
}
LEARN_FROM_EXAMPLES: tuple[Stage, ...] = ("sft", "reward_model", "dpo")
LONG_TEXT = 1000
# How the bundled names end that fit a setting, in a stage or in all.
_BUNDLED_ENDING = {
    ("model.policy", ""): "policy",
    ("data.prompts", ""): "prompts",
    ("model", ""): "reward",
    ("data.source", "sft"): "reviews",
    ("data.source", "reward_model"): "pairs",
    ("data.source", "dpo"): "pairs",
}


def describe_form(permissions: Permissions = NOTHING_ALLOWED, stage: Stage = "ppo") -> dict[str, Any]:
    """Sections, fields and reward component kinds as plain data; ``permissions`` are what rewards outside the program may use.

    A stage without rewards has no kinds of components.
    """
    kind = STAGES[stage]
    fields: dict[str, list[dict[str, Any]]] = {section: [] for section in kind.sections}
    for name, info in walk_fields(kind):
        section, _dot, rest = name.partition(".")
        if rest and uses(stage, name):
            fields[section].append(describe_field(name, info, stage))
    sections = [
        {"name": section, "title": _(SECTION_TITLES[section]), "help": _intro(section, kind), "fields": fields[section]}
        for section in kind.sections
    ]
    return {
        "name": describe_field("name", kind.model_fields["name"]),
        "sections": sections,
        "components": [describe_component(model, permissions) for model in kinds_by_group()] if "reward" in kind.sections else [],
    }


def _intro(section: str, kind: type[StageConfig]) -> str:
    """What a section is about: the first sentence of its model, in plain text."""
    return _(intro_of(section_model(section, kind)))


def intro_of(model: type[BaseModel]) -> str:
    """What a model of settings says of itself, in plain text."""
    return (model.__doc__ or "").replace("``", "")


def kinds_by_group() -> list[type[Component]]:
    """The kinds of reward components as the form offers them: group by group, within each in the order of the configuration."""
    return [model for group in get_args(Group) for model in REWARD_KINDS.values() if model.group == group]


def describe_component(model: type[Component], permissions: Permissions = NOTHING_ALLOWED) -> dict[str, Any]:
    """One kind of reward component: its own settings first, then weight and name."""
    suggested = model.suggestions(permissions)
    fields = []
    for name in (*(own for own in model.model_fields if own not in ("kind", "name", "weight")), "weight", "name"):
        field = describe_field(name, model.model_fields[name])
        if rule := model.used_when.get(name):
            field["used_when"] = {"name": rule[0], "value": list(rule[1]) if isinstance(rule[1], tuple) else rule[1]}
        if name in model.one_per_line:
            field["lines"] = True
        if known := suggested.get(name):
            field["suggestions"] = known
        fields.append(field)
    words = {"title": _(model.title), "group": _(model.group), "help": _(intro_of(model))}
    about = {"kind": kind_of(model), **words, "takes_reference": model.takes_reference}
    return {**about, "fields": fields, "defaults": model().model_dump()}


def describe_field(name: str, info: FieldInfo, stage: Stage = "ppo") -> dict[str, Any]:
    """One setting: what it is called, what it means, what it takes."""
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    described: dict[str, Any] = {
        "name": name,
        "title": _(info.title or ""),
        "help": _(info.description or ""),
        "unit": extra.get("unit", ""),
        "level": extra.get("level", "all"),
        "kind": field_kind(info.annotation),
        **_bounds(info),
    }
    if name == "engine.device":
        described["kind"] = "device"  # a picker, whose choices depend on the machine: see devices.py
    if described["kind"] == "choice":
        described["choices"] = [choice for choice in get_args(info.annotation) if _is_choice(name, choice, stage)]
    if rule := USED_WHEN.get(name) or (EXAMPLES_WHEN.get(name) if stage in LEARN_FROM_EXAMPLES else None):
        described["used_when"] = {"name": rule[0], "filled": True} if rule[1] is FILLED else {"name": rule[0], "value": rule[1]}
    if described.get("max_length", 0) >= LONG_TEXT:
        described["wide"] = True
    if ending := _BUNDLED_ENDING.get((name, stage)) or _BUNDLED_ENDING.get((name, "")):
        described["suggestions"] = [bundled for bundled in BUNDLED if bundled.endswith(ending)]
    return described


def _is_choice(name: str, choice: str, stage: Stage) -> bool:
    """Whether a choice of a shared setting is one of this stage: PPO measures scores, the others a loss on held-out examples."""
    if name != "engine.keep_best" or choice == "none":
        return True
    return (choice == "eval_loss") == (stage in LEARN_FROM_EXAMPLES)


FieldKind = Literal["toggle", "integer", "number", "text", "choice", "components"]


def field_kind(annotation: Any) -> FieldKind:
    """Which control a type needs. Raises TypeError for a type that the form has no control for."""
    if get_origin(annotation) is Literal:
        return "choice"
    if get_origin(annotation) is list:
        return "components"
    kinds: dict[Any, FieldKind] = {bool: "toggle", int: "integer", float: "number", str: "text"}
    if annotation not in kinds:
        raise TypeError(f"the form has no control for {annotation}")
    return kinds[annotation]


def _bounds(info: FieldInfo) -> dict[str, Any]:
    """``minimum``, ``maximum``, whether they are excluded, and ``max_length``, from pydantic's constraints."""
    bounds: dict[str, Any] = {}
    for rule in info.metadata:
        for attribute, key in (("ge", "minimum"), ("gt", "minimum"), ("le", "maximum"), ("lt", "maximum")):
            if getattr(rule, attribute, None) is not None:
                bounds[key] = getattr(rule, attribute)
                if attribute in ("gt", "lt"):
                    bounds[f"{key}_excluded"] = True
        if getattr(rule, "max_length", None) is not None:
            bounds["max_length"] = rule.max_length
    return bounds


def values_of(config: StageConfig) -> dict[str, Any]:
    """The configuration as the form holds it: dotted name -> value; reward components as a list of mappings."""
    data = config.model_dump(mode="json")
    flat: dict[str, Any] = {"name": data["name"]}
    for section in config.sections:
        flat.update({f"{section}.{name}": value for name, value in data[section].items()})
    return flat


def settings_of(reader: RunReader) -> dict[str, Any]:
    """A run's settings as the form takes them over: all but its name, and the recipe that they started from.

    A run that is started from the form works in the app's folder, so what a relative path names in this run's folder is named in full.
    """
    config = as_seen_from(reader.config(), reader.working_folder())
    return {"values": {**values_of(config), "name": ""}, "basis": config.recipe, "stage": config.stage}


def nested(values: Any) -> dict[str, Any]:
    """What the form sent, as the mapping that the configuration is parsed from. Raises :class:`ConfigError` for another shape."""
    if not isinstance(values, Mapping) or len(values) > 500:
        raise ConfigError([Problem("", _("the form sent something that is not a list of settings; reload the page"))])
    return io.nested(values)
