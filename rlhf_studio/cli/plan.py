"""The command ``plan``: time, memory, disk and every warning of a run, as the Train page shows them. No run is started."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, configuration_of, permissions_of, print_notes, workspace_of
from rlhf_studio.config import RunConfig, StageConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.recipes import Recipe, list_recipes
from rlhf_studio.exit_codes import DONE
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement, measure_command
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.language import _, clauses, labelled
from rlhf_studio.ui import forecast, outlook
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add ``plan``."""
    command = commands.add_parser("plan", help=_("say what a run would need and what is risky, and start nothing"), allow_abbrev=False)
    command.add_argument("--recipe", help=_("a ready-made configuration; see 'recipes list'"))
    command.add_argument("--config", type=Path, metavar="FILE", help=_("a YAML file"))
    command.add_argument("--workspace", type=Path, metavar="DIR", help=_("whose earlier runs tell the time (default: the usual one)"))
    add_permission_flags(command)
    command.set_defaults(run=plan, folder=None)


def plan(options: argparse.Namespace) -> int:
    """Print the plan of the run that the options describe. Raises :class:`ConfigError` for what would keep it from starting."""
    if options.folder is not None:
        raise ConfigError([Problem("", "a plan is made for --recipe NAME or --config FILE, not for a folder")])
    config, workspace = configuration_of(options), workspace_of(options)
    report = inspect_run(config, workspace, permissions=permissions_of(options))
    if report.problems:
        raise ConfigError(report.problems)
    say_plan(config, report, workspace)
    print_notes(config, report)
    return DONE


def say_plan(config: StageConfig, report: Preflight, workspace: Path, policies: Sequence[str] = ()) -> None:
    """Print what a run does, its time, memory and disk. ``policies``: see :func:`~rlhf_studio.ui.outlook.sentence`."""
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    recipe = recipes.get(config.recipe) or next(recipe for recipe in recipes.values() if recipe.stage == config.stage)
    say(outlook.sentence(config, recipe, report.prompts, policies))
    time = _time(config, report, recipe, recipes, workspace)
    say(_("Time: {time} ({rstrip})").format(time=time["value"], rstrip=time["help"].rstrip(".。")))
    for row in outlook.figures(report):
        say(labelled(row["label"], row["value"]))
    if report.memory_estimate:
        memory = forecast.memory_view(report.memory_estimate, report.change)
        say(clauses([_("Memory: {memory}").format(memory=memory["total"]), memory["free"]]))
        for part in memory["rows"]:
            say("  " + labelled(part["name"], part["size"]))
        if memory["advice"]:
            say(memory["advice"])


def _time(config: StageConfig, report: Preflight, recipe: Recipe, recipes: dict[str, Recipe], workspace: Path) -> dict[str, str]:
    """How long the run takes; where no run and no recipe can tell, by this machine's rate, which is measured now."""
    speed, memory = SpeedMeasurement(workspace), report.memory_estimate
    known = forecast.whole_time(config, report, recipe, workspace, recipes, speed)
    unknown = known == outlook.unknown_time(config)
    if unknown and isinstance(config, RunConfig) and memory is not None and speed.rate(memory.device.kind) is None:
        workspace.mkdir(parents=True, exist_ok=True)
        say(_("Measuring this machine's speed, which is kept in the workspace."), sys.stderr)
        if subprocess.run(measure_command(workspace, memory.device.kind), check=False, stdout=subprocess.DEVNULL).returncode:
            say(_("The speed could not be measured."), sys.stderr)
        known = forecast.whole_time(config, report, recipe, workspace, recipes, speed)
    return known
