"""The command ``road``: fine-tuning, pairs, reward model, PPO and evaluation, one after the other and unattended."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, default_workspace
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add ``road`` with its own commands."""
    road = commands.add_parser("road", help="fine-tune, compare, train a reward model, train with PPO and evaluate, all in one")
    actions = road.add_subparsers(dest="action", required=True, metavar="ACTION")
    world = actions.add_parser("world", help="the whole road on the bundled review world, from an untrained policy", allow_abbrev=False)
    world.add_argument("--small", action="store_true", help="a minute long: shows that all parts fit together, and learns little")
    world.add_argument("--rounds", type=int, default=1, metavar="N", help="how often pairs are sampled, judged and learned from")
    world.add_argument("--seed", type=int, default=0, metavar="NUMBER")
    world.set_defaults(run=_world)
    go = actions.add_parser("go", help="go on along a road that was stopped", allow_abbrev=False)
    go.add_argument("road", type=Path, metavar="ROAD", help="the road's folder")
    go.set_defaults(run=_go)
    listed = actions.add_parser("list", help="the roads of the workspace", allow_abbrev=False)
    listed.set_defaults(run=_list)
    for command in (world, listed):
        command.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help="default: %(default)s")
    go.add_argument("--workspace", type=Path, metavar="DIR", help="default: the workspace that the road lies in")


def _world(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from rlhf_studio.jobs.road.plan import SMALL, RoadSettings, plan
    from rlhf_studio.jobs.road.state import Road, new_road_folder, write_road

    if not 1 <= options.rounds <= 9:
        raise ConfigError([Problem("--rounds", f"should be from 1 to 9, not {options.rounds}")])
    if not 0 <= options.seed < 2**31:
        raise ConfigError([Problem("--seed", f"should be at least 0 and below 2^31, not {options.seed}")])
    settings = replace(SMALL if options.small else RoadSettings(), rounds=options.rounds, seed=options.seed)
    workspace = options.workspace.resolve()
    try:
        folder = new_road_folder(workspace)
        write_road(Road(folder, "the world's road", settings, plan(settings), time.time()))
    except OSError as error:
        raise ConfigError([Problem("--workspace", f"no road can be begun in {options.workspace}: {error}")]) from error
    say(f"road: {folder}")
    return _drive(folder, workspace)


def _go(options: argparse.Namespace) -> int:
    from rlhf_studio.jobs.road.state import read_road, workspace_of

    folder = options.road.resolve()
    try:
        read_road(folder)
    except (OSError, ValueError) as error:
        raise ConfigError([Problem("", f"{options.road} is not the folder of a road: {error}")]) from error
    workspace = options.workspace.resolve() if options.workspace else workspace_of(folder)
    if workspace is None:
        raise ConfigError([Problem("--workspace", f"{options.road} lies in no workspace; say in which one its runs are")])
    return _drive(folder, workspace)


def _drive(folder: Path, workspace: Path) -> int:
    from rlhf_studio.jobs.road.drive import drive
    from rlhf_studio.jobs.road.state import AlreadyDriven

    try:
        return drive(folder, workspace, say)
    except AlreadyDriven as error:
        raise ConfigError([Problem("", str(error))]) from None
    except OSError as error:
        raise ConfigError([Problem("", f"the road in {folder} cannot go on: {error}")]) from error


def _list(options: argparse.Namespace) -> int:
    from rlhf_studio.jobs.road.state import list_roads

    roads = list_roads(options.workspace.resolve())
    for road in roads:
        say(str(road.folder))
        for part in road.parts:
            say(
                f"  {part.state:9}{part.title}{f': {part.headline}' if part.headline else ''}{f' ({part.problem})' if part.problem else ''}"
            )
    if not roads:
        say(f"No roads in {options.workspace} yet. Start one with: python -m rlhf_studio road world")
    return DONE
