"""Commands that prepare a run: ``convert`` makes safetensors of pickled weights, ``from-trl`` settings of what was written for TRL."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rlhf_studio.cli.options import Subcommands
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.trl.table import answer
from rlhf_studio.units import format_bytes
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the commands of this module to the parser of all commands."""
    convert = commands.add_parser("convert", help="give a model that has only pickled weights safetensors weights", allow_abbrev=False)
    convert.add_argument("model", metavar="MODEL", help="a folder or Hugging Face hub id: a language model, reward model or LoRA adapter")
    convert.add_argument("out", type=Path, metavar="OUT", help="the folder to write; missing or empty")
    convert.add_argument("--revision", default="main", help="branch, tag or commit of a hub model")
    convert.set_defaults(run=_convert)
    from_trl = commands.add_parser("from-trl", help="write what you have for TRL's PPO as settings of this program", allow_abbrev=False)
    from_trl.add_argument("file", metavar="FILE", help="YAML, JSON, Python, a notebook, or a text with the command; - reads standard input")
    from_trl.add_argument("--trl", choices=["0.11", "1.12"], default="", help="the TRL it was written for, where that cannot be told")
    from_trl.add_argument("--processes", type=int, default=0, metavar="N", help="processes (GPUs) that it was started with")
    from_trl.set_defaults(run=_from_trl)


def names_of_trl(message: str) -> list[Problem]:
    """One problem for each option of TRL that argparse did not recognise, with our name for it; empty when there is none."""
    if "unrecognized arguments" not in message:
        return []
    words = [word.replace("-", "_") for word in re.findall(r"--(?:no[-_])?([a-z][\w-]*)", message)]
    return [Problem(f"--{word}", answer(word)) for word in words if answer(word)]


def _convert(options: argparse.Namespace) -> int:
    from rlhf_studio.inputs.models.files import ModelError
    from rlhf_studio.inputs.models.pickles import convert

    def report(text: str) -> None:
        say(text, sys.stderr)

    try:
        converted = convert(options.model, options.out, options.revision, report=report)
    except ModelError as error:
        raise ConfigError([Problem("", str(error))]) from error
    say(f"wrote {converted.folder}: {converted.tensors} tensors, {format_bytes(converted.bytes)}; use this folder as the model")
    return DONE


def _from_trl(options: argparse.Namespace) -> int:
    from rlhf_studio.trl.convert import convert

    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"cannot read {options.file}: {getattr(error, 'strerror', None) or 'it is not text'}")]) from error
    if options.processes < 0:
        raise ConfigError([Problem("--processes", f"should be at least 1, not {options.processes}")])
    converted = convert(text, options.file, options.trl, options.processes)
    say(converted.yaml, end="")
    for line in converted.lines:
        say(line, sys.stderr)
    return DONE
