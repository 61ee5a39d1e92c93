"""The command line. Every setting of the configuration is an option by its dotted name: ``--ppo.kl_coef 0.1``.

Exit codes: 0 the work is done, 1 the run failed (the cause and the run folder are printed), 2 bad input (one line per
setting), 3 the run stopped on request and can be resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rlhf_studio import __version__, cli_prepare
from rlhf_studio.config import Permissions, RunConfig, add_permission_flags, permissions_from_environment, permissions_from_flags
from rlhf_studio.config_io import ConfigError, Problem, apply_overrides, config_from_file, config_to_yaml, parse_config, walk_fields
from rlhf_studio.runs.errors import StoreError

BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments[:1] == ["app"]:
            return _app(arguments[1:])
        if arguments[:1] == ["world"]:
            return _world(arguments[1:])
        rest, overrides = split_overrides(arguments)
        options = build_parser().parse_args(rest)
        options.overrides = overrides
        if options.overrides and options.command not in ("train", "resume", "score"):
            raise ConfigError([Problem("", f"{options.command} takes no settings such as --{next(iter(options.overrides))}")])
        code = options.run(options)
        sys.stdout.flush()
        return code
    except ConfigError as error:
        for problem in error.problems:
            print(f"rlhf-studio: {problem}", file=sys.stderr)
        return BAD_INPUT
    except StoreError as error:  # a folder that is not a run, or that cannot be read or written
        print(f"rlhf-studio: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:  # whoever read along, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would complain at its end, when it flushes
        return 0


class _Parser(argparse.ArgumentParser):
    """Bad arguments end like every other bad input: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(cli_prepare.names_of_trl(message) or [Problem("", f"{message}; see '{self.prog} --help'")])


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="rlhf-studio", description="Learn, run and see PPO on language models.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # These two read their own arguments; they stand here for the help text.
    commands.add_parser("app", help="open the app in the browser")
    commands.add_parser("world", help="rebuild or check the bundled review world")
    _add_train(commands)
    resume = _add_folder_command(commands, "resume", "go on with a run from its newest checkpoint, or with other settings", _resume)
    resume.add_argument("--from-start", action="store_true", help="begin again at step 0; recorded steps are replaced one by one")
    add_permission_flags(resume)
    _add_score(commands)
    stop = _add_folder_command(commands, "stop", "ask a running run to write a checkpoint and stop", _stop)
    stop.add_argument("--now", action="store_true", help="end it by force, without a checkpoint: for a run that does not stop")
    _add_runs(commands)
    _add_recipes(commands)
    cli_prepare.add_commands(commands)
    return parser


def _add_train(commands: argparse._SubParsersAction) -> None:
    settings = "\n".join(textwrap.shorten(f"  --{name}  {field.description}", 140, placeholder=" ...") for name, field in walk_fields())
    train = commands.add_parser(
        "train",
        help="train a policy with PPO",
        epilog=f"settings:\n{settings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    train.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="a prepared run folder; nothing else is needed then")
    train.add_argument("--recipe", help="start from a ready-made configuration; see 'recipes list'")
    train.add_argument("--config", type=Path, metavar="FILE", help="start from a YAML file")
    train.add_argument("--run-dir", type=Path, metavar="DIR", help="where to keep the run (default: a new folder in the workspace)")
    add_permission_flags(train)
    train.set_defaults(run=_train)


def _add_score(commands: argparse._SubParsersAction) -> None:
    score = commands.add_parser("score", help="score one text with a configuration's rewards, without a run", allow_abbrev=False)
    score.add_argument("--recipe", help="the rewards of a ready-made configuration")
    score.add_argument("--config", type=Path, metavar="FILE", help="the rewards of a YAML file")
    score.add_argument("--prompt", required=True, metavar="TEXT")
    score.add_argument("--response", required=True, metavar="TEXT")
    score.add_argument("--reference", metavar="TEXT", help="the reference text, for rewards that compare with one")
    score.add_argument("--cut-off", action="store_true", help="the response was cut off before its stop token")
    score.add_argument("--json", action="store_true", help="machine-readable")
    add_permission_flags(score)
    score.set_defaults(run=_score)
    server = commands.add_parser("score-server", allow_abbrev=False)  # without help: the app starts it, people have no use for it
    server.set_defaults(run=_score_server)


def permissions_of(options: argparse.Namespace) -> Permissions:
    """What the flags allow, and what the process that started this one passed on. Raises :class:`ConfigError`."""
    try:
        given = permissions_from_flags(options.allow_custom_rewards, options.reward_url, options.reward_key)
        return permissions_from_environment(os.environ).joined(given)
    except ValueError as error:
        raise ConfigError([Problem("", str(error))]) from error


def _add_folder_command(commands: argparse._SubParsersAction, name: str, help: str, run: object) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help, allow_abbrev=False)
    command.add_argument("folder", type=Path, metavar="DIR", help="the run folder")
    command.set_defaults(run=run)
    return command


def _add_runs(commands: argparse._SubParsersAction) -> None:
    runs = commands.add_parser("runs", help="list runs, or show one", allow_abbrev=False)
    actions = runs.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the runs of a workspace", allow_abbrev=False)
    listing.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR")
    listing.add_argument("--json", action="store_true", help="machine-readable")
    listing.set_defaults(run=_runs_list)
    show = actions.add_parser("show", help="one run: state, progress, last metrics, checkpoints", allow_abbrev=False)
    show.add_argument("folder", type=Path, metavar="DIR", help="the run folder")
    show.add_argument("--json", action="store_true", help="machine-readable")
    show.set_defaults(run=_runs_show)


def _add_recipes(commands: argparse._SubParsersAction) -> None:
    recipes = commands.add_parser("recipes", help="ready-made configurations", allow_abbrev=False)
    actions = recipes.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="names and titles", allow_abbrev=False).set_defaults(run=_recipes_list)
    show = actions.add_parser("show", help="one recipe as YAML", allow_abbrev=False)
    show.add_argument("name")
    show.set_defaults(run=_recipes_show)


def default_workspace() -> Path:
    """Where runs are kept unless told otherwise."""
    return Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace"))


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


# --- commands --------------------------------------------------------------------------------------------------------------


def _app(arguments: list[str]) -> int:
    from rlhf_studio.ui.app import main as run_app

    return run_app(arguments)


def _train(options: argparse.Namespace) -> int:
    if options.folder is not None:
        if options.recipe or options.config or options.run_dir or options.overrides:
            raise ConfigError([Problem("", "a prepared run folder brings its own settings; give the folder alone")])
        return _run_engine(options.folder, resume=False, permissions=permissions_of(options))
    from rlhf_studio.runs.create import remove_unstarted

    permissions = permissions_of(options)
    run_dir = _prepare(options, permissions)
    print(f"run folder: {run_dir}", flush=True)
    code = _run_engine(run_dir, resume=False, permissions=permissions)
    if code == BAD_INPUT and remove_unstarted(run_dir):
        print(f"nothing was trained: {run_dir} was removed again")
    return code


def _prepare(options: argparse.Namespace, permissions: Permissions) -> Path:
    """Check the settings and make the run folder; nothing is left behind when something is wrong."""
    from rlhf_studio.preflight import inspect_run
    from rlhf_studio.runs.create import create_run
    from rlhf_studio.runs.paths import new_run_id

    config = _configuration(options)
    run_dir = options.run_dir or default_workspace() / "runs" / new_run_id()
    report = inspect_run(config, run_dir.parent, permissions=permissions)
    if report.problems:
        raise ConfigError(report.problems)
    try:
        create_run(run_dir, config, name=config.name or config.recipe or "run", state="loading", memory=report.memory)
    except StoreError as error:  # occupied, on a read-only disk, a file in the way
        raise ConfigError([Problem("--run-dir", str(error))]) from error
    for note in report.notes:
        print(f"rlhf-studio: note: {note}", file=sys.stderr)
    return run_dir


def _configuration(options: argparse.Namespace) -> RunConfig:
    from rlhf_studio.recipes import load_recipe

    if options.recipe and options.config:
        raise ConfigError([Problem("", "give --recipe or --config, not both")])
    if options.recipe:
        base = load_recipe(options.recipe).config
    elif options.config:
        return config_from_file(options.config, options.overrides)
    elif options.overrides:
        given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in list(options.overrides.items())[:3])
        message = f"settings change a recipe or a file, so name one too, for example: {options.command} --recipe world {given}"
        raise ConfigError([Problem("", message)])
    else:
        raise ConfigError([Problem("", "give --recipe NAME, --config FILE or a prepared run folder")])
    return parse_config(apply_overrides(base.model_dump(mode="json"), options.overrides))


def _run_engine(run_dir: Path, *, resume: bool, permissions: Permissions, from_start: bool = False) -> int:
    from rlhf_studio.cli_engine import named_for_children, one_engine
    from rlhf_studio.engine.process.screen import output_in_log
    from rlhf_studio.inputs.reward_checks import refuse_without_permission
    from rlhf_studio.runs.checkpoints import where_to_resume
    from rlhf_studio.runs.liveness import START_FD_VARIABLE, announce_start
    from rlhf_studio.runs.processes import COORDINATED, is_follower, run_processes, wants_several
    from rlhf_studio.runs.reader import RunReader

    before_torch()
    config = RunReader(run_dir).config()
    how = {"resume": resume, "from_start": from_start}
    if is_follower(os.environ) or COORDINATED in os.environ:
        return one_engine(run_dir, **how, permissions=permissions, screen=None)
    if START_FD_VARIABLE not in os.environ:  # what the app starts is refused by the engine, which puts it on record
        refuse_without_permission(config.reward.components, permissions)
    announce_start(run_dir)  # loading torch takes seconds: a second engine is refused from here on
    with output_in_log(run_dir) as screen, named_for_children(run_dir):
        if not wants_several(config.engine, os.environ):
            return one_engine(run_dir, **how, permissions=permissions, screen=screen)
        if resume and not from_start:
            where_to_resume(run_dir)  # refused here, with a sentence, rather than by one of several processes
        return run_processes(run_dir, config.engine, permissions, **how, screen=screen)


def before_torch() -> None:
    """What torch and CUDA read from the environment when they load; what is set already stays."""
    # Threads that wait should sleep: on a laptop the browser and the app need the same cores. But not at once: between two operations
    # of a decoding step pass some microseconds, and waking up takes longer than that.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")  # turns of waiting; with a third of them the gain was half gone
    # GPUs are numbered as nvidia-smi lists them, not the fastest first: cuda:1 is then the one that the form shows.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def _resume(options: argparse.Namespace) -> int:
    from rlhf_studio.cli_engine import change_settings
    from rlhf_studio.runs.checkpoints import where_to_resume

    permissions = permissions_of(options)
    if options.overrides:
        if not options.from_start:
            where_to_resume(options.folder)  # a run that cannot go on keeps its settings
        change_settings(options.folder, options.overrides, permissions, from_start=options.from_start)
    return _run_engine(options.folder, resume=True, permissions=permissions, from_start=options.from_start)


def _score(options: argparse.Namespace) -> int:
    config, permissions = _configuration(options), permissions_of(options)
    before_torch()
    from rlhf_studio.engine.rewards.trial.command import score_text  # torch and transformers load here, after the cheap checks
    from rlhf_studio.engine.rewards.trial.one_text import Text

    text = Text(options.prompt, options.response, options.reference, not options.cut_off)
    return score_text(config, text, permissions, as_json=options.json)


def _score_server(options: argparse.Namespace) -> int:
    before_torch()
    from rlhf_studio.engine.rewards.trial.server import serve

    return serve(permissions_from_environment(os.environ))


def _stop(options: argparse.Namespace) -> int:
    from rlhf_studio.cli_engine import stop

    print(stop(options.folder, now=options.now))
    return 0


def _runs_list(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.show import list_text, list_values

    print(json.dumps(list_values(options.workspace), indent=1) if options.json else list_text(options.workspace))
    return 0


def _runs_show(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.show import show_text, show_values

    values = show_values(options.folder)
    print(json.dumps(values, indent=1) if options.json else show_text(values))
    return 0


def _recipes_list(options: argparse.Namespace) -> int:
    from rlhf_studio.recipes import list_recipes

    for recipe in list_recipes():
        print(f"{recipe.name:16}{recipe.title}: {recipe.summary}" + (f" {recipe.first}" if recipe.first else ""))
    return 0


def _recipes_show(options: argparse.Namespace) -> int:
    from rlhf_studio.recipes import load_recipe

    recipe = load_recipe(options.name)
    print((f"# {recipe.first}\n" if recipe.first else "") + config_to_yaml(recipe.config), end="")
    return 0


def _world(arguments: list[str]) -> int:
    from rlhf_studio.world_build.command import main as run_world

    return run_world(arguments)
