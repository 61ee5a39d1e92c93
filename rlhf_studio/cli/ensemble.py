"""The command ``ensemble``: reward models of several runs become one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, default_workspace
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.inputs.relative_paths import run_in_full
from rlhf_studio.inputs.trained import model_of_run
from rlhf_studio.language import _
from rlhf_studio.runs import paths
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "ensemble", help=_("gather reward models, for instance of runs that differ in their seed, in one folder"), allow_abbrev=False
    )
    command.add_argument(
        "models",
        type=Path,
        nargs="+",
        metavar="RUN",
        help=_("a run (its folder, or its id in the workspace), RUN@STEP, or a reward model's folder"),
    )
    command.add_argument("--out", type=Path, required=True, metavar="FOLDER", help=_("the new folder, for a reward of the kind ensemble"))
    command.set_defaults(run=_ensemble)


def _ensemble(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    models = [model_of_run(run_in_full(str(name), default_workspace() / paths.RUNS)) or name for name in options.models]
    if missing := next((name for name in models if not os.path.isdir(name)), None):
        raise ConfigError(
            [Problem("models", f"there is no folder {missing}; name runs of the stage reward_model, or folders of reward models")]
        )
    if not options.out.absolute().parent.is_dir():
        raise ConfigError([Problem("out", f"there is no folder {options.out.absolute().parent} to put it in")])
    before_torch()
    from rlhf_studio.engine.stages.reward_model.finish import gather_ensemble  # torch loads here, after the cheap checks

    try:
        gather_ensemble(options.out, models)
    except (ValueError, OSError) as error:  # ConfigError and ModelError are ValueErrors too, and say as much
        raise ConfigError([Problem("", str(error))]) from error
    say(_("{out}: {models} reward models. Use it as a reward of the kind ensemble.").format(out=options.out, models=len(models)))
    return DONE
