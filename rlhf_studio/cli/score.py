"""The command ``score``: one text, scored with a configuration's rewards."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, configuration_of, permissions_of
from rlhf_studio.config import add_permission_flags
from rlhf_studio.config.io import ppo_only
from rlhf_studio.language import _


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    score = commands.add_parser("score", help=_("score one text with a configuration's rewards, without a run"), allow_abbrev=False)
    score.add_argument("--recipe", help=_("the rewards of a ready-made configuration"))
    score.add_argument("--config", type=Path, metavar="FILE", help=_("the rewards of a YAML file"))
    score.add_argument("--prompt", required=True, metavar="TEXT", help=_("what the response answers"))
    score.add_argument("--response", required=True, metavar="TEXT", help=_("the text that is scored"))
    score.add_argument("--reference", metavar="TEXT", help=_("the reference text, for rewards that compare with one"))
    score.add_argument("--cut-off", action="store_true", help=_("the response was cut off before its stop token"))
    score.add_argument("--json", action="store_true", help=_("machine-readable"))
    add_permission_flags(score)
    score.set_defaults(run=_score)


def _score(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    config, permissions = ppo_only(configuration_of(options)), permissions_of(options)
    before_torch()
    from rlhf_studio.jobs.scoring.command import score_text  # torch and transformers load here, after the cheap checks
    from rlhf_studio.jobs.scoring.one_text import TextToScore

    text = TextToScore(options.prompt, options.response, options.reference, not options.cut_off)
    return score_text(config, text, permissions, as_json=options.json)
