"""The command ``compare-updates``: one recorded batch, learned from by all algorithms."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlhf_studio.cli.completions import REPLACE_HELP, check_target, write_lines
from rlhf_studio.cli.options import Subcommands, folder_of_run, permissions_of
from rlhf_studio.config import add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import _
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.visible import say

MOST_FRESH = 65_536


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "compare-updates",
        help=_("what PPO, REINFORCE, RLOO, GRPO, Dr. GRPO, DAPO and GSPO each make of one batch of a run"),
        allow_abbrev=False,
    )
    command.add_argument(
        "target",
        nargs="?",
        metavar="RUN@STEP",
        help=_(
            "the batch that this step of a run sampled, a folder or an id in the workspace; without it the tiny"
            " world is trained for ten steps, with four responses to each prompt, and its next batch is taken"
        ),
    )
    command.add_argument("--out", type=Path, metavar="FILE", help=_("write all figures there, as JSON"))
    command.add_argument("--replace", action="store_true", help=_(REPLACE_HELP))
    command.add_argument("--json", action="store_true", help=_("print the figures instead of tables"))
    command.add_argument("--fresh", type=int, default=256, metavar="N", help=_("responses sampled with each policy (default: 256)"))
    command.add_argument("--seed", type=int, default=0, help=_("of these responses, the same for each policy (default: 0)"))
    add_permission_flags(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    run_dir, step = _target(options.target)
    if not 1 <= options.fresh <= MOST_FRESH:
        raise ConfigError([Problem("--fresh", f"from 1 to {MOST_FRESH:,} responses, not {options.fresh}")])
    if not 0 <= options.seed < 1 << 63:
        raise ConfigError([Problem("--seed", f"from 0 to {(1 << 63) - 1:,}, not {options.seed}")])
    out = None if options.out is None else options.out.absolute()
    if out is not None:
        check_target(out, "--out", replace=options.replace)
    permissions = permissions_of(options)
    before_torch()
    from rlhf_studio.engine.rewards.errors import RewardError  # torch and transformers load here, after the cheap checks
    from rlhf_studio.engine.types import NonFiniteError
    from rlhf_studio.inputs.prompts import PromptsError
    from rlhf_studio.jobs.updates.command import Request, compare_updates
    from rlhf_studio.jobs.updates.figures import as_text

    try:
        data = compare_updates(Request(run_dir, step, options.fresh, options.seed), permissions)
    except (PromptsError, RewardError, NonFiniteError, CheckpointError) as error:
        raise ConfigError([Problem("", str(error))]) from error
    if out is not None:
        write_lines(out, [json.dumps(data, allow_nan=False, ensure_ascii=False)], "--out")
    say(json.dumps(data, allow_nan=False) if options.json else as_text(data))
    return DONE


def _target(target: str | None) -> tuple[Path | None, int]:
    if target is None:
        return None, 0
    name, _, step = target.rpartition("@")
    if not name or not step.isascii() or not step.isdecimal() or len(step) > 9:
        raise ConfigError([Problem("", f"name a run and one of its steps, as RUN@STEP, not {target[:60]!r}")])
    return folder_of_run(Path(name)).resolve(), int(step)
