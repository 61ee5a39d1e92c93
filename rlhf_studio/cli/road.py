"""The command ``road``: fine-tuning, pairs, reward model, PPO and evaluation, one after the other and unattended."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_studio.cli.options import Subcommands, default_workspace, permissions_of, print_notes
from rlhf_studio.config import Permissions, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import N_, _
from rlhf_studio.visible import say

if TYPE_CHECKING:
    from rlhf_studio.jobs.road.look import PartLook
    from rlhf_studio.jobs.road.state import OwnSettings, RoadSettings

REWARD_HELP = N_("what PPO learns from in place of a reward model trained on --pairs: a rule such as lexicon, FILE.py, or a reward model")
JUDGE_HELP = N_("what compares the end with the start, named as for --reward; best of another origin than the reward")


def add_commands(commands: Subcommands) -> None:
    """Add ``road`` with its own commands."""
    road = commands.add_parser("road", help=_("fine-tune, compare, train a reward model, train with PPO and evaluate, all in one"))
    actions = road.add_subparsers(dest="action", required=True, metavar="ACTION")
    world = actions.add_parser("world", help=_("the whole road on the bundled review world, from an untrained policy"), allow_abbrev=False)
    world.add_argument(
        "--small", action="store_true", help=_("some minutes: fewer reviews, pairs and steps, and still a policy that is surely better")
    )
    world.add_argument("--rounds", type=int, default=1, metavar="N", help=_("how often pairs are sampled, judged and learned from"))
    world.set_defaults(run=_world)
    own = actions.add_parser(
        "run",
        help=_("a model and files of your own: SFT, reward model, PPO, and the end against the start"),
        description=_("What is not given is left out. Settings such as --ppo.kl_coef 0.1 count in every part that has them."),
        allow_abbrev=False,
    )
    _add_own(own)
    go = actions.add_parser("go", help=_("go on along a road that was stopped"), allow_abbrev=False)
    go.add_argument("road", type=Path, metavar="ROAD", help=_("the road's folder"))
    go.set_defaults(run=_go)
    listed = actions.add_parser("list", help=_("the roads of the workspace"), allow_abbrev=False)
    listed.set_defaults(run=_list)
    for command in (world, own):
        command.add_argument("--seed", type=int, default=0, metavar="NUMBER", help=_("of its runs and answers (default: 0)"))
    for command in (own, go):
        command.add_argument("--anyway", action="store_true", help=_("go on after a part that was not worth it"))
        add_permission_flags(command)
    for command in (world, own, listed):
        command.add_argument("--workspace", type=Path, default=default_workspace(), metavar="DIR", help=_("default: %(default)s"))
    go.add_argument("--workspace", type=Path, metavar="DIR", help=_("default: the workspace that the road lies in"))


def _add_own(own: argparse.ArgumentParser) -> None:
    own.add_argument("--policy", required=True, metavar="MODEL", help=_("the model that learns: a folder, a hub id, or a run"))
    own.add_argument("--demonstrations", default="", metavar="FILE", help=_("good answers, for fine-tuning (docs/data.md)"))
    own.add_argument("--pairs", default="", metavar="FILE", help=_("pairs of answers of which one is better, for a reward model"))
    own.add_argument("--prompts", default="", metavar="FILE", help=_("what PPO practises on"))
    own.add_argument("--reward", default="", metavar="KIND|MODEL", help=_(REWARD_HELP))
    own.add_argument("--judge", default="", metavar="KIND|MODEL", help=_(JUDGE_HELP))
    own.add_argument("--minutes", type=float, default=0.0, metavar="N", help=_("for the whole, divided over the parts; 0: no limit"))
    own.add_argument("--plan", action="store_true", help=_("only say what would be done, its time and memory; start nothing"))
    own.set_defaults(run=_own)


def _world(options: argparse.Namespace) -> int:
    from rlhf_studio.jobs.road.plan import SMALL, RoadSettings

    _refuse_settings(options, "world")
    if not 1 <= options.rounds <= 9:
        raise ConfigError([Problem("--rounds", f"should be from 1 to 9, not {options.rounds}")])
    _check_seed(options.seed)
    settings = replace(SMALL if options.small else RoadSettings(), rounds=options.rounds, seed=options.seed)
    return _begin(settings, "the world's road", options.workspace, Permissions())


def _own(options: argparse.Namespace) -> int:
    from rlhf_studio.inputs.named_reward import component_named
    from rlhf_studio.jobs.road.look import look_at, problems_of
    from rlhf_studio.jobs.road.own import in_full, require_known
    from rlhf_studio.jobs.road.state import OwnSettings

    _check_seed(options.seed)
    permissions, workspace = permissions_of(options), options.workspace.resolve()
    as_typed = ("policy", "demonstrations", "pairs", "prompts", "minutes", "anyway", "seed")
    given: dict[str, Any] = {name: getattr(options, name) for name in as_typed}
    given |= {name: component_named(getattr(options, name)) for name in ("reward", "judge")}
    own = in_full(OwnSettings(**given, changes=options.overrides), workspace)
    require_known(own)
    looks = look_at(own, workspace, permissions)
    if problems := problems_of(looks):
        raise ConfigError(problems)
    if options.plan:
        _say_plan(looks, workspace)
        return DONE
    for look in looks:
        if look.part.state == "skipped":
            say(_("{title}: left out. {headline}").format(title=look.part.title, headline=look.part.headline))
    return _begin(own, "your road", options.workspace, permissions)


def _say_plan(looks: list[PartLook], workspace: Path) -> None:
    """What each part would do, with its time, memory and settings; nothing is started."""
    from rlhf_studio.cli.plan import say_plan
    from rlhf_studio.jobs.road.own import in_a_line
    from rlhf_studio.units import format_bytes

    for number, look in enumerate(looks, 1):
        say(f"{number}. {look.part.title}")
        if look.config is None or look.report is None:
            say(_("Left out. {headline}\n").format(headline=look.part.headline))
            continue
        if look.minutes:
            say(_("At most {minutes:g} minutes, and what the parts before it leave over.").format(minutes=look.minutes))
        say_plan(look.config, look.report, workspace, look.policies)
        if look.more_memory:
            say(_("  and the reward model that the road trains: about {more_memory}").format(more_memory=format_bytes(look.more_memory)))
        for name, value in look.fitted.items():
            say(f"  {in_a_line(name, value)}")
        print_notes(look.config, look.report)
        say("")


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**31:
        raise ConfigError([Problem("--seed", f"should be at least 0 and below 2^31, not {seed}")])


def _refuse_settings(options: argparse.Namespace, action: str) -> None:
    for name in options.overrides:
        raise ConfigError([Problem("", f"road {action} takes no settings such as --{name}")])


def _begin(settings: RoadSettings | OwnSettings, name: str, workspace: Path, permissions: Permissions) -> int:
    """Make the road's folder and go along it."""
    from rlhf_studio.jobs.road.begin import begin_road

    try:
        road = begin_road(workspace.resolve(), name, settings, time.time())
    except OSError as error:
        raise ConfigError([Problem("--workspace", f"no road can be begun in {workspace}: {error}")]) from error
    say(_("road: {folder}").format(folder=road.folder))
    return _drive(road.folder, workspace.resolve(), permissions)


def _go(options: argparse.Namespace) -> int:
    from rlhf_studio.jobs.road.begin import go_on_anyway
    from rlhf_studio.jobs.road.state import read_road, workspace_of

    _refuse_settings(options, "go")
    folder = options.road.resolve()
    try:
        road = read_road(folder)
    except (OSError, ValueError) as error:
        raise ConfigError([Problem("", f"{options.road} is not the folder of a road: {error}")]) from error
    workspace = options.workspace.resolve() if options.workspace else workspace_of(folder)
    if workspace is None:
        raise ConfigError([Problem("--workspace", f"{options.road} lies in no workspace; say in which one its runs are")])
    permissions = permissions_of(options)
    if options.anyway:
        go_on_anyway(road)
    return _drive(folder, workspace, permissions)


def _drive(folder: Path, workspace: Path, permissions: Permissions) -> int:
    from rlhf_studio.jobs.road.drive import drive
    from rlhf_studio.jobs.road.state import AlreadyDriven

    try:
        return drive(folder, workspace, say, permissions)
    except AlreadyDriven as error:
        raise ConfigError([Problem("", str(error))]) from None
    except OSError as error:
        raise ConfigError([Problem("", f"the road in {folder} cannot go on: {error}")]) from error


def _list(options: argparse.Namespace) -> int:
    from rlhf_studio.jobs.road.state import list_roads

    _refuse_settings(options, "list")
    roads = list_roads(options.workspace.resolve())
    for road in roads:
        say(str(road.folder))
        for part in road.parts:
            say(
                f"  {part.state:9}{part.title}{f': {part.headline}' if part.headline else ''}{f' ({part.problem})' if part.problem else ''}"
            )
    if not roads:
        say(_("No roads in {workspace} yet. Start one with: python -m rlhf_studio road world").format(workspace=options.workspace))
    return DONE
