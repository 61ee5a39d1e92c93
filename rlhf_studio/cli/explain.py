"""The command ``explain``: what ``from_pretrained`` makes of a model's files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rlhf_studio.cli.options import Subcommands
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.language import _
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "explain",
        help=_("what from_pretrained makes of a model: its classes, trunk, heads, and the token that a classifier scores"),
        allow_abbrev=False,
    )
    command.add_argument("model", metavar="MODEL", help=_("a folder, bundled/world-policy, or a hub id that is in this machine's cache"))
    command.add_argument("--revision", default="main", help=_("of a hub id (default: main)"))
    command.add_argument("--json", action="store_true", help=_("machine-readable"))
    command.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    before_torch()
    import transformers

    from rlhf_studio.engine.models.explaining import explain, lines_of

    logging = transformers.utils.logging
    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        explained = explain(options.model, options.revision)
    except ModelError as error:
        raise ConfigError([Problem("", str(error))]) from None
    finally:
        logging.set_verbosity(before)
    say(json.dumps(asdict(explained), indent=1, default=str) if options.json else "\n".join(lines_of(explained)))
    return DONE
