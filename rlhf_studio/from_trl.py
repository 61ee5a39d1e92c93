"""From TRL's PPO options to the settings here: the table in from_trl.yaml as records, and docs/from-trl.md made from it.

``python -m rlhf_studio.from_trl > docs/from-trl.md`` writes the page; a test compares, and checks the table against the installed TRL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from rlhf_studio.config import Component
from rlhf_studio.config_io import walk_fields

TABLE = Path(__file__).with_name("from_trl.yaml")
COMPONENT = "reward.components.0."


@dataclass(frozen=True)
class Option:
    """One option of TRL.

    Attributes:
        name: as TRL spells it.
        default: TRL's default, None where TRL has none.
        ours: dotted names of our settings; empty when there is no counterpart, and then ``note`` says why.
        note: one sentence on how the value carries over.
    """

    name: str
    default: Any
    ours: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Group:
    """Options of TRL that one sentence answers."""

    sentence: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Something that is done on purpose otherwise than in TRL 1.12; ``test`` puts TRL's way in by hand."""

    name: str
    theirs: str
    ours: str
    why: str
    test: str


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(TABLE.read_text(encoding="utf-8"))


def options(section: str) -> list[Option]:
    """The rows of ``classic`` (TRL 0.11), ``experimental`` (TRL 1.12), ``arguments`` or ``constructor``."""
    return [Option(name, default, tuple(ours.split()), note) for name, default, ours, note in _table()[section]]


def groups() -> list[Group]:
    """The inherited options of TRL 1.12 that are answered together."""
    return [Group(sentence, tuple(names)) for sentence, names in _table()["groups"]]


def differences() -> list[Difference]:
    """What is computed otherwise than in TRL 1.12, and why."""
    return [Difference(*row) for row in _table()["differences"]]


def setting_of(name: str) -> FieldInfo:
    """The definition of one of our settings. Raises KeyError when there is no such setting."""
    if name.startswith(COMPONENT):
        fields = {key: field for kind in Component.__subclasses__() for key, field in kind.model_fields.items()}
        return fields[name.removeprefix(COMPONENT)]
    return dict(walk_fields())[name]


# --- the page ----------------------------------------------------------------------------------------------------------------


def document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Coming from TRL",
        "",
        "TRL's PPO left the library with release 1.13. This page says where each of its options lives here, for both of its last",
        "forms: the step API of TRL 0.11 and `trl.experimental.ppo` of TRL 1.12. A setting `a.b` is `--a.b VALUE` on the command line,",
        "`a: {b: …}` in the YAML file, and a field of the form; [settings.md](settings.md) describes each. Defaults in brackets are ours.",
        "Made by `python -m rlhf_studio.from_trl > docs/from-trl.md`; tests compare it with the installed TRL.",
        *_options_table("What you passed to PPOTrainer", "constructor", with_default=False),
        *_options_table("TRL 0.11: PPOConfig with your own loop around `step`", "classic"),
        *_options_table("TRL 1.12: trl.experimental.ppo.PPOConfig", "experimental"),
        *_options_table("TRL 1.12: inherited training arguments that matter for PPO", "arguments"),
        *_groups_table(),
        *_differences_table(),
        *_names_table(),
    ]
    return "\n".join(lines) + "\n"


def _options_table(title: str, section: str, *, with_default: bool = True) -> Iterator[str]:
    head = "| TRL | default | here | note |" if with_default else "| TRL | here | note |"
    yield from ("", f"## {title}", "", head, "|---" * (head.count("|") - 1) + "|")
    for option in options(section):
        ours = "<br>".join(f"`{name}` ({_default(name)})" for name in option.ours) or "none"
        default = f"{_value(option.default)} | " if with_default else ""
        yield f"| `{option.name}` | {default}{ours} | {_cell(option.note)} |"


def _groups_table() -> Iterator[str]:
    yield from ("", "## TRL 1.12: all other training arguments", "", "| TRL | here |", "|---|---|")
    for group in groups():
        yield f"| {', '.join(f'`{name}`' for name in group.names)} | {_cell(group.sentence)} |"


def _differences_table() -> Iterator[str]:
    yield from (
        "",
        "## What is computed otherwise than in TRL 1.12",
        "",
        "Run on the same model, data and responses, the first update gives the same rewards, KL, advantages and losses, and with a critic",
        "of its own the same policy and critic weights after four passes, wherever the two agree on what to compute.",
        "`tests/engine/test_trl_parity.py` runs TRL's own trainer for this, and puts each of these differences in by hand to show that",
        "it is the only one.",
        "`python -m benchmarks.trl_parity` trains the bundled world with both; [performance.md](performance.md) has the final gold scores.",
        "",
        "| TRL 1.12 | here | why | test |",
        "|---|---|---|---|",
    )
    for row in differences():
        yield f"| {_cell(row.theirs)} | {_cell(row.ours)} | {_cell(row.why)} | `{row.test}` |"


def _names_table() -> Iterator[str]:
    yield from (
        "",
        "## Names elsewhere",
        "",
        "The same idea in other tools, as a help for finding it. Names only: values and defaults do not carry over by themselves.",
        "",
        "| here | OpenRLHF | verl | LLaMA-Factory |",
        "|---|---|---|---|",
    )
    for ours, *others in _table()["names"]:
        yield f"| `{ours}` | {' | '.join(_cell(other) or '–' for other in others)} |"


def names_elsewhere() -> list[str]:
    """Our settings that the last table names."""
    return [row[0] for row in _table()["names"]]


def _default(name: str) -> str:
    default = setting_of(name).default
    return "empty" if default == "" else _cell(f"{default}")


def _value(value: Any) -> str:
    return "none" if value is None else f"`{_cell(str(value).lower() if isinstance(value, bool) else str(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(document(), end="")
