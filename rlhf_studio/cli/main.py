"""All commands. Every setting of the configuration is an option by its dotted name: ``--ppo.kl_coef 0.1``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

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
from rlhf_studio.language import ENGLISH, LANGUAGES, N_, _, of_environment, speaking, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.trl.table import name_trl_in_errors
from rlhf_studio.visible import HelpFormatter, say

LANG_OPTION = "--lang"
TAKE_SETTINGS = ("train", "try", "plan", "resume", "fork", "sweep", "score", "open-log", "evaluate", "measure-reward", "road", "hand-over")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, or without one open the app; returns the exit code (:mod:`rlhf_studio.exit_codes`)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    name_trl_in_errors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names out of files may hold what the terminal's coding has no place for
    name = _spoken(arguments)
    if name not in LANGUAGES:
        say(f"rlhf-studio: {LANG_OPTION}: should be one of {', '.join(LANGUAGES)}, not {name}", sys.stderr)
        return BAD_INPUT
    vars(argparse)["_"] = _  # argparse looks its sentences up as programs for gettext do
    with speaking(name):
        return _run(arguments)


def _spoken(arguments: list[str]) -> str:
    """The language of the answers: what ``--lang`` says, which is taken out of the arguments, else what the environment says."""
    for index, argument in enumerate(arguments):
        if argument == LANG_OPTION or argument.startswith(f"{LANG_OPTION}="):
            given = arguments[index : index + (1 if "=" in argument else 2)]
            del arguments[index : index + len(given)]
            return given[-1].removeprefix(f"{LANG_OPTION}=")
    return of_environment(os.environ)


def _run(arguments: list[str]) -> int:
    try:
        if not arguments:
            return _app(["--browser"])
        if arguments[:1] == ["app"]:
            return _app(arguments[1:])
        if arguments[:1] == ["job-server"]:
            with speaking(ENGLISH):  # whoever reads its answers is in another process
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
            say(f"rlhf-studio: {told(problem)}", sys.stderr)
        return BAD_INPUT
    except StoreError as error:  # a folder that is not a run, or that cannot be read or written
        say(f"rlhf-studio: {told(error)}", sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        package = (error.name or __package__).partition(".")[0]
        if package == "rlhf_studio":
            raise
        say(f"rlhf-studio: {told(not_installed(package))}", sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # the program that reads our output, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would complain at its end, when it flushes
        return DONE


ARGPARSE = (
    N_("usage: "),
    N_("positional arguments"),
    N_("options"),
    N_("show this help message and exit"),
    N_("unrecognized arguments: %s"),
    N_("the following arguments are required: %s"),
    N_("one of the arguments %s is required"),
    N_("not allowed with argument %s"),
    N_("ignored explicit argument %r"),
    N_("invalid choice: %(value)r (choose from %(choices)s)"),
    N_("unknown parser %(parser_name)r (choices: %(choices)s)"),
    N_("invalid %(type)s value: %(value)r"),
    N_("argument %(argument_name)s: %(message)s"),
    N_("expected one argument"),
    N_("expected at most one argument"),
    N_("expected at least one argument"),
)
"""What argparse itself says; it is asked for the translation, see :func:`main`."""


class _Parser(argparse.ArgumentParser):
    """Bad arguments end like every other bad input: one line, exit code 2."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter} | given)

    def error(self, message: str) -> NoReturn:
        before, known, unknown = message.partition(_("unrecognized arguments: %s").removesuffix("%s"))
        problem = Problem("", _("{message}; see '{prog} --help'").format(message=message, prog=self.prog))
        raise ConfigError((prepare.names_of_trl(unknown) if known else []) or behind_config(unknown.split()) or [problem])


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    description = _("Learn, run and see PPO on language models. Without a command the app opens in the browser.")
    parser = _Parser(prog="rlhf-studio", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__, help=_("show the version and exit"))
    parser.add_argument(
        LANG_OPTION, choices=list(LANGUAGES), help=_("the language of the answers (default: RLHF_STUDIO_LANG, else the system's)")
    )
    commands: Subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    # These two read their own arguments; they stand here for the help text.
    commands.add_parser("app", help=_("open the app in the browser"))
    commands.add_parser("world", help=_("rebuild or check the bundled review world"))
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
