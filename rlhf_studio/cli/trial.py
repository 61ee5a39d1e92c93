"""The command ``try``: train for two minutes, say what will come of the night, and which settings would go better."""

from __future__ import annotations

import argparse
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_studio.cli.options import Subcommands, configuration_of, permissions_of
from rlhf_studio.cli.train import prepare_run, start_run
from rlhf_studio.config import add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem, config_to_yaml, text_of
from rlhf_studio.exit_codes import BAD_INPUT, DONE, STOPPED
from rlhf_studio.language import _
from rlhf_studio.visible import say

if TYPE_CHECKING:
    from rlhf_studio.analysis.trial import Judgement

MAX_NAME = 120  # characters
MORNING = "07:00"
FEWEST_MINUTES, MOST_MINUTES = 0.1, 60.0


def add_commands(commands: Subcommands) -> None:
    """Add ``try``."""
    command = commands.add_parser(
        "try", help=_("train for two minutes: what will come of the night, and which settings would go better"), allow_abbrev=False
    )
    command.add_argument("--recipe", help=_("start from a ready-made configuration; see 'recipes list'"))
    command.add_argument("--config", type=Path, metavar="FILE", help=_("start from a YAML file"))
    command.add_argument("--run-dir", type=Path, metavar="DIR", help=_("where to keep the trial (default: a new folder in the workspace)"))
    command.add_argument("--minutes", type=_minutes, default=2.0, metavar="N", help=_("how long to try, loading left out (default: 2)"))
    command.add_argument(
        "--until",
        type=_time_of_day,
        default=MORNING,
        metavar="HH:MM",
        help=_("when the night ends (default: {morning})").format(morning=MORNING),
    )
    command.add_argument("--output", type=Path, metavar="FILE", help=_("write the settings with all corrections into a YAML file"))
    command.add_argument("--take", action="store_true", help=_("start the run with all corrections when the trial is over"))
    command.add_argument("--discard", action="store_true", help=_("remove the trial when it has been judged"))
    add_permission_flags(command)
    command.set_defaults(run=_try, folder=None)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not FEWEST_MINUTES <= minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"should be minutes from {FEWEST_MINUTES:g} to {MOST_MINUTES:g}, not {text[:40]!r}")
    return minutes


def _time_of_day(text: str) -> str:
    try:
        datetime.strptime(text, "%H:%M")
    except ValueError:
        raise argparse.ArgumentTypeError(f"should be a time of the day such as {MORNING}, not {text[:40]!r}") from None
    return text


def seconds_until(time_of_day: str, now: datetime) -> float:
    """Seconds from ``now`` to the next time that a clock shows ``HH:MM``."""
    hour, minute = map(int, time_of_day.split(":"))
    end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (end if end > now else end + timedelta(days=1)).timestamp() - now.timestamp()


def _try(options: argparse.Namespace) -> int:
    from rlhf_studio.analysis.trial import corrected, judgement_of
    from rlhf_studio.cli.engine import run_folder
    from rlhf_studio.runs.create import remove_unstarted
    from rlhf_studio.runs.lab.trial import note_of, put_aside, remove, trial_settings
    from rlhf_studio.runs.reader import RunReader

    _check_output(options.output)
    permissions, config = permissions_of(options), configuration_of(options)
    name = "Trial of " + (config.name or config.recipe or "a run")
    run_dir = prepare_run(trial_settings(config, options.minutes), options.run_dir, permissions, name[:MAX_NAME], note_of(config)).resolve()
    put_aside(run_dir)
    say(_("trial: {run_dir}").format(run_dir=run_dir))
    code = run_folder(run_dir, "train", permissions)
    if code == BAD_INPUT and remove_unstarted(run_dir):
        say(_("nothing was trained: {run_dir} was removed again").format(run_dir=run_dir))
    if code != DONE and not (code == STOPPED and RunReader(run_dir).ended_by_time()):
        return code  # somebody has stopped it, or it failed, which the engine has said
    judgement = judgement_of(run_dir, seconds_until(options.until, datetime.now()), _("until {until}").format(until=options.until))
    assert judgement is not None  # a trial that is over has steps
    _report(judgement, taken=options.take or bool(options.output))
    better = corrected(config, judgement)
    if options.output:
        options.output.write_text(config_to_yaml(better), encoding="utf-8")
        start = shlex.join(["train", "--config", str(options.output), *_start_flags(options)])
        say(_("Written: {output}. Start with: python -m rlhf_studio {start}").format(output=options.output, start=start))
    if options.discard:
        remove(run_dir)
    if options.take:
        return start_run(better, None, permissions)
    return DONE


def _start_flags(options: argparse.Namespace) -> list[str]:
    """The permissions that were given, for another start. The address of a server may hold a secret: it is left to the person."""
    urls = [text.partition("=")[0] + "=URL" for text in options.reward_url]
    given = {"--allow-custom-rewards": options.allow_custom_rewards, "--reward-url": urls, "--reward-key": options.reward_key}
    return [word for flag, values in given.items() for value in values for word in (flag, value)]


def _check_output(output: Path | None) -> None:
    """Raises ConfigError for a file that is there already, or that has no folder: the trial would be for nothing."""
    if output is None:
        return
    if output.exists():
        raise ConfigError([Problem("--output", f"{output} exists already; name another file")])
    if not output.resolve().parent.is_dir():
        raise ConfigError([Problem("--output", f"the folder of {output} does not exist")])


def _report(judgement: Judgement, *, taken: bool) -> None:
    say(f"\n{judgement.headline}")
    for sentence in (*judgement.night, *judgement.seen):
        say(f"- {sentence}")
    for row in judgement.corrections:
        say(f"{row.setting}: {text_of(row.old)} → {text_of(row.new)}: {row.why}")
    if judgement.corrections:
        all_of_them = " ".join(f"--{name} {text_of(value)}" for name, value in judgement.together.items())
        say(f"{'Taken' if taken else 'Take them all by adding'}: {all_of_them}")
