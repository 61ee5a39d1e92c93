"""Commands that prepare a run: ``convert`` makes a model of one in another form, ``from-trl`` settings of what was written for TRL."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rlhf_studio.cli.options import Subcommands
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import _, told
from rlhf_studio.trl.table import answer
from rlhf_studio.units import format_bytes
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the commands of this module to the parser of all commands."""
    convert = commands.add_parser(
        "convert", help=_("make a model that can be trained of GGUF, pickled weights or an adapter"), allow_abbrev=False
    )
    convert.add_argument("model", metavar="MODEL", help=_("a GGUF file, a folder or a hub id with GGUF or pickled weights, or an adapter"))
    convert.add_argument("out", type=Path, metavar="OUT", help=_("the folder to write; missing or empty"))
    convert.add_argument("--revision", default="main", help=_("branch, tag or commit of a hub model"))
    convert.add_argument("--file", default="", metavar="NAME", help=_("which GGUF file, where there are several"))
    convert.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16"], help=_("of the weights from a GGUF file or a merge")
    )
    convert.set_defaults(run=_convert)
    what = _("write settings for TRL's PPO as settings of this program; a program for it runs as it is (docs/from-trl.md)")
    from_trl = commands.add_parser("from-trl", help=what, allow_abbrev=False)
    from_trl.add_argument("file", metavar="FILE", help=_("YAML, JSON, or a text with the arguments of a command; - reads standard input"))
    from_trl.add_argument("--trl", choices=["0.11", "1.12"], default="", help=_("the TRL it was written for, where that cannot be told"))
    from_trl.add_argument("--processes", type=int, default=0, metavar="N", help=_("processes (GPUs) that it was started with"))
    from_trl.set_defaults(run=_from_trl)


def names_of_trl(unknown: str) -> list[Problem]:
    """One problem for each option of TRL that argparse did not recognise, with our name for it; empty when there is none."""
    words = [word.replace("-", "_") for word in re.findall(r"--(?:no[-_])?([a-z][\w-]*)", unknown)]
    return [Problem(f"--{word}", answer(word)) for word in words if answer(word)]


def _convert(options: argparse.Namespace) -> int:
    from rlhf_studio.inputs.models.conversion import convert
    from rlhf_studio.inputs.models.files import ModelError

    def report(text: str) -> None:
        say(told(text), sys.stderr)

    try:
        converted = convert(options.model, options.out, options.revision, report=report, file=options.file, dtype=options.dtype)
    except ModelError as error:
        raise ConfigError([Problem("", str(error))]) from error
    for note in converted.notes:
        say(told(note))
    say(
        _("wrote {folder}: {tensors} tensors, {bytes}; use this folder as the model").format(
            folder=converted.folder, tensors=converted.tensors, bytes=format_bytes(converted.bytes)
        )
    )
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
