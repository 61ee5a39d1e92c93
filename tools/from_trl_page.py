"""docs/from-trl.md, made from the table of TRL's options and from from_trl_page.yaml.

``python -m tools.from_trl_page > docs/from-trl.md`` writes the page. A test compares the two, and the table with the installed TRL.
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
from rlhf_studio.from_trl.table import SECTIONS, Section, groups, options

COMPONENT = "reward.components.0."


def setting_of(name: str) -> FieldInfo:
    """The definition of one of our settings; of those that several components have, the first one's. Raises KeyError for any other."""
    if name.startswith(COMPONENT):
        fields = {key: field for kind in reversed(Component.__subclasses__()) for key, field in kind.model_fields.items()}
        return fields[name.removeprefix(COMPONENT)]
    return dict(walk_fields())[name]


# --- what is said besides the options ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Something that is done on purpose otherwise than in TRL 1.12; ``test`` puts TRL's way in by hand."""

    name: str
    theirs: str
    ours: str
    why: str
    test: str


@cache
def _page() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def differences() -> list[Difference]:
    """What is computed otherwise than in TRL 1.12, and why."""
    return [Difference(*row) for row in _page()["differences"]]


def differences_classic() -> list[tuple[str, str]]:
    """What TRL 0.11 computes otherwise, and what happens here."""
    return [tuple(row) for row in _page()["differences_classic"]]


def without_critic() -> list[list[str]]:
    """What TRL's RLOO or GRPO calls it, our settings, and how the value carries over."""
    return _page()["without_critic"]


def names_elsewhere() -> list[list[str]]:
    """One of our settings, and what three other tools call it."""
    return _page()["names"]


# --- the page ----------------------------------------------------------------------------------------------------------------


def document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Coming from TRL",
        "",
        "TRL's PPO left the library with release 1.13. This page says where each of its options lives here, for both of its last",
        "forms: the step API of TRL 0.11 and `trl.experimental.ppo` of TRL 1.12. A setting `a.b` is `--a.b VALUE` on the command line,",
        "`a: {b: …}` in the YAML file, and a field of the form; [settings.md](settings.md) describes each. Defaults in brackets are ours.",
        "",
        "`python -m rlhf_studio from-trl FILE > run.yaml` converts what you have: a configuration in YAML or JSON, a Python file or",
        "notebook with `PPOConfig(...)` in it, or a shell script or README with the command of one of TRL's PPO scripts. Nothing in the",
        "file is run. The first lines of `run.yaml` say what needs a decision, what differs and what was left out. Where the file says",
        "nothing about the policy, the prompts or the rewards, `run.yaml` holds an empty value, which no run starts with: fill it in, or",
        "give it on the command line (`--data.prompts FILE`).",
        "",
        "Made by `python -m tools.from_trl_page > docs/from-trl.md`; tests compare it with the installed TRL.",
        *_options_tables(),
        *_differences_table(),
        *_classic_differences_table(),
        *_without_critic_table(),
        *_names_table(),
    ]
    return "\n".join(lines) + "\n"


def _options_tables() -> Iterator[str]:
    for section in SECTIONS:
        yield from _options_table(section)
        if section.name == "arguments":
            yield from _groups_table()


def _options_table(section: Section) -> Iterator[str]:
    head = "| TRL | default | here | note |" if section.has_defaults else "| TRL | here | note |"
    yield from ("", f"## {section.title}", "", head, "|---" * (head.count("|") - 1) + "|")
    for option in options(section.name):
        ours = "<br>".join(f"`{name}` ({_default(name)})" for name in option.ours) or "none"
        default = f"{_value(option.default)} | " if section.has_defaults else ""
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


def _classic_differences_table() -> Iterator[str]:
    yield from ("", "## What is computed otherwise than in TRL 0.11", "", "As the source of release 0.11.4 has it.", "")
    yield from ("| TRL 0.11 | here |", "|---|---|")
    for theirs, ours in differences_classic():
        yield f"| {_cell(theirs)} | {_cell(ours)} |"


def _without_critic_table() -> Iterator[str]:
    yield from (
        "",
        "## RLOO and GRPO of TRL 1.12",
        "",
        "`from-trl` reads PPO's options only; these are for reading along. `tests/engine/test_trl_groups.py` holds advantages, losses and",
        "gradients against TRL's RLOOTrainer and GRPOTrainer. A setting that needs a critic is refused where there is none.",
        "",
        "| TRL | here | note |",
        "|---|---|---|",
    )
    for theirs, ours, note in without_critic():
        names = " / ".join(f"`{name}`" for name in theirs.split(" / "))
        yield f"| {names} | {'<br>'.join(f'`{name}` ({_default(name)})' for name in ours.split()) or 'none'} | {_cell(note)} |"


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
    for ours, *others in names_elsewhere():
        yield f"| `{ours}` | {' | '.join(_cell(other) or '–' for other in others)} |"


def _default(name: str) -> str:
    default = setting_of(name).default
    if isinstance(default, list):
        return ", ".join(f"one {item.kind}" for item in default)
    return "empty" if default == "" else _cell(f"{default}")


def _value(value: Any) -> str:
    return "none" if value is None else f"`{_cell(str(value).lower() if isinstance(value, bool) else str(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(document(), end="")
