"""The command ``open-log``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, default_workspace
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the command. ``--name`` is taken out of the arguments before, as a setting is."""
    opening = commands.add_parser(
        "open-log",
        help="open another program's log (JSON Lines of responses and token numbers) as a read-only run",
        usage="%(prog)s FILE [--name NAME] [--workspace DIR]",
        allow_abbrev=False,
    )
    opening.add_argument("file", type=Path, metavar="FILE", help="one JSON object in a line; docs/logs.md says what it may hold")
    opening.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help="where the run is put")
    opening.set_defaults(run=_open_log)


def _open_log(options: argparse.Namespace) -> int:
    from rlhf_studio.analysis.logs.open_log import open_log

    others = options.overrides.keys() - {"name"}
    if others:
        raise ConfigError([Problem("", f"open-log takes no settings such as --{min(others)}")])
    opened = open_log(options.file, options.workspace, options.overrides.get("name", ""))
    say(f"run: {options.workspace / 'runs' / opened.run_id}")
    say(f"{opened.steps} steps, {opened.rollouts} responses")
    for note in opened.notes:
        say(note)
    return DONE
