"""The launch script: one command with every setting, in bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from rlhf_studio.config.io import Problem
from rlhf_studio.handover.translation import InFolder, Translation
from rlhf_studio.language import S_

HEAD = """#!/usr/bin/env bash
# {engine} with the settings of a run of RLHF Studio; README.md beside this file says what is different.
# On several machines, first: ray start --head on one, ray start --address=HEAD:6379 on the others; then this script on the first.
set -euo pipefail
HERE="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"

"""
# In Hydra's quoted texts a backslash means itself but before a quote; ${ begins an interpolation, for which verl 0.9 has no escape that
# lasts: it resolves its settings, and reads the results once more.
IN_HYDRA = r"""if [[ "$HERE" == *'${'* ]]; then
    echo "verl reads \${ in the name of a folder as an interpolation; rename the folder: $HERE" >&2
    exit 2
fi
IN_HYDRA="$(printf '%s' "$HERE" | sed -E 's/(\\*)"/\1\1\\"/g')"

"""
COMMANDS = {"verl": "python3 -m verl.trainer.main_ppo", "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray"}
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off"}


def script(engine: str, to: Translation) -> str:
    """The whole file. Further arguments of the script come last, so they win."""
    lines = _hydra(to) if engine == "verl" else _options(to)
    head = HEAD.format(engine=engine) + (IN_HYDRA if engine == "verl" else "")
    return head + " \\\n    ".join([COMMANDS[engine], *lines, '"$@"']) + "\n"


def _hydra(to: Translation) -> Iterator[str]:
    for name, value in to.options.items():
        if isinstance(value, InFolder):
            yield f'"{name}=\\"$IN_HYDRA/{value}\\""'
        else:
            yield shlex.quote(f"{name}={hydra_value(value)}")


def hydra_value(value: Any) -> str:
    """A value as Hydra's overrides are written; texts that could be read as something else stand in quotes.

    A text must have no ``${``, and not be ``???``: see :func:`unwritable`.
    """
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else _quoted(value)
    return repr(value)


def _quoted(text: str) -> str:
    """As Hydra's grammar has it: backslashes are doubled before a quote alone (hydra.cc/docs/advanced/override_grammar/basic)."""
    before_quotes = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return '"' + re.sub(r"\\+\Z", lambda end: end[0] * 2, before_quotes) + '"'


def unwritable(engine: str, to: Translation) -> Iterator[Problem]:
    """The texts that verl would take for something else, however they are written. argparse takes all."""
    for option, value in to.options.items() if engine == "verl" else ():
        interpolation = "${" in hydra_value(value)
        if interpolation or value == "???":
            what = S_("an interpolation, which begins with ${") if interpolation else S_("a value that is not set")
            yield Problem(option, f"verl would read {value!r} as {what}; give it another name or path")


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
