"""Reading and writing configurations: YAML text, dotted command-line settings, and errors that name the field.

Every way in ends in :func:`parse_config`, so a bad value gives the same message in the form, on the command line and in a file.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, STAGE_TITLES, STAGES, RunConfig, StageConfig
from rlhf_studio.config.base import may_be_empty
from rlhf_studio.config.wording import sentence, shortened
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular
from rlhf_studio.visible import visible

MAX_YAML_BYTES = 1_000_000
LONGEST_NAME = 500  # characters of a setting's dotted name
DEEPEST = 20  # mappings and lists inside each other; settings need 5
LONGEST_NUMBER = 40  # characters; a longer value is not shown as an example either
MOST_PROBLEMS = 50
MANY_OF_ANOTHER = 4  # unknown settings with names of one other program in one file


@dataclass(frozen=True)
class OtherProgram:
    """A program whose settings people write here by habit.

    Attributes:
        name: what people call it.
        answer: given the name of a setting of it, a sentence that says where it is found here; an empty text for any other name.
        converter: the command that converts a file of its settings.
    """

    name: str
    answer: Callable[[str], str]
    converter: str


OTHER_PROGRAMS: list[OtherProgram] = []
"""Asked about unknown settings. This package knows no other program: those that do add theirs when they start."""


def _elsewhere(name: str) -> str:
    return next((sentence for program in OTHER_PROGRAMS if (sentence := program.answer(name))), "")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input.

    Attributes:
        field: dotted name of the setting, e.g. ``ppo.kl_coef``; empty when no single setting is to blame.
        message: one sentence: what is wrong, and what value is allowed.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ConfigError(ValueError):
    """The configuration cannot be used; ``problems`` says why, one entry per setting."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


def parse_config(data: Mapping[str, Any]) -> StageConfig:
    """Validate a plain mapping as the configuration of the stage that it names, or of PPO where it names none.

    Raises :class:`ConfigError` that lists the bad settings, :data:`MOST_PROBLEMS` of them at most.
    """
    return _parsed(stage_class(data), data)


def parse_ppo(data: Mapping[str, Any]) -> RunConfig:
    """As :func:`parse_config`, for what only PPO can do. Raises :class:`ConfigError` also for another stage."""
    return ppo_only(parse_config(data))


def ppo_only(config: StageConfig) -> RunConfig:
    """The configuration itself, of a PPO run. Raises :class:`ConfigError` for another stage."""
    if isinstance(config, RunConfig):
        return config
    raise ConfigError([Problem("stage", f"should be ppo here, not {config.stage} ({STAGE_TITLES[config.stage]})")])


def stage_class(data: Mapping[str, Any]) -> type[StageConfig]:
    """The class of the configuration that a plain mapping holds. Raises :class:`ConfigError` for a stage that there is not."""
    stage = data.get("stage", "ppo") if isinstance(data, Mapping) else "ppo"  # what is no mapping is refused by the class
    if isinstance(stage, str) and stage in STAGES:
        return STAGES[stage]
    raise ConfigError([Problem("stage", f"should be one of {', '.join(STAGES)}, not {shortened(stage)}")])


_Config = TypeVar("_Config", bound=StageConfig)


def _parsed(kind: type[_Config], data: Mapping[str, Any]) -> _Config:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        findings, problems = _of_another(error.errors(include_url=False))
        every = [problem for item in findings for problem in _problems(item, kind)]
        problems += every[:MOST_PROBLEMS]
        if len(every) > MOST_PROBLEMS:
            problems.append(Problem("", f"{len(every) - MOST_PROBLEMS} more settings are wrong; mend these first"))
        raise ConfigError(problems) from None


def _of_another(findings: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Problem]]:
    """Many unknown settings with another program's names are one problem. Returns the other findings, and that problem."""
    for program in OTHER_PROGRAMS:
        theirs = [item for item in findings if item["type"] == "extra_forbidden" and program.answer(str(item["loc"][-1]))]
        if len(theirs) >= MANY_OF_ANOTHER:
            message = S_(f"this looks like settings for {program.name} ({len(theirs)} of its names): {program.converter} converts them")
            return [item for item in findings if item not in theirs], [Problem("", message)]
    return list(findings), []


def _problems(finding: Mapping[str, Any], kind: type[StageConfig]) -> Iterator[Problem]:
    """What a finding says: a rule about several settings may say more than one thing, each in a line of its own."""
    # A discriminated union puts the component's kind into the location, behind the index; people know only the index.
    before = ("", *finding["loc"])
    location = [
        str(part) for part, last in zip(finding["loc"], before, strict=False) if not (part in REWARD_KINDS and isinstance(last, int))
    ]
    message = sentence(finding)
    if finding["type"] == "extra_forbidden":
        message = _unknown(location, finding["input"], message, kind)
    named = [re.fullmatch(r"([a-z0-9_.]+): (.*)", line) for line in message.split("\n")] if finding["type"] == "value_error" else [None]
    if not all(named):
        yield Problem(".".join(location), message)
    for match in filter(None, named if all(named) else []):
        yield Problem(".".join([*location, match[1]]), match[2])


def _unknown(location: list[str], value: Any, message: str, kind: type[StageConfig]) -> str:
    """What is said of a setting that there is not: where it is found, how a file writes it, or the most similar one."""
    name = ".".join(location)
    section, dot, setting = location[0].partition(".")
    if dot and section in kind.sections:
        known = name in dict(walk_fields(kind))
        written = json.dumps(value, default=str)
        example = f"{section}: {{{setting}: {written if len(written) <= LONGEST_NUMBER else '...'}}}" if known else "ppo: {steps: 5}"
        return S_(f"a file writes a setting inside its section, as {example}") + ("" if known else _did_you_mean(name, kind))
    return _elsewhere(location[-1]) or message + _did_you_mean(name, kind)


def _did_you_mean(name: str, kind: type[StageConfig]) -> str:
    """The end of a sentence about a setting that there is not: the most similar one, if one is similar."""
    near = difflib.get_close_matches(name, [known for known, _ in walk_fields(kind)], n=1, cutoff=0.8)
    return f"; {S_(f'did you mean {near[0]}?')}" if near else ""


# --- YAML ----------------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML 1.2 numbers: PyYAML alone reads ``1e-5`` as text and ``1:30`` as 90. Duplicate keys are refused.

    Reading takes time in proportion to the text: no aliases, which can stand for far more than is written, a bounded depth, which is
    checked before anything recurses, and no endless numbers. Tags, which settings do not need, are refused.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError([Problem("", f"*{event.anchor} repeats another value; write the value itself")])
        if getattr(event, "tag", None):
            raise ConfigError([Problem("", f"this is not valid YAML for settings: remove the tag {shortened(event.tag)}")])
        if self._depth == DEEPEST:
            raise ConfigError([Problem("", f"more than {DEEPEST} lists and mappings are inside each other; settings need no more than 5")])
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise ConfigError([Problem("", f"{shortened(key)} cannot be the name of a setting")])
            if key in keys:
                raise ConfigError([Problem(str(key), "is set twice; keep one")])
            keys.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def _number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_scalar(node)
        if ":" in text or len(text) > LONGEST_NUMBER:
            raise ConfigError([Problem("", f"{shortened(text)} is not a number that a setting can have; text stands in quotes")])
        is_integer = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_integer else self.construct_yaml_float(node)


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader._number)


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that :class:`_Loader` would read as numbers: a run may be called 1e5."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789."))


def config_from_yaml(text: str, most_bytes: int = MAX_YAML_BYTES) -> StageConfig:
    """Parse YAML text. Raises :class:`ConfigError` for anything that is not a valid configuration."""
    return parse_config(mapping_from_yaml(text, most_bytes))


@lru_cache(maxsize=8)
def _loaded(text: str) -> Any:
    """What YAML text holds. Whoever writes a configuration reads it back at once, and soon it is read again."""
    return yaml.load(text, Loader=_Loader)  # a SafeLoader subclass


def mapping_from_yaml(text: str, most_bytes: int = MAX_YAML_BYTES) -> dict[str, Any]:
    """Parse YAML text into a plain mapping, without checking the settings themselves."""
    if len(text.encode("utf-8", "surrogatepass")) > most_bytes:
        raise ConfigError([Problem("", f"the file is larger than {most_bytes} bytes; a configuration is a few kilobytes")])
    try:
        data = _deep_copy(_loaded(text))  # whoever asked may change it
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date, say
        raise ConfigError([Problem("", f"this is not valid YAML: {str(error).splitlines()[0]}")]) from None
    if not isinstance(data, dict):
        raise ConfigError([Problem("", "the file must hold settings as 'section: {name: value}'")])
    return data


@lru_cache(maxsize=64)
def _understood(text: str) -> StageConfig:
    """As :func:`config_from_yaml`, once for each text: pages read the same files again and again, and nobody can change a configuration."""
    return config_from_yaml(text)


def config_from_file(path: Path, overrides: Mapping[str, str] | None = None) -> StageConfig:
    """Read a YAML file, with settings changed as by :func:`apply_overrides` before anything is checked.

    Raises :class:`ConfigError` also when the file cannot be read.
    """
    if not overrides:
        return _understood(_text_of(path))
    data = mapping_from_file(path)
    return parse_config(apply_overrides(merged(stage_class(data).model_validate({}).model_dump(mode="json"), data), overrides))


def mapping_from_file(path: Path) -> dict[str, Any]:
    """A YAML file as a plain mapping, without checking the settings themselves. Raises :class:`ConfigError`."""
    return mapping_from_yaml(_text_of(path))


def _text_of(path: Path) -> str:
    try:
        return read_regular(path, MAX_YAML_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot read {path}: {error}")]) from None


def merged(defaults: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """``data`` with the defaults of what it leaves out, section by section; lists are taken as they are."""
    both = {**defaults, **data}
    for name, default in defaults.items():
        if isinstance(default, dict) and isinstance(both[name], dict):
            both[name] = merged(default, both[name])
    return both


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"ppo.steps": 5}`` as the mapping that a configuration is parsed from. Raises :class:`ConfigError` for a name that is set twice."""
    data: dict[str, Any] = {}
    for name, value in values.items():
        section, dot, rest = str(name).partition(".")
        if not dot:
            data[section] = value
        elif not isinstance(group := data.setdefault(section, {}), dict):
            raise ConfigError([Problem(section, "is set twice; keep one")])
        else:
            group[rest] = value
    return data


def names_given(data: Mapping[str, Any]) -> set[str]:
    """The dotted names of the settings that a plain mapping gives: ``{"ppo": {"steps": 5}}`` gives ``{"ppo.steps"}``."""
    sections = {name: values for name, values in data.items() if isinstance(values, Mapping)}
    return {f"{section}.{name}" for section, values in sections.items() for name in values} | (data.keys() - sections.keys())


def config_to_yaml(config: StageConfig) -> str:
    """The configuration as YAML text, every setting written out, in the order of the definition."""
    return mapping_to_yaml(config.model_dump(mode="json"))


def used_to_yaml(config: StageConfig) -> str:
    """As :func:`config_to_yaml`, without the settings that the run does not use: each one that is written can be changed."""
    data = config.model_dump(mode="json")
    for name in config.unused:
        section, _, setting = name.partition(".")
        if section in data:
            data[section].pop(setting, None)
    return mapping_to_yaml({name: value for name, value in data.items() if value != {}})


def mapping_to_yaml(data: dict[str, Any]) -> str:
    """A plain mapping as YAML text that :func:`mapping_from_yaml` reads back as it was."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    # PyYAML writes hidden characters as they are, and rare line separators, which it reads back as newlines: escape everything then.
    if visible(text) == text and _loaded(text) == data:
        return text
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


# --- dotted settings -------------------------------------------------------------------------------------------------------


def walk_fields(kind: type[StageConfig] = RunConfig) -> Iterator[tuple[str, FieldInfo]]:
    """Every setting of a stage's configuration as (dotted name, pydantic field), in the order of the form."""
    yield "name", kind.model_fields["name"]
    for section in kind.sections:
        for name, field in section_model(section, kind).model_fields.items():
            yield f"{section}.{name}", field


def section_model(section: str, kind: type[StageConfig] = RunConfig) -> type[BaseModel]:
    """The model of one section of a stage's configuration."""
    model = kind.model_fields[section].annotation
    assert isinstance(model, type) and issubclass(model, BaseModel)
    return model


def apply_overrides(data: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Set dotted names to values given as text, e.g. ``{"ppo.kl_coef": "0.2"}``; returns a new mapping.

    Text settings take the value as it stands, but ``null`` clears one that may be empty; all others are read as YAML. A name such as
    ``reward.components.0.weight`` reaches into lists; another ``kind`` of a component begins it anew, so name it first.
    Raises :class:`ConfigError` for a name that leads nowhere.
    """
    result: dict[str, Any] = _deep_copy(data)
    kind = stage_class(data)
    for name, raw in overrides.items():
        _set(result, name, _parts(name), parse_value(name, raw, kind), kind)
    return result


def parse_value(name: str, raw: str, kind: type[StageConfig] = RunConfig) -> Any:
    """The plain value that a text stands for in a setting, as :func:`apply_overrides` reads it. Raises :class:`ConfigError`."""
    field = dict(walk_fields(kind)).get(name)
    if field is None or field.annotation is not str:
        return _plain_value(name, raw)
    return _text(raw) if may_be_empty(field) else raw


def with_values(config: _Config, values: Mapping[str, Any]) -> _Config:
    """The configuration with other values of some settings, given by dotted name as plain JSON: ``{"ppo.kl_coef": 0.2}``.

    Raises :class:`ConfigError` for a name that leads nowhere and for a value that the setting does not take.
    """
    data = config.model_dump(mode="json")
    for name, value in values.items():
        _set(data, name, _parts(name), value, type(config))
    return _parsed(type(config), data)


def _parts(name: str) -> list[str]:
    """A dotted name in its parts. Raises :class:`ConfigError` for one that leads deeper than any setting."""
    if len(parts := name.split(".")) > DEEPEST or len(name) > LONGEST_NAME:
        raise ConfigError([Problem(shortened(name), "there is no such setting: no name is that long")])
    return parts


_NULL = re.compile(r'("*)null\1')


def _text(raw: str) -> str | None:
    """A text that may be empty: ``null`` clears it, and ``"null"`` with its quotes is the word itself."""
    return raw if not (match := _NULL.fullmatch(raw)) else raw[1:-1] if match[1] else None


def text_override(value: str) -> str:
    """The value of a text that may be empty, as :func:`apply_overrides` reads it back."""
    return f'"{value}"' if _NULL.fullmatch(value) else value


def _plain_value(name: str, raw: str) -> Any:
    try:
        return yaml.load(raw, Loader=_Loader)  # a SafeLoader subclass
    except (yaml.YAMLError, ValueError):
        raise ConfigError([Problem(name, f"cannot read the value {shortened(raw)}")]) from None


def _deep_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _deep_copy(item) for key, item in value.items()}
    return [_deep_copy(item) for item in value] if isinstance(value, list) else value


def _set(target: Any, name: str, path: list[str], value: Any, kind: type[StageConfig]) -> None:
    head, rest = path[0], path[1:]
    if isinstance(target, list):
        if not head.isdecimal() or len(head) > LONGEST_NUMBER or int(head) >= len(target):
            raise ConfigError([Problem(name, f"there is no entry {head}; the list has {len(target)}")])
        key: Any = int(head)
    elif isinstance(target, dict):
        key = head
        if rest:
            target.setdefault(head, {})
    else:
        raise ConfigError([Problem(name, _elsewhere(head) or "there is no such setting" + _did_you_mean(name, kind))])
    if rest:
        _set(target[key], name, rest, value, kind)
    elif key == "kind" and name.startswith("reward.components.") and target.get(key) != value:
        target.clear()  # another kind has other settings
        target[key] = value
    else:
        target[key] = value


def text_of(value: Any) -> str:
    """A setting's value as in a file: ``true``, ``0.0003``, ``16``."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
