"""The launch script: one command with every setting, in bash."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

from rlhf_studio.handover.translation import InFolder, Translation

HEAD = """#!/usr/bin/env bash
# {engine} with the settings of a run of RLHF Studio; README.md beside this file says what is different.
# On several machines, first: ray start --head on one, ray start --address=HEAD:6379 on the others; then this script on the first.
set -euo pipefail
HERE="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"

"""
COMMANDS = {"verl": "python3 -m verl.trainer.main_ppo", "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray"}
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off"}


def script(engine: str, to: Translation) -> str:
    """The whole file. Further arguments of the script come last, so they win."""
    lines = _hydra(to) if engine == "verl" else _options(to)
    return HEAD.format(engine=engine) + " \\\n    ".join([COMMANDS[engine], *lines, '"$@"']) + "\n"


def _hydra(to: Translation) -> Iterator[str]:
    for name, value in to.options.items():
        if isinstance(value, InFolder):
            yield f"\"{name}='$HERE/{value}'\""
        else:
            yield shlex.quote(f"{name}={hydra_value(value)}")


def hydra_value(value: Any) -> str:
    """A value as Hydra's overrides are written; texts that could be read as something else stand in quotes."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return repr(value)


def _options(to: Translation) -> Iterator[str]:
    """Options of argparse. One that is False is left out: OpenRLHF's flags take no value."""
    for name, value in to.options.items():
        if isinstance(value, InFolder):
            yield f'--{name} "$HERE/{value}"'
        elif value is True:
            yield f"--{name}"
        elif value is not False:
            values = value if isinstance(value, list) else [value]
            yield " ".join([f"--{name}", *(shlex.quote(plain_number(entry)) for entry in values)])


def plain_number(value: Any) -> str:
    """A number without an exponent where it is negative: argparse takes -1e6 for an option."""
    return f"{value:f}" if isinstance(value, float) and value < 0 else str(value)
