"""The command ``hand-over``: a run's settings for verl or OpenRLHF."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlhf_studio.cli.options import Subcommands, configuration_of, permissions_of, recipe_named
from rlhf_studio.config import StageConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem, ppo_only
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import S_, _, ngettext, told
from rlhf_studio.visible import say


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "hand-over",
        help=_("write a run's settings, prompts and rewards for a distributed engine: verl or OpenRLHF"),
        usage="%(prog)s (RUN | --recipe NAME | --config FILE) --to verl|openrlhf OUT [--gpus N] [--nodes N] [--SETTING VALUE ...]",
        allow_abbrev=False,
    )
    help = _("a run folder, or the id of a run in the workspace; unless --recipe or --config is given")
    command.add_argument("folder", nargs="?", type=Path, metavar="RUN", help=help)
    command.add_argument("--recipe", help=_("a ready-made configuration; see 'recipes list'"))
    command.add_argument("--config", type=Path, metavar="FILE", help=_("a YAML file"))
    help = _("the engine, verl or openrlhf, and the new folder to write")
    command.add_argument("--to", required=True, nargs=2, metavar=("ENGINE", "OUT"), help=help)
    command.add_argument("--gpus", type=int, default=8, metavar="N", help=_("GPUs of each machine (default: 8)"))
    command.add_argument("--nodes", type=int, default=1, metavar="N", help=_("machines (default: 1)"))
    add_permission_flags(command)
    command.set_defaults(run=_hand_over)


def _hand_over(options: argparse.Namespace) -> int:
    from rlhf_studio.handover.translation import Cluster
    from rlhf_studio.handover.write import ENGINES, hand_over

    engine, out = options.to
    if engine not in ENGINES:
        raise ConfigError([Problem("--to", f"there is no engine {engine!r}; there are: {', '.join(ENGINES)}")])
    for flag in ("gpus", "nodes"):
        if not 1 <= getattr(options, flag) <= 1024:
            raise ConfigError([Problem(f"--{flag}", f"{getattr(options, flag)} is not a number from 1 to 1024")])
    config = ppo_only(_settings(options))
    cluster = Cluster(options.gpus, options.nodes)
    with recipe_named(options):
        done = hand_over(config, engine, Path(out), cluster=cluster, permissions=permissions_of(options))
    machines = _("1 machine") if cluster.nodes == 1 else _("{nodes} machines").format(nodes=cluster.nodes)
    written = ngettext(
        "written: {folder}, for {machines} with {count} GPU (--gpus, --nodes)",
        "written: {folder}, for {machines} with {count} GPUs (--gpus, --nodes)",
        cluster.gpus,
    )
    say(written.format(folder=done.folder, machines=machines, count=cluster.gpus))
    for title, remarks in ((_("no counterpart"), done.translation.missing), (_("different"), done.translation.changed)):
        for remark in remarks:
            about = _("{name}: {sentence}").format(name=remark.setting, sentence=remark.sentence)
            say(_("{name}: {sentence}").format(name=title, sentence=about))
    for note in done.notes:
        say(told(note))
    say(_("start it there: bash {value}").format(value=done.folder / "run.sh"))
    return DONE


def _settings(options: argparse.Namespace) -> StageConfig:
    """Those of the run, or of the recipe or file. Raises :class:`ConfigError`."""
    if options.folder is None:
        return configuration_of(options)
    if options.recipe or options.config:
        raise ConfigError([Problem("", f"give a run, --recipe or --config, not two of them: {options.folder}")])
    if options.overrides:
        raise ConfigError([Problem("", "settings change a recipe or a file; take a run as it is, or 'runs config RUN' as a file")])
    from rlhf_studio.inputs.relative_paths import as_seen_from
    from rlhf_studio.runs.reader import RunReader

    reader = RunReader(options.folder)
    if (origin := reader.origin()).only_read:
        who = told(S_(f"was {origin.told}"))
        message = _("the run {name} {who}, so its model, prompts and rewards are not here: name them in a file of settings, ").format(
            name=options.folder.name, who=who
        )
        raise ConfigError([Problem("", f"{message}perhaps begun with 'runs config RUN', and hand that over with --config FILE")])
    return as_seen_from(reader.config(), reader.working_folder())
