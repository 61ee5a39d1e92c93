"""The commands ``train``, ``resume`` and ``stop``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from pathlib import Path

from rlhf_studio.cli.options import (
    Subcommands,
    add_folder_command,
    configuration_of,
    default_workspace,
    permissions_of,
    print_notes,
    say_run,
)
from rlhf_studio.config import Permissions, StageConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem, walk_fields
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import StartMode
from rlhf_studio.visible import RawHelpFormatter, say


def add_train(commands: Subcommands) -> None:
    """Add ``train``; its help lists every setting."""
    settings = "\n".join(
        textwrap.shorten(f"  --{name}  {_(field.description or '')}", 140, placeholder=" ...") for name, field in walk_fields()
    )
    train = commands.add_parser(
        "train",
        help=_("train: a policy with PPO, or a stage before or after it"),
        epilog=_("settings:") + f"\n{settings}",
        formatter_class=RawHelpFormatter,
        allow_abbrev=False,
    )
    help = _("a prepared run folder, or the id of a run in the workspace; nothing else is needed then")
    train.add_argument("folder", nargs="?", type=Path, metavar="RUN", help=help)
    train.add_argument("--recipe", help=_("start from a ready-made configuration; see 'recipes list'"))
    train.add_argument("--config", type=Path, metavar="FILE", help=_("start from a YAML file"))
    train.add_argument("--run-dir", type=Path, metavar="DIR", help=_("where to keep the run (default: a new folder in the workspace)"))
    train.add_argument("--plan", action="store_true", help=_("only say what the run would need and what is risky; see 'plan'"))
    add_permission_flags(train)
    train.set_defaults(run=_train)


def add_resume(commands: Subcommands) -> None:
    """Add ``resume``."""
    resume = add_folder_command(commands, "resume", _("go on with a run from its newest checkpoint, or with other settings"), _resume)
    resume.add_argument("--from-start", action="store_true", help=_("begin again at step 0; recorded steps are replaced one by one"))
    add_permission_flags(resume)


def add_stop(commands: Subcommands) -> None:
    """Add ``stop``."""
    stop = add_folder_command(commands, "stop", _("ask a running run to write a checkpoint and stop"), _stop)
    how = stop.add_mutually_exclusive_group()
    how.add_argument("--discard", action="store_true", help=_("stop without writing a checkpoint; recorded steps and checkpoints stay"))
    how.add_argument("--now", action="store_true", help=_("end it by force, without a checkpoint: for a run that does not stop"))


def _train(options: argparse.Namespace) -> int:
    if options.plan:
        from rlhf_studio.cli.plan import plan

        return plan(options)
    if options.folder is not None:
        if options.recipe or options.config or options.run_dir or options.overrides:
            raise ConfigError([Problem("", "a prepared run folder brings its own settings; give the folder alone")])
        from rlhf_studio.cli.engine import run_folder

        return run_folder(options.folder, "train", permissions_of(options))
    permissions = permissions_of(options)
    config = configuration_of(options)
    return start_run(config, options.run_dir, permissions)


def start_run(config: StageConfig, run_dir: Path | None, permissions: Permissions) -> int:
    """Train a new run in this process, in a new folder of the workspace where ``run_dir`` is None. Returns the exit code."""
    from rlhf_studio.cli.engine import run_folder
    from rlhf_studio.runs.create import remove_unstarted

    run_dir = prepare_run(config, run_dir, permissions)
    say_run(_("run folder"), run_dir)
    code = run_folder(run_dir, "train", permissions)
    if code == BAD_INPUT and remove_unstarted(run_dir):
        say(_("nothing was trained: {run_dir} was removed again").format(run_dir=run_dir))
    return code


def prepare_run(
    config: StageConfig, run_dir: Path | None, permissions: Permissions, name: str = "", files: Mapping[str, bytes] | None = None
) -> Path:
    """Check the settings and make the run folder; nothing is left behind when something is wrong. ``files`` as in ``create_run``."""
    from rlhf_studio.inputs.preflight import inspect_run
    from rlhf_studio.runs.create import create_run
    from rlhf_studio.runs.paths import new_run_id, workspace_of
    from rlhf_studio.runs.workspace import Workspace

    run_dir = run_dir or default_workspace() / "runs" / new_run_id()
    preflight = inspect_run(config, run_dir.parent, permissions=permissions)
    if preflight.problems:
        raise ConfigError(preflight.problems)
    try:
        name = name or Workspace(workspace_of(run_dir.resolve()) or run_dir).name_for(config)  # elsewhere no runs lie beside it
        create_run(run_dir, config, name=name, state="loading", memory=preflight.expected_peak, files=files)
    except StoreError as error:  # occupied, on a read-only disk, a file in the way
        raise ConfigError([Problem("--run-dir", str(error))]) from error
    print_notes(config, preflight)
    return run_dir


def _resume(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import change_settings, run_folder, set_again
    from rlhf_studio.runs.checkpoints import where_to_resume
    from rlhf_studio.runs.lab.fork import refuse_only_read
    from rlhf_studio.runs.reader import RunReader

    reader = RunReader(options.folder)
    reader.config()  # first what is wrong with the folder, then what is wrong with the request
    refuse_only_read(reader)
    permissions = permissions_of(options)
    mode: StartMode = "from-start" if options.from_start else "resume"
    if options.overrides:
        if mode == "resume":
            where_to_resume(options.folder)  # a run that cannot go on keeps its settings
        change_settings(options.folder, options.overrides, permissions, mode)
        if mode == "resume":
            set_again(options.folder, options.overrides)
    return run_folder(options.folder, mode, permissions)


def _stop(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import stop

    say(stop(options.folder, now=options.now, discard=options.discard))
    return DONE
