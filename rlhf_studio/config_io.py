"""Reading and writing configurations: YAML text, dotted command-line settings, and errors that name the field.

Every way in ends in :func:`parse_config`, so a bad value gives the same message in the form, on the command line and in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rlhf_studio.config import SECTIONS, RunConfig
from rlhf_studio.config.base import may_be_empty
from rlhf_studio.config.wording import component_kinds, sentence, shortened

MAX_YAML_BYTES = 1_000_000


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input.

    Attributes:
        field: dotted name of the setting, e.g. ``ppo.kl_coef``; empty when no single setting is to blame.
        message: one sentence: what is wrong and what would be right.
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


def parse_config(data: Mapping[str, Any]) -> RunConfig:
    """Validate a plain mapping. Raises :class:`ConfigError` that lists every bad setting."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError([_problem(item) for item in error.errors()]) from None


def _problem(finding: Mapping[str, Any]) -> Problem:
    # A discriminated union puts the component's kind into the location, behind the index; people know only the index.
    kinds, before = component_kinds(), ("", *finding["loc"])
    location = [str(part) for part, last in zip(finding["loc"], before, strict=False) if not (part in kinds and isinstance(last, int))]
    message = sentence(finding)
    if finding["type"] == "value_error" and (match := re.match(r"([a-z_]+): (.*)", message)):
        location.append(match[1])
        message = match[2]
    return Problem(".".join(location), message)


# --- YAML ----------------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML 1.2 floats: PyYAML alone reads ``1e-5`` as text. Duplicate keys are refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        doubles = {str(key) for key in keys if keys.count(key) > 1}
        if doubles:
            raise ConfigError([Problem(sorted(doubles)[0], "is set twice; keep one")])
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that :class:`_Loader` would read as numbers: a run may be called 1e5."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789."))


def config_from_yaml(text: str) -> RunConfig:
    """Parse YAML text. Raises :class:`ConfigError` for anything that is not a valid configuration."""
    return parse_config(mapping_from_yaml(text))


def mapping_from_yaml(text: str) -> dict[str, Any]:
    """Parse YAML text into a plain mapping, without checking the settings themselves."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_YAML_BYTES:
        raise ConfigError([Problem("", f"the file is larger than {MAX_YAML_BYTES} bytes; a configuration is a few kilobytes")])
    try:
        data = yaml.load(text, Loader=_Loader)  # a SafeLoader subclass
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date, say
        raise ConfigError([Problem("", f"this is not valid YAML: {str(error).splitlines()[0]}")]) from None
    if not isinstance(data, dict):
        raise ConfigError([Problem("", "the file must hold settings as 'section: {name: value}'")])
    return data


def config_from_file(path: Path) -> RunConfig:
    """Read a YAML file. Raises :class:`ConfigError` also when the file cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot read {path}: {error}")]) from None
    return config_from_yaml(text)


def config_to_yaml(config: RunConfig) -> str:
    """The configuration as YAML text, every setting written out, in the order of the definition."""
    data = config.model_dump(mode="json")
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    # PyYAML writes some rare line separators as they are and reads them back as newlines: escape everything then.
    return text if yaml.load(text, Loader=_Loader) == data else yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


# --- dotted settings -------------------------------------------------------------------------------------------------------


def walk_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every setting of the run configuration as (dotted name, pydantic field), in the order of the form."""
    yield "name", RunConfig.model_fields["name"]
    for section in SECTIONS:
        model = RunConfig.model_fields[section].annotation
        assert isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items():
            yield f"{section}.{name}", field


def apply_overrides(data: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Set dotted names to values given as text, e.g. ``{"ppo.kl_coef": "0.2"}``; returns a new mapping.

    Text settings take the value as it stands, but ``null`` clears one that may be empty; all others are read as YAML. A name such as
    ``reward.components.0.weight`` reaches into lists.
    Raises :class:`ConfigError` for a name that leads nowhere.
    """
    text_settings = {name for name, field in walk_fields() if field.annotation is str}
    empty = {name for name, field in walk_fields() if may_be_empty(field)}
    result = _deep_copy(data)
    for name, raw in overrides.items():
        value = (_text(raw) if name in empty else raw) if name in text_settings else _plain_value(name, raw)
        _set(result, name, name.split("."), value)
    return result


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


def _set(target: Any, name: str, path: list[str], value: Any) -> None:
    head, rest = path[0], path[1:]
    if isinstance(target, list):
        if not head.isdigit() or int(head) >= len(target):
            raise ConfigError([Problem(name, f"there is no entry {head}; the list has {len(target)}")])
        key: Any = int(head)
    elif isinstance(target, dict):
        key = head
        if rest:
            target.setdefault(head, {})
    else:
        raise ConfigError([Problem(name, "there is no such setting")])
    if rest:
        _set(target[key], name, rest, value)
    else:
        target[key] = value
