"""All commands. Every setting of the configuration is an option by its dotted name: ``--ppo.kl_coef 0.1``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from rlhf_studio import __version__
from rlhf_studio.child_process.loading import libraries_stay
from rlhf_studio.cli import (
    check,
    compare_updates,
    completions,
    doctor,
    ensemble,
    evaluate,
    explain,
    export,
    fork,
    hand_over,
    lessons,
    logs,
    measure_reward,
    plan,
    prepare,
    road,
    score,
    show,
    talk,
    train,
    trial,
)
from rlhf_studio.cli.job_server import job_server
from rlhf_studio.cli.options import Subcommands, behind_config, folder_of_run
from rlhf_studio.config.installing import not_installed
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.trl.table import name_trl_in_errors
from rlhf_studio.visible import say

TAKE_SETTINGS = ("train", "try", "plan", "resume", "fork", "sweep", "score", "open-log", "evaluate", "measure-reward", "road", "hand-over")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or without one open the app; returns the exit code (:mod:`rlhf_studio.exit_codes`)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name_trl_in_errors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names out of files may hold what the terminal's coding has no place for
    try:
        if not arguments:
            return _app(["--browser"])
        if arguments[:1] == ["app"]:
            return _app(arguments[1:])
        if arguments[:1] == ["job-server"]:
            return job_server(arguments[1:])
        if arguments[:1] == ["world"]:
            return _world(arguments[1:])
        rest, overrides = split_overrides(arguments)
        options = build_parser().parse_args(rest)
        options.overrides = overrides
        if options.overrides and options.command not in TAKE_SETTINGS:
            raise ConfigError([Problem("", f"{options.command} takes no settings such as --{next(iter(options.overrides))}")])
        if getattr(options, "folder", None) is not None:
            if options.command == "train" and (wrong := behind_config([str(options.folder)])):
                raise ConfigError(wrong)
            options.folder = folder_of_run(options.folder)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        for problem in error.problems:
            say(f"rlhf-studio: {problem}", sys.stderr)
        return BAD_INPUT
    except StoreError as error:  # a folder that is not a run, or that cannot be read or written
        say(f"rlhf-studio: {error}", sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        package = (error.name or __package__).partition(".")[0]
        if package == "rlhf_studio":
            raise
        say(f"rlhf-studio: {not_installed(package)}", sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the program that reads our output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would complain at its end, when it flushes
        return DONE


class _Parser(argparse.ArgumentParser):
    """Bad arguments end like every other bad input: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        raise ConfigError(
            prepare.names_of_trl(message) or behind_config(unknown.split()) or [Problem("", f"{message}; see '{self.prog} --help'")]
        )


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    description = "Learn, run and see PPO on language models. Without a command the app opens in the browser."
    parser = _Parser(prog="rlhf-studio", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands: Subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    # These two read their own arguments; they stand here for the help text.
    commands.add_parser("app", help="open the app in the browser")
    commands.add_parser("world", help="rebuild or check the bundled review world")
    train.add_train(commands)
    plan.add_commands(commands)
    trial.add_commands(commands)
    train.add_resume(commands)
    fork.add_commands(commands)
    score.add_commands(commands)
    measure_reward.add_commands(commands)
    talk.add_commands(commands)
    lessons.add_commands(commands)
    evaluate.add_commands(commands)
    completions.add_commands(commands)
    compare_updates.add_commands(commands)
    ensemble.add_commands(commands)
    explain.add_commands(commands)
    train.add_stop(commands)
    show.add_commands(commands)
    doctor.add_commands(commands)
    check.add_commands(commands)
    export.add_commands(commands)
    logs.add_commands(commands)
    prepare.add_commands(commands)
    road.add_commands(commands)
    hand_over.add_commands(commands)
    return parser


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take ``--ppo.steps 5`` and ``--lora.enabled=true`` out of the arguments; returns (the rest, settings by dotted name)."""
    rest: list[str] = []
    overrides: dict[str, str] = {}
    items = iter(arguments)
    for item in items:
        name, equals, value = item.removeprefix("--").partition("=")
        if not item.startswith("--") or not (name == "name" or "." in name):
            rest.append(item)
            continue
        given = value if equals else next(items, None)
        if given is None:
            raise ConfigError([Problem(name, "needs a value")])
        overrides[name] = given
    return rest, overrides


def _app(arguments: list[str]) -> int:
    with libraries_stay():
        from rlhf_studio.ui.app import main as run_app

    return run_app(arguments)


def _world(arguments: list[str]) -> int:
    from rlhf_studio.lessons.world_build.command import main as run_world

    return run_world(arguments)
