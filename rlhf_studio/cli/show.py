"""The commands that only show something: ``runs`` and ``recipes``."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from rlhf_studio.cli.options import Subcommands, add_folder, default_workspace
from rlhf_studio.config.io import config_to_yaml, used_to_yaml
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import _, labelled, together
from rlhf_studio.visible import padded, say


def add_commands(commands: Subcommands) -> None:
    """Add both commands, each with its ``list`` and ``show``."""
    _add_runs(commands)
    _add_recipes(commands)


def _add_runs(commands: Subcommands) -> None:
    runs = commands.add_parser("runs", help=_("list runs, or show one"), allow_abbrev=False)
    actions = runs.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help=_("the runs of a workspace"), allow_abbrev=False)
    listing.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help=_("the folder with the runs"))
    listing.add_argument("--json", action="store_true", help=_("machine-readable"))
    listing.set_defaults(run=_runs_list)
    show = actions.add_parser("show", help=_("one run: state, progress, last metrics, checkpoints"), allow_abbrev=False)
    add_folder(show)
    show.add_argument("--json", action="store_true", help=_("machine-readable"))
    show.set_defaults(run=_runs_show)
    config = actions.add_parser("config", help=_("the settings of one run as YAML, for train --config"), allow_abbrev=False)
    add_folder(config)
    config.add_argument("--with-changes", action="store_true", help=_("with what was changed while it went on: the same run again"))
    config.set_defaults(run=_runs_config)


def _add_recipes(commands: Subcommands) -> None:
    recipes = commands.add_parser("recipes", help=_("ready-made configurations"), allow_abbrev=False)
    actions = recipes.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help=_("names and titles"), allow_abbrev=False).set_defaults(run=_recipes_list)
    show = actions.add_parser("show", help=_("one recipe as YAML"), allow_abbrev=False)
    show.add_argument("name")
    show.set_defaults(run=_recipes_show)


def _runs_list(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.show import list_text, list_values

    say(json.dumps(list_values(options.workspace), indent=1) if options.json else list_text(options.workspace))
    return DONE


def _runs_show(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.show import show_text, show_values

    values = show_values(options.folder) | _verdict_values(options.folder)
    say(json.dumps(values, indent=1) if options.json else show_text(values))
    return DONE


def _runs_config(options: argparse.Namespace) -> int:
    from rlhf_studio.runs.reader import RunReader
    from rlhf_studio.runs.show import config_to_replay

    config = config_to_replay(options.folder) if options.with_changes else RunReader(options.folder).config()
    say(config_to_yaml(config), end="")
    return DONE


def _verdict_values(folder: Path) -> dict[str, Any]:
    """The doctor's verdict on a run, and its findings of this moment in one line each."""
    from rlhf_studio.analysis.doctor import diagnose
    from rlhf_studio.runs.reader import RunReader

    diagnosis = diagnose(RunReader(folder))
    findings = [
        {"check": finding.check, "level": finding.level, "since": finding.since, "when": finding.when, "title": finding.title}
        for finding in diagnosis.findings
    ]
    return {"verdict": dataclasses.asdict(diagnosis.verdict), "findings": findings}


def _recipes_list(options: argparse.Namespace) -> int:
    from rlhf_studio.config.recipes import list_recipes

    for recipe in list_recipes():
        about = labelled(_(recipe.title), together(_(recipe.summary), _(recipe.first)))
        say(padded(f"{recipe.name} ", 16) + about)
    return DONE


def _recipes_show(options: argparse.Namespace) -> int:
    from rlhf_studio.config.recipes import load_recipe

    recipe = load_recipe(options.name)
    say((f"# {recipe.first}\n" if recipe.first else "") + used_to_yaml(recipe.config), end="")
    return DONE
