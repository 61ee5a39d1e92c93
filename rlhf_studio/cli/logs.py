"""The command ``open-log``."""

from __future__ import annotations

import argparse
import math
import signal
import threading
from pathlib import Path
from typing import Any

from rlhf_studio.cli.options import Subcommands, default_workspace, say_run
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import _, told
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the command. ``--name`` is taken out of the arguments before, as a setting is."""
    opening = commands.add_parser(
        "open-log",
        help=_("open another program's rollouts (verl, TRL, prime-rl, tinker-cookbook, OpenRLHF) as a read-only run, also while they grow"),
        usage="%(prog)s PATH [--follow [--patience MINUTES]] [--tokenizer MODEL] [--reward-weights 1,1] [--name NAME] [--workspace DIR]",
        allow_abbrev=False,
    )
    opening.add_argument(
        "file", type=Path, metavar="PATH", help=_("a file of JSON Lines or Parquet, or a folder of them; see docs/logs.md")
    )
    opening.add_argument("--follow", action="store_true", help=_("go on reading while the log grows, until Ctrl-C or a stop of the run"))
    opening.add_argument(
        "--patience", type=_minutes, default=math.inf, metavar="MINUTES", help=_("--follow ends when nothing came for so long")
    )
    opening.add_argument(
        "--tokenizer", default="", metavar="MODEL", help=_("cut texts with the tokenizer of this folder or model of the hub")
    )
    weights = _("weights of TRL's reward columns, in their order (TRL's default is 1 for each); their sum is the score then")
    opening.add_argument("--reward-weights", default="", metavar="1,1", help=weights)
    opening.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help=_("where the run is put"))
    opening.set_defaults(run=_open_log)


def _open_log(options: argparse.Namespace) -> int:
    from rlhf_studio.analysis.logs.open_log import open_log

    others = options.overrides.keys() - {"name"}
    if others:
        raise ConfigError([Problem("", f"open-log takes no settings such as --{min(others)}")])
    name = options.overrides.get("name", "")
    if options.follow:
        return _follow(options, name)
    opened = open_log(options.file, options.workspace, name, tokenizer=options.tokenizer, weights=options.reward_weights)
    say_run(_("run"), options.workspace / "runs" / opened.run_id)
    say(_("{steps} steps, {rollouts} responses").format(steps=opened.steps, rollouts=opened.rollouts))
    for note in opened.notes:
        say(told(note))
    return DONE


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not minutes > 0:
        raise argparse.ArgumentTypeError(_("{text!r} is no number of minutes above 0").format(text=text))
    return minutes


def _follow(options: argparse.Namespace, name: str) -> int:
    from rlhf_studio.analysis.logs.follow import follow_log
    from rlhf_studio.inputs.helper import limit_own_memory

    limit_own_memory()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    say(_("Following {file}; Ctrl-C ends it.").format(file=options.file))
    if not options.file.exists():
        say(_("Nothing is there yet; waiting."))

    def begun(run_dir: Path) -> None:
        say_run(_("run"), options.workspace / "runs" / run_dir.name)

    def waiting(why: str) -> None:
        say(_("No rollouts yet. {why}").format(why=told(why)))

    def stored(step: int) -> None:
        say(_("step {step} stored").format(step=step))

    hears: dict[str, Any] = {"weights": options.reward_weights, "begun": begun, "waiting": waiting, "stored": stored}
    opened = follow_log(options.file, options.workspace, name, options.tokenizer, stop=stop, patience=60 * options.patience, **hears)
    say(_("{steps} steps, {rollouts} responses").format(steps=opened.steps, rollouts=opened.rollouts))
    return DONE
