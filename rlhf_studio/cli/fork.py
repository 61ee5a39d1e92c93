"""The commands ``fork`` and ``sweep``: new runs from one that there is, and several runs over one or two settings."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.cli.options import Subcommands, add_folder_command, configuration_of, default_workspace, permissions_of, print_notes
from rlhf_studio.config import Permissions, StageConfig, add_permission_flags, names_in
from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, parse_config, parse_value
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED
from rlhf_studio.inputs.relative_paths import LOADED, as_typed_here, run_in_full, with_runs_in_full
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import best_step, newest_step, trained_policy
from rlhf_studio.runs.paths import RUNS
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode
from rlhf_studio.visible import say, visible

NEWEST, BEST, POLL_SECONDS = "newest", "best", 0.5


def add_commands(commands: Subcommands) -> None:
    """Add both commands."""
    fork = add_folder_command(commands, "fork", _("a new run that goes on from a checkpoint of this one, with other settings"), _fork)
    fork.add_argument(
        "--at",
        metavar="STEP",
        help=_(
            "the checkpoint to go on from, or '{newest}', 'latest' or '{best}'; without it the new run begins at"
            " the beginning with this run's settings"
        ).format(newest=NEWEST, best=BEST),
    )
    fork.add_argument(
        "--from-policy",
        action="store_true",
        help=_("begin anew, at step 1, but with the policy that this run has trained (by --at, or its newest checkpoint)"),
    )
    fork.add_argument("--run-dir", type=Path, metavar="NEW", help=_("where to keep the new run (default: a new folder beside this one)"))
    add_permission_flags(fork)
    sweep = commands.add_parser("sweep", help=_("queue a run for each combination of values of one or two settings"), allow_abbrev=False)
    sweep.add_argument("--recipe", help=_("start from a ready-made configuration; see 'recipes list'"))
    sweep.add_argument("--config", type=Path, metavar="FILE", help=_("start from a YAML file"))
    sweep.add_argument(
        "--vary", action="append", default=[], metavar="SETTING=VALUES", help=_("values with commas between, e.g. ppo.kl_coef=0,0.05,0.1")
    )
    sweep.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help=_("where the app finds the runs"))
    sweep.add_argument(
        "--run", action="store_true", dest="run_now", help=_("run them here, one after the other, instead of waiting for the app")
    )
    add_permission_flags(sweep)
    sweep.set_defaults(run=_sweep)


# --- fork ----------------------------------------------------------------------------------------------------------------------


def _fork(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import run_folder
    from rlhf_studio.runs.create import remove_unstarted

    permissions = permissions_of(options)
    step = _step(options)
    if options.from_policy:
        given = {"model.policy": str(trained_policy(options.folder, step)), "model.revision": "main"}
        options.overrides, step = {**given, **options.overrides}, None
    run_dir = _prepare(options, step, permissions)
    mode: StartMode = "train" if step is None else "resume"
    say(_("run folder: {run_dir}").format(run_dir=run_dir))
    code = run_folder(run_dir, mode, permissions)
    if code == BAD_INPUT and remove_unstarted(run_dir):
        say(_("nothing was trained: {run_dir} was removed again").format(run_dir=run_dir))
    return code


def _step(options: argparse.Namespace) -> int | None:
    if options.at is None:
        return None
    if options.at in (NEWEST, "latest"):
        return newest_step(RunReader(options.folder))
    if options.at == BEST:
        return best_step(RunReader(options.folder))
    if not options.at.isascii() or not options.at.isdecimal() or len(options.at) > 9:
        raise ConfigError([Problem("--at", f"should be a checkpoint's step, '{NEWEST}', 'latest' or '{BEST}', not {options.at[:40]!r}")])
    return int(options.at)


def _prepare(options: argparse.Namespace, step: int | None, permissions: Permissions) -> Path:
    """Check the settings and make the new run's folder; nothing is left behind when something is wrong."""
    from rlhf_studio.runs.lab import fork
    from rlhf_studio.runs.paths import new_run_id

    parent = Path(options.folder).resolve()
    fork.refuse_only_read(RunReader(parent))
    overrides = dict(options.overrides)
    name = overrides.pop("name", "")
    if len(name) > fork.MAX_NAME:
        raise ConfigError([Problem("name", f"a run's name has at most {fork.MAX_NAME} characters, not {len(name)}")])
    before, folder = fork.settings_at(parent, step), RunReader(parent).working_folder()  # where the new run will work, too
    typed = parse_config(apply_overrides(before.model_dump(mode="json"), overrides))
    config = as_typed_here(with_runs_in_full(typed, default_workspace() / RUNS, before), before, folder)
    fork.check_settings(parent, step, config)
    run_dir = options.run_dir or parent.parent / new_run_id()
    memory = _checked(config, run_dir.parent, permissions, folder)
    try:
        fork.fork_run(parent, step, run_dir, config, name=name, state="loading", memory=memory)
    except StoreError as error:
        if error.reason in ("exists", "in-the-way"):
            raise ConfigError([Problem("--run-dir", str(error))]) from error
        raise
    return run_dir


def _checked(config: StageConfig, target: Path, permissions: Permissions, folder: Path | None = None) -> tuple[int, int] | None:
    """The memory in bytes, from the least to the most, that a run needs. ``folder`` is where the run works; None means this process's
    folder.

    Raises ConfigError for what keeps the run from starting.
    """
    from rlhf_studio.inputs.preflight import inspect_run

    preflight = inspect_run(config, target, folder=folder, permissions=permissions)
    if preflight.problems:
        raise ConfigError(preflight.problems)
    print_notes(config, preflight)
    return preflight.expected_peak


# --- sweep ---------------------------------------------------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.lab.sweeps import sweep_configs
    from rlhf_studio.runs.workspace import Workspace

    permissions = permissions_of(options)
    config = configuration_of(options)
    axes = _with_runs_in_full(config, _axes(options.vary), options.workspace / RUNS)
    workspace = Workspace(options.workspace)
    memory = [(own, _checked(own, options.workspace, permissions)) for _, own in sweep_configs(config, axes)]
    estimate = functools.partial(_known, memory)
    made = workspace.submit_sweep(config, axes, config.name or config.recipe, estimate=estimate)
    for run_id in made:
        say(f"{run_id}  {visible(workspace.status(run_id).name, lines=False)}")
    if options.run_now:
        return _run_all(workspace, made, permissions)
    say(
        _("{made} runs are queued in {workspace}; the app runs them one after the other: python -m rlhf_studio app").format(
            made=len(made), workspace=options.workspace
        )
    )
    return DONE


def _known(memory: Sequence[tuple[StageConfig, tuple[int, int] | None]], config: StageConfig) -> tuple[int, int] | None:
    return next((peak for own, peak in memory if own == config), None)


def _axes(given: Sequence[str]) -> dict[str, list[Any]]:
    """The settings and values of ``--vary``. Raises ConfigError."""
    axes: dict[str, list[Any]] = {}
    for text in given:
        setting, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigError([Problem("--vary", f"write SETTING=VALUE,VALUE, for example ppo.kl_coef=0,0.1, not {text[:60]!r}")])
        if setting in axes:
            raise ConfigError([Problem("--vary", f"{setting} stands here twice; put all its values behind one --vary")])
        axes[setting] = [parse_value(setting, value) for value in values.split(",")]
    return axes


def _with_runs_in_full(config: StageConfig, axes: dict[str, list[Any]], runs: Path) -> dict[str, list[Any]]:
    """The axes with the folder of each run that a value names by its id alone."""
    marked = {section: names_in(type(getattr(config, section))) for section in config.sections}
    names = {f"{section}.{setting}" for section, own in marked.items() for setting, kind in own.items() if kind in LOADED}
    return {
        setting: [run_in_full(value, runs) if isinstance(value, str) else value for value in values] if setting in names else values
        for setting, values in axes.items()
    }


def _run_all(workspace: Any, made: Sequence[str], permissions: Permissions) -> int:
    """Run what is queued, one engine at a time, until these runs have ended. Ctrl+C leaves the run that trains alone."""
    from rlhf_studio.runs.launch import start_engine
    from rlhf_studio.runs.queue import Dispatcher

    dispatcher = Dispatcher(workspace, functools.partial(start_engine, permissions=permissions), POLL_SECONDS)
    ended: list[str] = []
    try:
        for run in dispatcher.run_until_ended(made):
            ended.append(run.state)
            say(
                _("{run_id}  {state} at step {step} of {total_steps}{value}").format(
                    run_id=run.run_id,
                    state=run.state,
                    step=run.step,
                    total_steps=run.total_steps,
                    value=": " + run.cause if run.cause else "",
                )
            )
    except KeyboardInterrupt:
        say(
            _("{value} runs have not ended; the one that trains goes on, and the app runs the others").format(value=len(made) - len(ended)),
            sys.stderr,
        )
        return FAILED
    return DONE if set(ended) == {"finished"} else FAILED
