"""The options of TRL's two configurations as this program's settings, by the converter that reads files of them too."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import parse_ppo
from rlhf_studio.language import S_
from rlhf_studio.runs.create import this_program
from rlhf_studio.trl.arguments import Arguments
from rlhf_studio.trl.draft import Draft
from rlhf_studio.trl.from_classic import convert_classic
from rlhf_studio.trl.from_later import convert_experimental
from rlhf_studio.trl.program.config import ClassicPPOConfig, LaterPPOConfig, program_name
from rlhf_studio.trl.table import known_names, otherwise

LABELS = {"model_name", "query_dataset", "reward_model", "sft_model_path", "reward_model_path", "dataset_name"}
"""Options that only say what a program loads; it has loaded that when the trainer is built."""
FILLED_IN = {
    "world_size",
    "num_total_batches",
    "micro_batch_size",
    "local_batch_size",
    "local_mini_batch_size",
    "batch_size",
    "mini_batch_size",
}
MEMORY = "in memory"

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class ProgramSettings:
    """A program's settings, and what TRL computes otherwise with these options, one line each."""

    config: RunConfig
    differs: list[str]


def classic_settings(options: ClassicPPOConfig, of_models: Sections, steps: int) -> ProgramSettings:
    """Settings of a classic program. ``of_models``: sections that say which models there are. Raises :class:`ConfigError`."""
    values = {entry.name: getattr(options, entry.name) for entry in fields(options)}
    # TRL scores at temperature 1 whatever generate was told, and a response ends where the program ends it.
    changes: Sections = {"generation": {"temperature": 1.0, "stop_token": "none"}, "ppo": {"steps": max(steps, 1)}}
    changes["engine"] = {"checkpoint_every": 0}  # a program saves when it wants to
    return _settings("0.11", values, convert_classic, [of_models, changes, _of_program(options.exp_name)])


def later_settings(options: LaterPPOConfig, of_models: Sections, steps: int) -> ProgramSettings:
    """Settings of a later program. Arguments and errors as in :func:`classic_settings`."""
    names = {entry.name for entry in fields(options)} - FILLED_IN
    values = {name: _plain(getattr(options, name)) for name in names} | {"bf16": options.bf16_given}
    changes: Sections = {"ppo": {"steps": max(steps, 1)}}
    if options.bf16_given is None and not options.fp16:
        changes["model"] = {"dtype": "auto"}
    return _settings("1.12", values, convert_experimental, [changes, of_models, _of_program(options.run_name or "")])


def _settings(release: str, values: dict[str, Any], convert: Callable[[Draft], None], changes: list[Sections]) -> ProgramSettings:
    wanted = {name: value for name, value in values.items() if name in known_names() - LABELS and value is not None}
    draft = Draft(Arguments(wanted), release, 1)
    convert(draft)
    sections: dict[str, Any] = draft.nested(with_empty=False)
    for change in changes:
        for section, of_section in change.items():
            sections[section] = {**sections.get(section, {}), **of_section} if isinstance(of_section, dict) else of_section
    points = len(otherwise("classic" if release == "0.11" else "later"))
    return ProgramSettings(
        parse_ppo(sections), [S_(f"What is computed otherwise than in TRL {release}, {points} points: docs/from-trl.md"), *draft.differs]
    )


def _of_program(name: str) -> dict[str, Any]:
    """What only the program knows: its prompts. Their name is no file, so that no other run takes them for its own."""
    return {
        "name": name or program_name(),
        "data": {"prompts": f"the prompts of {this_program()}", "eval": "", "eval_share": 0.0},
        "engine": {"watch_prompts": 0, "probe_prompts": 0},
    }


def scores_of_program() -> dict[str, Any]:
    """The rewards of a program that computes its scores by itself."""
    program = this_program()
    return {"kind": "python", "name": f"scores of {program}", "file": f"the scores of {program}"}


def _plain(value: Any) -> Any:
    """transformers keeps some options as enumerations."""
    return value.value if isinstance(value, enum.Enum) else value


def name_of(model: Any) -> str:
    """The folder or hub id that a model was loaded from; "in memory" where it was made."""
    return str(getattr(model, "name_or_path", "") or MEMORY)
